"""Samples without replacement, and what they say about an expectation."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pullback.distributions._distribution import StructureDistribution

MOST = 12  # sums over all orders of the samples take 2ⁿ numbers
_PATIENCE = 8  # draws for each vertex that is wanted, on average, before an example settles for fewer


class Unordered(NamedTuple):
    """Different vertices of each example, and two estimates of an expectation E[f] from them, both without bias.

    vertices: (n, *batch, *event); where an example has fewer than n, its first one again, of weight 0.
    weights: (n, *batch);  Σᵢ weights[i] f(vertices[i]) estimates E[f].
    others: (n, n, *batch);  Σⱼ others[i, j] f(vertices[j]) estimates E[f] whichever vertex was drawn first, given that
    this was vertex i: a baseline for f(vertices[i]).
    """

    vertices: Tensor
    weights: Tensor
    others: Tensor

    def others_of(self, numbers: Tensor) -> Tensor:
        """The second estimate, for each vertex, from numbers f(vertices): (n, *batch)."""
        return (self.others * numbers).sum(1)


@torch.no_grad()
def draw(p: StructureDistribution, n: int, generator: torch.Generator | None = None) -> Unordered:
    """`n` vertices drawn one after the other, each from p without those before it.

    A vertex that is there already is drawn again.  Where p leaves little beside the vertices found that might take
    forever: so before each draw but the first an example stops with probability 1 − ρ, and settles for fewer.  As p and
    ρ are known, so is the probability of every order in which its vertices may have come; weights are probabilities to
    be the first, given the set.  With ρ = 1 this is the unordered set estimator of Kool, van Hoof and Welling (2020).
    """
    patience = 1 - 1 / (_PATIENCE * n)
    vertices, size = _distinct(p, n, patience, generator)
    index = torch.arange(n, device=size.device).reshape(-1, *(1,) * size.dim())
    probabilities = _probabilities(p, vertices).masked_fill(index >= size, 0)
    ways = _ways(probabilities, size, patience)
    first = torch.stack([ways[1 << i] for i in range(n)])
    second = torch.stack([torch.stack([ways[1 << i | 1 << j] for j in range(n)]) for i in range(n)])
    own = torch.eye(n, dtype=torch.bool, device=size.device).reshape(n, n, *(1,) * size.dim())
    second = second.masked_fill(own, 0)
    total = second.sum(1, keepdim=True)
    # A second vertex is found with probability ρ (1 − pᵢ) / (1 − ρ pᵢ) and stands for the share 1 − pᵢ of E[f], the
    # first for the rest: pᵢ on average, and everything where there is no second.
    share = torch.where(size > 1, (1 - patience * probabilities) / patience, 0).unsqueeze(1)
    others = torch.where(own, 1 - share, share * second / torch.where(total > 0, total, 1))
    here = p.structure.widen(index < size)
    dtype = p.scores.dtype
    return Unordered(torch.where(here, vertices, vertices[:1]), (first / first.sum(0)).to(dtype), others.to(dtype))


def _distinct(
    p: StructureDistribution, n: int, patience: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Up to `n` different vertices of each example, (n, *batch, *event), in the order they came, and how many."""
    device = torch.device("cpu") if generator is None else generator.device
    vertices = torch.zeros(n, *p.scores.shape, dtype=p.scores.dtype, device=p.scores.device)
    size = torch.zeros(p.batch_shape, dtype=torch.long, device=p.scores.device)
    goes_on = torch.ones_like(size, dtype=torch.bool)
    while bool(goes_on.any()):
        drawn = p.sample((2 * n,), generator=generator)
        patient = torch.rand(2 * n, *p.batch_shape, generator=generator, device=device).to(size.device) < patience
        for z, stays in zip(drawn, patient):
            goes_on = goes_on & (stays | (size == 0))
            known = (vertices == z).flatten(-p.structure.event_dims).all(-1)
            known &= torch.arange(n, device=size.device).reshape(-1, *(1,) * size.dim()) < size
            is_new = goes_on & ~known.any(0)
            at = p.structure.widen(size.clamp_max(n - 1).unsqueeze(0)).expand(1, *z.shape)
            chosen = torch.where(p.structure.widen(is_new), z, vertices.gather(0, at)[0])
            vertices.scatter_(0, at, chosen.unsqueeze(0))
            size = size + is_new
            goes_on = goes_on & (size < n)
        found = torch.arange(n, device=size.device).reshape(-1, *(1,) * size.dim()) < size
        goes_on = goes_on & (_probabilities(p, vertices).masked_fill(~found, 0).sum(0) < 1 - 1e-9)  # or none is left
    return vertices, size


def _probabilities(p: StructureDistribution, vertices: Tensor) -> Tensor:
    return p.log_prob(vertices).double().exp()


def _ways(probabilities: Tensor, size: Tensor, patience: float) -> Tensor:
    """For each subset A of the n vertices, how likely it is that A grows to the whole set: (2ⁿ, *batch).

    ways(A) = Σ ways(A ∪ {t}) / (1 − ρ P(A)) over the vertices t that A lacks, where P(A) is the probability of A:
    repetitions of A sum to 1 / (1 − ρ P(A)).  The factors ρ p(t) are those of every order, and left out.  Subset A is
    the number with bit i for vertex i.
    """
    n = len(probabilities)
    flat = probabilities.reshape(n, -1)
    holds = (torch.arange(1 << n, device=flat.device)[:, None] >> torch.arange(n, device=flat.device)) & 1
    covered = holds.to(flat.dtype) @ flat  # (2ⁿ, examples)
    whole = (1 << size.flatten()) - 1
    ways = torch.zeros_like(covered)
    ways[whole, torch.arange(len(whole), device=flat.device)] = 1.0
    for subsets, larger in (map(torch.as_tensor, level) for level in _levels(n)):
        ways[subsets] += ways[larger].sum(1) / (1 - patience * covered[subsets])
    return ways.reshape(-1, *size.shape)


@lru_cache
def _levels(n: int) -> list[tuple[list[int], list[list[int]]]]:
    """The subsets of n things by size, from the largest proper ones to single ones, with those that hold one more."""
    levels = []
    for count in range(n - 1, 0, -1):
        subsets = [a for a in range(1 << n) if a.bit_count() == count]
        levels.append((subsets, [[a | 1 << t for t in range(n) if not a >> t & 1] for a in subsets]))
    return levels

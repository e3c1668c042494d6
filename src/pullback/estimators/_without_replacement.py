"""Samples without replacement, and what they say about an expectation."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from pullback.distributions._distribution import StructureDistribution
from pullback.structures._structure import Structure

MOST = 12  # sums over all orders of the samples take 2ⁿ numbers
_PATIENCE = 32  # draws for each vertex that is wanted, on average, before an example settles for fewer


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
    return unordered(p, *_distinct(p, n, patience, generator), patience)


def unordered(p: StructureDistribution, vertices: Tensor, size: Tensor, patience: float) -> Unordered:
    """What the first `size` of the vertices (n, *batch, *event) say once their order is forgotten."""
    n, probabilities = len(vertices), _probabilities(p, vertices, size)
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
    missing, dtype = p.structure.widen(first == 0), p.scores.dtype
    return Unordered(torch.where(missing, vertices[:1], vertices), (first / first.sum(0)).to(dtype), others.to(dtype))


def _distinct(
    p: StructureDistribution, n: int, patience: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Up to `n` different vertices of each example, (n, *batch, *event), in the order they came, and how many."""
    structure, device = p.structure, torch.device("cpu") if generator is None else generator.device
    vertices = torch.zeros(n, *p.scores.shape, dtype=p.scores.dtype, device=p.scores.device)
    size = torch.zeros(p.batch_shape, dtype=torch.long, device=p.scores.device)
    goes_on = torch.ones_like(size, dtype=torch.bool)
    count = 2 * n  # draws in a round
    while bool(goes_on.any()):
        drawn = p.sample((count,), generator=generator)
        stays = torch.rand(count, *p.batch_shape, generator=generator, device=device).to(size.device) < patience
        stays[0] |= size == 0
        stays = stays.cumprod(0).bool() & goes_on  # (draws, *batch)
        is_new = stays.clone()
        for i, z in enumerate(vertices):
            is_new &= _differs(structure, drawn, z) | (size <= i)
        for _ in range(n):
            found = is_new.any(0) & (size < n)
            if not bool(found.any()):
                break
            first = structure.widen(is_new.int().argmax(0, keepdim=True)).expand(1, *p.scores.shape)
            z = drawn.gather(0, first)
            at = structure.widen(size.clamp_max(n - 1).unsqueeze(0)).expand_as(z)
            vertices.scatter_(0, at, torch.where(structure.widen(found), z, vertices.gather(0, at)))
            size = size + found
            is_new &= _differs(structure, drawn, z[0])
        goes_on = stays[-1] & (size < n) & (_probabilities(p, vertices, size).sum(0) < 1 - 1e-9)  # or none is left
        count = min(2 * count, 16 * n)
    return vertices, size


def _differs(structure: Structure, drawn: Tensor, z: Tensor) -> Tensor:
    """Which of the vertices (draws, *batch, *event) are not the one of their example in `z`."""
    return (drawn != z).flatten(-structure.event_dims).any(-1)


def _probabilities(p: StructureDistribution, vertices: Tensor, size: Tensor) -> Tensor:
    """The probabilities of the first `size` of the vertices, and 0 for the others: (n, *batch)."""
    index = torch.arange(len(vertices), device=size.device).reshape(-1, *(1,) * size.dim())
    return p.log_prob(vertices).double().exp().masked_fill(index >= size, 0)


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

"""Independent bits."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from pullback.operators import subset as subsets
from pullback.operators._check import check
from pullback.structures._capabilities import Enumerable, KBest, LogLinear, at_least_zero
from pullback.structures._checks import check_sample_shape
from pullback.structures._items import NO_BEST_SUBSETS, are_subsets, list_subsets, mix_subsets
from pullback.structures._numbers import in_single
from pullback.structures._random import seeds
from pullback.structures._results import Mixture, Solution
from pullback.structures._structure import Structure
from pullback.structures._supports import solution_of_support


@dataclass(frozen=True, eq=False)
class Binary(LogLinear, Enumerable):
    """Independent bits: any subset of the items.

    Scores: (..., n); the polytope is the unit cube, and every operation goes bit by bit: marginals σ(s), log-partition
    Σ log(1 + eˢ), sparsemap clip(s, 0, 1).

    lengths: the number of items of each example, n if not given;  bits beyond it are padding, always zero.
    mask: (..., n), true for bits that may be one.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None

    def argmax(self, scores: Tensor) -> Tensor:
        """One where the score is positive."""
        scores = self.restrict(scores).detach()
        return (scores > 0).to(scores.dtype)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """clip(s, 0, 1), the nearest point of the unit cube."""
        return self.restrict(scores).clamp(0, 1)

    def support(self, scores: Tensor) -> Mixture:
        self._refuse_vmap("support", scores)
        return mix_subsets(self.sparsemap(scores))

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        return solution_of_support(self, scores, start)

    def log_partition(self, scores: Tensor) -> Tensor:
        """Σ log(1 + eˢ)."""
        scores = self.restrict(scores)
        return -logsigmoid(-in_single(scores)).sum(-1).to(scores.dtype)

    def marginals(self, scores: Tensor) -> Tensor:
        """σ(s)."""
        return self.restrict(scores).sigmoid()

    def entropy(self, scores: Tensor) -> Tensor:
        """Bit by bit, log(1 + e^−|s|) + |s| σ(−|s|)."""
        scores = self.restrict(scores)
        size = scores.double().abs()
        forbidden = size == torch.inf
        size = size.masked_fill(forbidden, 0)
        bits = softplus(-size) + size * (-size).sigmoid()
        return bits.masked_fill(forbidden, 0).sum(-1).to(scores.dtype)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        """−Σ [μ log μ + (1 − μ) log(1 − μ)]: the bits of largest entropy are independent.

        Its derivative grows without bound towards 0 and 1; at exactly 0 and 1 it is taken to be 0.
        """
        slack = max(1e-4, 10 * torch.finfo(point.dtype).eps)
        inside = ((point >= -slack) & (point <= 1 + slack)).all(-1)
        point = point.clamp(0, 1)
        inside = inside & self.contains(point.detach().ceil())
        check(inside, "Binary: the point of example {example} lies outside the polytope; expected numbers from 0 to 1.")
        open_bits = (point > 0) & (point < 1)
        p = torch.where(open_bits, point, 0.5)
        return at_least_zero(-(p * p.log() + (1 - p) * (1 - p).log()).masked_fill(~open_bits, 0).sum(-1))

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        sample_shape = check_sample_shape("Binary", sample_shape)
        scores = self.restrict(scores).detach()
        seeded = seeds(scores.shape[:-1], generator)
        drawn = subsets.sample_bits(scores.double().sigmoid(), seeded, sample_shape.numel())
        return drawn.movedim(-2, 0).reshape(*sample_shape, *scores.shape).to(scores.dtype)

    def why_not(self, capability: type[Structure]) -> str:
        return NO_BEST_SUBSETS if capability is KBest else super().why_not(capability)

    def vertices(self, event: Sequence[int]) -> Tensor:
        return list_subsets("Binary", event[-1], range(event[-1] + 1))

    def contains(self, vertices: Tensor) -> Tensor:
        return are_subsets(vertices, self.allowed(vertices.shape, vertices.device))

    def restrict(self, scores: Tensor) -> Tensor:
        scores = super().restrict(scores)
        check(
            (scores < torch.inf).all(-1),
            "Binary: the scores of example {example} contain NaN or +inf; expected numbers or -inf.",
        )
        return scores

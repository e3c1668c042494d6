"""Subsets of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators import subset as subsets
from pullback.operators._check import check
from pullback.structures._capabilities import Enumerable, KBest, LogLinear
from pullback.structures._checks import check_sample_shape
from pullback.structures._items import NO_BEST_SUBSETS, are_subsets, list_subsets, mix_subsets
from pullback.structures._numbers import without_mean
from pullback.structures._random import uniforms
from pullback.structures._results import Mixture, Solution
from pullback.structures._structure import Structure
from pullback.structures._supports import solution_of_support


@dataclass(frozen=True, eq=False)
class Subset(LogLinear, Enumerable):
    """Exactly `k` of the items; `Subset.at_most(k)` and `Subset.between(low, high)` bound the number instead.

    Scores: (..., n); the polytope is the part of the unit cube with low ≤ Σμ ≤ high.

    k: how many items; an integer, or a tensor of integers with one for each example.
    lengths: the number of items of each example, n if not given;  items beyond it are padding, never chosen.
    mask: (..., n), true for items that may be chosen.
    low: the least number of items, where it differs from `k`, the largest.

    Argmax by selection and sparsemap by a search for one multiplier, both O(n).  Log-partition and marginals by dynamic
    programming in O(n · min(high, n − low)), exact at any scale of the scores.
    """

    k: int | Tensor
    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    low: int | Tensor | None = None

    @classmethod
    def at_most(cls, k: int | Tensor, lengths: Tensor | None = None, mask: Tensor | None = None) -> Subset:
        """Any number of items up to `k`."""
        _check_counts("Subset.at_most", k=k)
        return cls(k, lengths, mask, low=0)

    @classmethod
    def between(
        cls, low: int | Tensor, high: int | Tensor, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Subset:
        """At least `low` and at most `high` items; `high` may be more than there are."""
        _check_counts("Subset.between", low=low, high=high)
        return cls(high, lengths, mask, low=low)

    def __post_init__(self) -> None:
        if self.low is None:
            _check_counts("Subset", k=self.k)
        else:
            _check_counts("Subset", low=self.low, k=self.k)

    # ---- inference

    def argmax(self, scores: Tensor) -> Tensor:
        """The best items: as many as must be, then further ones while their score is positive, up to `k`."""
        scores, low, high = self._with_counts(scores)
        return subsets.argmax(scores.detach(), low, high)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """clip(s − τ, 0, 1), with τ = 0 unless that violates a count."""
        return subsets.project(*self._with_counts(scores))

    def support(self, scores: Tensor) -> Mixture:
        self._refuse_vmap("support", scores)
        scores, low, high = self._with_counts(scores)
        point = subsets.project(scores.double(), low, high)  # its sum has to be an integer where a count is met
        found = mix_subsets(point)
        return Mixture(found.vertices.to(scores.dtype), found.probabilities.to(scores.dtype), found.size)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        return solution_of_support(self, scores, start)

    def log_partition(self, scores: Tensor) -> Tensor:
        return subsets.partition(*self._with_counts(scores))[0]

    def marginals(self, scores: Tensor) -> Tensor:
        return subsets.partition(*self._with_counts(scores))[1]

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        sample_shape = check_sample_shape("Subset", sample_shape)
        scores, low, high = self._with_counts(scores)
        scores = scores.detach()
        shape = (*scores.shape[:-1], sample_shape.numel(), scores.shape[-1])
        drawn = subsets.sample(scores, low, high, uniforms(shape, generator, scores.device))
        return drawn.movedim(-2, 0).reshape(*sample_shape, *scores.shape)

    # ---- what a subset is

    def why_not(self, capability: type[Structure]) -> str:
        return NO_BEST_SUBSETS if capability is KBest else super().why_not(capability)

    def vertices(self, event: Sequence[int]) -> Tensor:
        n = event[-1]
        low, high = torch.as_tensor(self._least()), torch.as_tensor(self.k)
        sizes = [size for size in range(n + 1) if ((low <= size) & (size <= high)).any()]
        return list_subsets("Subset", n, sizes)

    def contains(self, vertices: Tensor) -> Tensor:
        low, high = (self._per_example(count, vertices) for count in (self._least(), self.k))
        size = vertices.sum(-1)
        inside = are_subsets(vertices, self.allowed(vertices.shape, vertices.device))
        return inside & (low <= size) & (size <= high)

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        allowed = super().allowed(shape, device)
        if isinstance(self.k, int) and self.k > 0:
            return allowed
        some = torch.as_tensor(self.k, device=device).unsqueeze(-1) > 0  # where nothing may be chosen, nothing is read
        return some if allowed is None else allowed & some

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        seen = super().visible(gradient, usable)
        exact = torch.as_tensor(self._least() == self.k, device=gradient.device).unsqueeze(-1)
        usable = self.allowed(gradient.shape, gradient.device) if usable is None else usable
        return torch.where(exact, without_mean(seen, usable, (-1,)), seen)

    # ---- plumbing

    def _least(self) -> int | Tensor:
        return self.k if self.low is None else self.low

    def _with_counts(self, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores as the kernels read them, and two counts for each example."""
        scores = self._checked(scores)
        least, n = self._least(), scores.shape[-1]
        if isinstance(least, int) and least > n:
            raise ValueError(
                f"Subset: the count is {least}; expected at most the number of items, {n}.  "
                "`Subset.at_most` takes any number up to k."
            )
        counts = self._per_example(least, scores), self._per_example(self.k, scores)
        return self.restrict(scores), *counts

    def _per_example(self, count: int | Tensor, scores: Tensor) -> Tensor:
        batch = scores.shape[:-1]
        if not isinstance(count, Tensor):
            return torch.full(batch, count, dtype=torch.int64, device=scores.device)
        try:
            return count.to(scores.device, torch.int64).expand(batch)
        except RuntimeError as error:
            name = "low" if count is self.low else "k"
            raise ValueError(
                f"Subset: {name} has shape {tuple(count.shape)}; expected the batch shape {tuple(batch)}."
            ) from error


def _check_counts(who: str, **counts: int | Tensor) -> None:
    """One count or two, by the names the user knows: integers, or tensors of integers of one batch, in order."""
    for name, count in counts.items():
        if isinstance(count, Tensor):
            if count.is_floating_point() or count.is_complex() or count.dtype == torch.bool:
                raise TypeError(f"{who}: {name} has dtype {count.dtype}; expected integers.")
        elif not isinstance(count, int) or isinstance(count, bool):
            raise TypeError(f"{who}: {name} is {count!r}; expected an integer or a tensor of integers.")
    names, given = list(counts), list(counts.values())
    low, high = given[0], given[-1]
    expected = f"expected 0 ≤ {' ≤ '.join(names)}"
    if isinstance(low, int) and isinstance(high, int):
        if not 0 <= low <= high:
            told = " and ".join(f"{name} is {count}" for name, count in counts.items())
            raise ValueError(f"{who}: {told}; {expected}.")
        return
    shapes = [tuple(torch.as_tensor(count).shape) for count in (low, high)]
    if any(1 != a != b != 1 for a, b in zip(*map(reversed, shapes))):
        raise ValueError(
            f"{who}: {names[0]} has shape {shapes[0]} and {names[-1]} {shapes[1]}; expected those of one batch."
        )
    ordered = torch.as_tensor(low >= 0) & torch.as_tensor(low <= high)
    check(ordered, f"{who}: the counts of example {{example}} are not in order; {expected}.")

"""Matchings of two sets."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators import matching
from pullback.operators._family import Choices
from pullback.structures._capabilities import LogLinear, Transport
from pullback.structures._checks import check_flag, check_parts, check_tolerance
from pullback.structures._compiled import Slotted
from pullback.structures._limits import check_list
from pullback.structures._numbers import without_mean
from pullback.structures._one_hot import chosen_index, one_hot
from pullback.structures._results import TransportPlan
from pullback.structures._structure import Structure

_NO_SUMS = (
    "a sum over all matchings is a permanent, which takes exponential time (it is #P-hard).  `sparsemap` gives a "
    "differentiable point, `Sinkhorn()` regularizes by the entropy of the pairs instead of that of the matchings, and "
    "`perturbed` and `imle` average over noise on the scores."
)


@dataclass(frozen=True, eq=False)
class Matching(Slotted, Transport):
    """Matchings of n rows with m columns, each with at most one partner: assignments, permutations where n = m.

    Scores: (..., n, m), scores[..., i, j] of row i with column j.  Everybody on the smaller side has a partner.

        scores              argmax              row 0 with column 1, row 1 with column 0;
        [[1, 5, 2],         [[0, 1, 0],         column 2 stays alone
         [4, 4, 0]]          [1, 0, 0]]

    lengths: (..., 2), how many rows and columns each example has, n and m if not given;  the rest is padding.
    mask: (..., n, m), true for pairs that are allowed.
    optional: anybody may stay alone, at a score of 0.
    tolerance: the largest gap that `solve` and `support` may stop at, see `Structure.tolerance`; None is exact.

    There are n! matchings where n = m.  Argmax: shortest augmenting paths, O(n² m) for n ≤ m; the k best by Murty's
    algorithm.  SparseMAP: Newton's method on the prices of rows and columns.  There is no partition function, see
    `Sinkhorn`.  Reference: Jonker and Volgenant (1987); Murty (1968).
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    optional: bool = False
    tolerance: float | None = None
    event_dims = 2
    length_axes = 2

    def __post_init__(self) -> None:
        check_flag("Matching", "optional", self.optional)
        check_tolerance("Matching", self.tolerance)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return matching.sparsemap(*self._prepare(scores), self.optional)[0]

    def transport(
        self,
        scores: Tensor,
        start: tuple[Tensor, Tensor] | None = None,
        *,
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
    ) -> TransportPlan:
        scores, lengths = self._prepare(scores)
        batch, (n, m) = self._split(scores.shape)
        if start is None:
            begin = [scores.new_empty((*batch, 0), dtype=torch.float64)] * 2
        else:
            for name, given, size in zip(("rows", "columns"), start, (n, m)):
                if given.shape != (*batch, size):
                    expected = (*batch, size)
                    raise ValueError(
                        f"Matching: start has prices of {name} of shape {tuple(given.shape)}; expected {expected}."
                    )
            begin = [given.detach().double() for given in start]
        point, *how = matching.transport(scores, lengths, self.optional, *begin, tolerance, max_iterations)
        return TransportPlan(point, *(tensor.detach() for tensor in how))

    def why_not(self, capability: type[Structure]) -> str:
        return _NO_SUMS if capability is LogLinear else super().why_not(capability)

    # ---- what a matching is

    @property
    def _operators(self) -> Choices:
        return matching.matchings

    @property
    def _options(self) -> tuple[bool]:
        return (self.optional,)

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        """Of a perfect matching, the rows if there are no more of them than columns, and the columns if no more of
        them than rows, have sums of 1.
        """
        usable = self.allowed(gradient.shape, gradient.device) if usable is None else usable
        seen = super().visible(gradient, usable)
        if self.optional:
            return seen
        sizes = gradient.new_tensor(gradient.shape[-2:]) if self.lengths is None else self.lengths.to(gradient.device)
        rows, columns = sizes.unsqueeze(-1).unsqueeze(-1).unbind(-3)
        seen = torch.where(rows <= columns, without_mean(seen, usable, (-1,)), seen)
        return torch.where(columns <= rows, without_mean(seen, usable, (-2,)), seen)

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[0])[:, None].expand(*event)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        rows, columns = length
        few = min(rows, columns)
        sizes = range(few + 1) if self.optional else (few,)
        count = sum(math.comb(rows, k) * math.perm(columns, k) for k in sizes)
        check_list("Matching", count, event[0] * event[1])
        every = []
        for k in sizes:
            chosen = torch.tensor(list(itertools.combinations(range(rows), k)), dtype=torch.long).unsqueeze(1)
            partners = torch.tensor(list(itertools.permutations(range(columns), k)), dtype=torch.long)
            pairs = (chosen * event[1] + partners).flatten(0, 1)  # (vertices, k)
            every.append(torch.zeros(len(pairs), event[0] * event[1]).scatter(1, pairs, 1.0))
        return torch.cat(every).reshape(-1, *event)

    # ---- partners

    @staticmethod
    def partners(pairs: Tensor) -> Tensor:
        """The column (..., n) of each row in matchings given as pairs (..., n, m); −1 for rows that are alone."""
        check_parts("Matching.partners", "pairs", pairs, "n, m")
        return chosen_index(pairs)

    @staticmethod
    def pairs(partners: Tensor, m: int) -> Tensor:
        """The pairs (..., n, m) of matchings given as the column (..., n) of each row out of m; −1 is alone."""
        return one_hot("Matching.pairs", "partners", partners, m)

"""Linear chains: sequences of tags whose neighbors score together."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators import chain
from pullback.operators._family import Family
from pullback.structures._capabilities import relative_to_best
from pullback.structures._checks import check_parts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._one_hot import chosen_index, one_hot
from pullback.structures._sequences import list_padded_sequences


@dataclass(frozen=True, eq=False)
class Chain(CompiledLattice):
    """Sequences of n tags out of t, scored by pairs of neighbors: linear-chain CRFs.

    Scores: (..., n, t, t); scores[..., i, a, b] is that of tag a at position i − 1 and tag b at i.  Of position 0 only
    the row a = 0 is read, scores[..., 0, 0, b]; its other rows are exactly zero in every output and gradient.

    lengths: the number of tags of each example, n if not given;  positions beyond it are padding.
    mask: (..., n, t, t), true for pairs of tags that are allowed.
    tolerance: the largest gap that `solve` and `support` may stop at, see `Structure.tolerance`; None is exact.

    There are tⁿ sequences.  Argmax (Viterbi), log-partition and marginals (forward–backward) take O(n t²).  SparseMAP
    is found by the active-set method, and where many sequences would mix, as a flow through the lattice of tags, by
    Newton's method on its dual.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    tolerance: float | None = None
    event_dims = 3
    fixed_sums = (-2, -1)

    def __post_init__(self) -> None:
        check_tolerance("Chain", self.tolerance)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return chain.sparsemap(*self._prepare(scores))

    @property
    def _operators(self) -> Family:
        return chain.sequences

    def check_event(self, event: torch.Size) -> None:
        if event[1] != event[2]:
            raise ValueError(f"Chain: scores have parts of shape {tuple(event)}; expected (..., n, t, t).")

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        positions, tags = (torch.arange(size, device=device) for size in shape[-3:-1])
        pairs = (positions[:, None, None] > 0) | (tags[:, None] == 0)
        inside = super().allowed(shape, device)
        return pairs if inside is None else pairs & inside

    def _without_offset(self, scores: Tensor) -> Tensor:
        return relative_to_best(scores, (-2, -1))

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[0])[:, None, None].expand(*event)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        return self.pairs(list_padded_sequences("Chain", length[0], event[1], event[0]), event[1])

    # ---- tags

    @staticmethod
    def tags(pairs: Tensor) -> Tensor:
        """The tags (..., n) of sequences given as pairs of tags (..., n, t, t); −1 for padding."""
        check_parts("Chain.tags", "pairs", pairs, "n, t, t")
        return chosen_index(pairs.sum(-2))

    @staticmethod
    def pairs(tags: Tensor, t: int) -> Tensor:
        """The pairs of tags (..., n, t, t) of sequences given as tags (..., n) out of t; −1 is padding."""
        one = one_hot("Chain.pairs", "tags", tags, t)
        before = torch.nn.functional.pad(one[..., :-1, :], (0, 0, 1, 0))
        before[..., 0, 0] = 1  # position 0 has no tag before it, and reads row 0
        return before.unsqueeze(-1) * one.unsqueeze(-2)

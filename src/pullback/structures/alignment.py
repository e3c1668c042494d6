"""Monotone alignments of two sequences."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from pullback.operators import alignment as operators
from pullback.operators._family import Family
from pullback.structures._checks import check_parts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._listed import Index, are_indices, as_lists, list_parts, write_parts
from pullback.structures._paths import list_paths

_KINDS = {
    "global": operators.GLOBAL,
    "local": operators.LOCAL,
    "dtw": operators.GLOBAL,
    "monotonic": operators.MONOTONIC,
}


@dataclass(frozen=True, eq=False)
class Alignment(CompiledLattice):
    """Monotone alignments of two sequences, n rows and m columns: paths through the cells of an n × m table.

    A path enters the next cell by one of three moves:

            ·     ·                     0  match    from (i − 1, j − 1): i and j go together
              0 ↘ ↓ 1                   1  down     from (i − 1, j): row i has no partner of its own
            · ——→ (i, j)                2  right    from (i, j − 1): column j has none
               2

    kind:
      "global"     from cell (0, 0), entered by a match, to (n − 1, m − 1).  Scores (..., n, m, 3), [i, j, move]: a part
                   is a move into a cell.  Where gaps may come first (Needleman and Wunsch), put a start symbol in front
                   of both sequences: then there are as many alignments as Delannoy numbers say.
      "local"      from a match in any cell to any cell, at least one match (Smith and Waterman).  Scores as above.
      "dtw"        the moves of "global", but each cell on the path counts once, however it is entered: dynamic time
                   warping.  Scores (..., n, m), [i, j].  The log-partition of −costs / γ, times −γ, is soft-DTW.
      "monotonic"  every column belongs to one row, rows in order, none left out; the monotonic alignment search of
                   speech synthesis, with texts as rows and frames as columns.  Scores (..., n, m), [i, j].  There are
                   as many as ways to choose n − 1 of m − 1.

    lengths: (..., 2), the rows and columns of each example, n and m if not given;  cells beyond them are padding.
    mask: shaped like the scores, true for parts that are allowed.
    tolerance: the largest gap that `solve` and `support`, of kinds other than "global" SparseMAP too, may stop at, see
    `Structure.tolerance`; None is exact.

    Argmax, log-partition, marginals and a sample take O(n m).  SparseMAP of global alignments is a projection onto
    flows, by Newton's method on its dual; others take the active-set method, and where scores are so flat that hundreds
    of alignments would mix, an interior-point method, whose time hardly depends on the scores.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    kind: Literal["global", "local", "dtw", "monotonic"] = "global"
    tolerance: float | None = None
    length_axes = 2

    def __post_init__(self) -> None:
        check_tolerance("Alignment", self.tolerance)
        if self.kind not in _KINDS:
            raise ValueError(f"Alignment: the kind is {self.kind!r}; expected one of {', '.join(map(repr, _KINDS))}.")

    @property
    def event_dims(self) -> int:  # type: ignore[override]
        return 3 if self.kind in ("global", "local") else 2

    def sparsemap(self, scores: Tensor) -> Tensor:
        if self.kind == "global":
            return operators.global_sparsemap(*self._prepare(scores))
        return super().sparsemap(scores)

    def max_marginals(self, scores: Tensor) -> Tensor:
        best = super().max_marginals(scores)
        exists = replace(self, mask=None).allowed(scores.shape, scores.device)
        return best if exists is None else best.masked_fill(~exists, 0)  # the lattice has cells beyond the lengths

    @property
    def _operators(self) -> Family:
        return operators.alignments if self.event_dims == 3 else operators.cell_alignments

    @property
    def _options(self) -> tuple[Any, ...]:
        return (_KINDS[self.kind],)

    def check_event(self, event: torch.Size) -> None:
        if self.event_dims == 3 and event[2] != 3:
            raise ValueError(f"Alignment: scores have parts of shape {tuple(event)}; expected (..., n, m, 3).")

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        inside = super().allowed(shape, device)
        if self.kind == "dtw":
            return inside
        event = self._split(shape)[1]
        i, j = torch.arange(event[0], device=device)[:, None], torch.arange(event[1], device=device)
        if self.kind == "monotonic":
            lengths = torch.tensor(event, device=device) if self.lengths is None else self.lengths.to(device)
            rows, columns = lengths[..., 0, None, None], lengths[..., 1, None, None]
            exists = (i <= j) & (rows - 1 - i <= columns - 1 - j)
        else:
            match = (i > 0) & (j > 0) | (i == 0) & (j == 0) | (self.kind == "local")
            exists = torch.stack([match, (i > 0) & (j >= 0), (i >= 0) & (j > 0)], -1)
        return exists if inside is None else exists & inside

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores with −∞ beyond the lengths: there are cells there that a path could enter."""
        if self.lengths is None and self.kind != "monotonic":
            return super()._prepare(scores)
        scores = self.restrict(scores)
        return scores, self._lengths_of(scores)

    @property
    def fixed_sums(self) -> tuple[int, ...]:  # type: ignore[override]
        return (-2,) if self.kind == "monotonic" else ()  # there every column has one row

    def _slots(self, event: Sequence[int]) -> Tensor:
        cells = torch.arange(event[0] * event[1]).reshape(event[0], event[1])
        return cells if self.event_dims == 2 else cells.unsqueeze(-1).expand(*event)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        graph, end = operators.graph_of(event, length, _KINDS[self.kind])
        listed = list_paths("Alignment", graph, end, torch.Size(event).numel()) if end >= 0 else graph.new_zeros(0)
        return listed.reshape(-1, *event).to(torch.get_default_dtype())

    # ---- cells

    def cells(self, vertex: Tensor) -> list[Any]:
        """The cells of an alignment in order: (i, j, move), or (i, j) where each cell counts once; lists for a batch.

        vertex: (n, m, 3) or (n, m), as the kind has it.
        """
        check_parts("Alignment.cells", "vertex", vertex, "n, m, 3" if self.event_dims == 3 else "n, m")
        self.check_event(self._split(vertex.shape)[1])
        return list_parts(vertex, self.event_dims, lambda one: [tuple(cell) for cell in one.nonzero().tolist()])

    def vertex(self, cells: Sequence[Any] | Tensor, n: int, m: int) -> Tensor:
        """The alignment (n, m, 3) or (n, m) that has these cells, as `cells` gives them; a batch from lists of them.

        Cells that are no alignment, of these lengths under this mask, are refused; without any the row is zero.
        """
        event = (n, m, 3)[: self.event_dims]

        def index_of(cell: Sequence[Any]) -> Index:
            if not are_indices(cell, event):
                form = "(i, j, move)" if self.event_dims == 3 else "(i, j)"
                raise ValueError(f"Alignment.vertex: a cell is {cell}; expected {form} below {event}.")
            return tuple(cell)

        cells = as_lists(cells)
        vertex = write_parts("Alignment.vertex", cells, event, index_of)
        wrong = ~self.contains(vertex) & (vertex == 1).flatten(-self.event_dims).any(-1)
        if wrong.any():
            for i in wrong.nonzero()[0].tolist():
                cells = cells[i]
            raise ValueError(
                f"Alignment.vertex: the cells are {cells}; expected all cells of one alignment of kind {self.kind!r}, "
                "from its first to its last."
            )
        return vertex

"""The operators of alignments: scores (*batch, n, m, 3) of moves or (*batch, n, m) of cells, lengths (*batch, 2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._family import Family, family
from pullback.operators._flat import GAP_OF_INTERIOR, Flat
from pullback.operators._kernel_operator import EXAMPLES
from pullback.operators._paths import Array, PathKernels, flat, holds_bad_scores

GLOBAL, LOCAL, MONOTONIC = 0, 1, 2


def _align(scores: Array, lengths: Array, kind: int, by_columns: bool = False) -> tuple[Array, Array]:
    """The graph of alignments whose parts are moves, or cells if scores have no third dimension; where they end."""
    n, m = scores.shape[1:3]
    lattice: Any = kernels.paths.alignments
    rows, columns = lengths[:, 0], lengths[:, 1]
    last = (columns - 1) * n + rows if by_columns else (rows - 1) * m + columns
    ends = np.where(kind == LOCAL, n * m + 1, last)
    ends = np.where((rows > 0) & (columns > 0), ends, np.where((rows == 0) & (columns == 0), 0, -1))
    return lattice(n, m, kind, scores.ndim == 3, by_columns), ends


def _align_narrowly(scores: Array, lengths: Array, numbers: Sequence[Any]) -> tuple[Array, Array]:
    """The graphs, with nodes in the order that makes the systems of the interior narrow."""
    (kind,) = numbers
    return _align(scores, lengths, kind, by_columns=scores.shape[2] > scores.shape[1])


def graph_of(event: Sequence[int], length: Sequence[int], kind: int) -> tuple[Tensor, int]:
    """The graph of alignments with parts of this shape, and the node where those of this length end."""
    graphs, ends = _align(np.empty((1, *event)), np.array([length]), kind)
    return torch.from_numpy(graphs[0]), int(ends[0])


def _refusal(example: str, scores: Array, lengths: Array, kind: int, *_: Any) -> str:
    if holds_bad_scores(scores[: lengths[0], : lengths[1]]):
        return f"Alignment: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    rows, columns = lengths
    if kind == MONOTONIC and rows > columns:
        return (
            f"Alignment: {example} has {rows} rows and {columns} columns; expected at least as many columns as rows, "
            "since a monotonic alignment gives every row a column of its own."
        )
    return (
        f"Alignment: {example}, of lengths {rows} and {columns}, has no alignment whose scores are all above -inf "
        "within its mask."
    )


def _refuse_global(example: str, scores: Array, lengths: Array, *_: Any) -> str:
    return _refusal(example, scores, lengths, GLOBAL)


# ---- SparseMAP of flat scores


@dataclass(frozen=True, kw_only=True)
class AlignmentInterior(Flat):
    """Flat scores of paths whose edges share parts, by an interior-point method."""

    def extent(self, lengths: Array, numbers: Sequence[Any]) -> Array:
        """The width of the systems, to the power that the measured time calls for: that of the shorter side.

        A row of a monotonic alignment can have no more columns than there are beyond one for every row.
        """
        width: Array = lengths.min(-1)
        if numbers[0] == MONOTONIC:
            width = np.minimum(width, lengths[:, 1] - lengths[:, 0] + 1)
        return width**1.5

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        nearest, gap = np.zeros(scores.shape), np.full(len(scores), np.inf)
        wide = np.ascontiguousarray(scores, np.float64)
        graphs = _align_narrowly(wide, lengths, numbers)
        kernels.paths.approach(
            flat(wide), *graphs, scores[0].size, GAP_OF_INTERIOR, flat(nearest), flat(rest), gap, 0, len(scores)
        )
        point[:] = nearest
        solved: Array = gap < np.inf
        return solved

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        product, wide = np.zeros(rest.shape), np.ascontiguousarray(gradient, np.float64)
        graphs = _align_narrowly(rest, lengths, numbers)
        kernels.paths.approach_backward(flat(rest), *graphs, rest[0].size, flat(wide), flat(product), 0, len(rest))
        return (product,)


# ---- the operators

_MOVES, _CELLS = "n, m, 3", "n, m"
_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "Alignment"}


def _inputs(parts: str) -> str:
    return f"scores[{parts}], lengths[2] <= (n, m)"


def _family(name: str, parts: str, *, work: float, used: float) -> Family:
    """The operators of alignments with such parts.

    work: nanoseconds for each number of the scores.  used: how many parts are in use where scores are flat, see `Flat`.
    """
    return family(
        name,
        f"{_inputs(parts)}, int kind",
        parts,
        PathKernels(_align),
        slots="n * m",
        capacity="8 * (n + m)",
        flat=AlignmentInterior(least=8, parts=used, rounds=100),
        is_lattice=True,
        work=lambda scores, *_: work * scores[0].size,
        **_OPTIONS,
    )


alignments = _family("alignment", _MOVES, work=15.0, used=4.5)
cell_alignments = _family("cell_alignment", _CELLS, work=45.0, used=3.0)

_GLOBAL = PathKernels(lambda scores, lengths: _align(scores, lengths, GLOBAL))
global_sparsemap = projection_operator(
    f"global_alignment_sparsemap({_inputs(_MOVES)}) -> point[{_MOVES}]",
    _GLOBAL.project,
    jacobian=_GLOBAL.project_backward,
    keeps="lengths point",
    work=lambda scores, *_: 300.0 * scores[0].size,
    **{**_OPTIONS, "refusal": _refuse_global},
)


# ---- examples


def _with_a_slot_for_each_cell(example: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    def with_start() -> tuple[Any, ...]:
        scores, lengths, kind, _, *rest = example()
        return scores, lengths, kind, torch.full((2, 1, 16), -1, dtype=torch.int32), *rest

    return with_start


for _name in ("alignment_mixture", "cell_alignment_mixture"):
    EXAMPLES[_name] = _with_a_slot_for_each_cell(EXAMPLES[_name])

"""The operators of paths, segmentations and alignments: one folder of kernels, each structure with graphs of its own.

`kernels/paths/graph.py` says what a graph is.  A path's is given with each example; those of segmentations and
alignments follow from the sizes of their scores, and an example's length says at which node its paths end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.operators._family import family
from pullback.operators._flat import GAP_OF_INTERIOR, Flat
from pullback.operators._kernel_operator import EXAMPLES, kernel_operator, projection_operator

Array = NDArray[Any]


class _Paths:
    """The kernels of paths for a structure: read(scores, lengths, its numbers) gives its graphs and their sinks."""

    def __init__(self, read: Callable[..., tuple[Array, Array]]) -> None:
        self.read = read

    def argmax(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, vertex, lo, hi = rest
        return kernels.paths.argmax(_flat(scores), *self.read(scores, lengths, *numbers), _flat(vertex), lo, hi)

    def max_marginals(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, best, lo, hi = rest
        return kernels.paths.max_marginals(_flat(scores), *self.read(scores, lengths, *numbers), _flat(best), lo, hi)

    def topk(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, k, vertices, size, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.topk(_flat(scores), *graphs, k, _flat(vertices, 2), size, lo, hi)

    def log_partition(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, value, lo, hi = rest
        return kernels.paths.log_partition(_flat(scores), *self.read(scores, lengths, *numbers), value, lo, hi)

    def partition(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, value, marginals, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.partition(_flat(scores), *graphs, value, _flat(marginals), lo, hi)

    def hessian_product(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, direction, product, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.hessian_product(_flat(scores), *graphs, _flat(direction), _flat(product), lo, hi)

    def sample(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, seeds, count, drawn, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.sample(_flat(scores), *graphs, seeds, count, _flat(drawn, 2), lo, hi)

    def mixture(self, scores: Array, lengths: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        start, tolerance, max_iterations, point, *found = rest
        graphs, sinks = self.read(scores, lengths, *numbers)
        slots = sinks.max(initial=0) - (graphs[0, 2, graphs[0, 0, -1] - 1] < 0)  # the last edge may have no part
        if start.shape[-1] < slots:
            raise ValueError(f"the start has {start.shape[-1]} slots; expected {slots}, one for each node.")
        limits = (tolerance, max_iterations)
        return kernels.paths.mixture(_flat(scores), graphs, sinks, start, *limits, _flat(point), *found)

    def mixture_backward(self, scores: Array, lengths: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        vertices, size, gradient, product, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        flat = _flat(gradient), _flat(product)
        return kernels.paths.mixture_backward(_flat(scores), *graphs, vertices, size, *flat, lo, hi)

    def project(self, scores: Array, lengths: Array, point: Array, lo: int, hi: int) -> int:
        return kernels.paths.project(_flat(scores), *self.read(scores, lengths), _flat(point), lo, hi)

    def project_backward(self, lengths: Array, point: Array, *rest: Any) -> int:
        gradient, product, lo, hi = rest
        flat = _flat(point), _flat(gradient), _flat(product)
        return kernels.paths.project_backward(*self.read(point, lengths), *flat, lo, hi)


@dataclass(frozen=True, kw_only=True)
class _Inwards(Flat):
    """Flat scores of paths whose edges share parts, by an interior-point method."""

    paths: _Paths

    def extent(self, lengths: Array, numbers: Sequence[Any]) -> Array:
        """The width of the systems, to the power that the measured time calls for: that of the shorter side.

        A row of a monotonic alignment can have no more columns than there are beyond one for every row.
        """
        width: Array = lengths.min(-1)
        if numbers[0] == MONOTONIC:
            width = np.minimum(width, lengths[:, 1] - lengths[:, 0] + 1)
        return width**1.5

    def _read(self, scores: Array, lengths: Array, numbers: Sequence[Any]) -> tuple[Array, Array]:
        """The graphs, with nodes in the order that makes the systems narrow."""
        return self.paths.read(scores, lengths, *numbers, scores.shape[2] > scores.shape[1])

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        nearest, gap = np.zeros(scores.shape), np.full(len(scores), np.inf)
        wide = np.ascontiguousarray(scores, np.float64)
        graphs = self._read(wide, lengths, numbers)
        kernels.paths.approach(
            _flat(wide), *graphs, scores[0].size, GAP_OF_INTERIOR, _flat(nearest), _flat(rest), gap, 0, len(scores)
        )
        point[:] = nearest
        solved: Array = gap < np.inf
        return solved

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        product, wide = np.zeros(rest.shape), np.ascontiguousarray(gradient, np.float64)
        graphs = self._read(rest, lengths, numbers)
        kernels.paths.approach_backward(_flat(rest), *graphs, rest[0].size, _flat(wide), _flat(product), 0, len(rest))
        return (product,)


def _flat(array: Array, dims: int = 1) -> Array:
    """The array with all dimensions behind the first `dims` in one."""
    return array.reshape(*array.shape[:dims], -1)


def _holds_bad_scores(scores: Array) -> bool:
    return bool(np.isnan(scores).any() or (scores == np.inf).any())


# ---- paths through any DAG


def _number(edges: Array, source: Array, sink: Array, graph: Array, used: Array, lo: int, hi: int) -> int:
    bad = (source < 0) | (sink < 0) | _are_no_edges(edges).any(-1)
    if bad[lo:hi].any():
        return lo + int(bad[lo:hi].argmax())
    names = np.unique(np.concatenate([edges.ravel(), source, sink]))
    dense = np.searchsorted(names, edges)
    dense[(edges < 0).any(-1)] = -1
    ends = (np.searchsorted(names, node) for node in (source, sink))
    return kernels.paths.number(dense, *ends, len(names), graph, used, lo, hi)


def _are_no_edges(edges: Array) -> Array:
    """Which pairs are neither two nodes nor (−1, −1), the sign of an edge that does not exist."""
    pairs: Array = (edges < 0).any(-1) & (edges != -1).any(-1)
    return pairs


def _cycle(edges: Array) -> list[int]:
    """The nodes of one cycle, the first of them once more at the end; empty if there is none."""
    left = edges[(edges >= 0).all(-1)]
    while True:
        inside = np.isin(left[:, 0], left[:, 1])  # a tail that no edge leads to is on no cycle
        if inside.all():
            break
        left = left[inside]
    if len(left) == 0:
        return []
    before = {int(head): int(tail) for tail, head in left}
    walk = [int(left[0, 0])]
    while walk[-1] not in walk[:-1]:
        walk.append(before[walk[-1]])
    return walk[walk.index(walk[-1]) :][::-1]  # it went from heads to tails


def _refuse_edges(example: str, edges: Array, source: Any, sink: Any, *_: Any) -> str:
    for name, node in (("source", source), ("sink", sink)):
        if node < 0:
            return f"Path: the {name} of {example} is {node}; expected a node, an integer ≥ 0."
    bad = np.flatnonzero(_are_no_edges(edges))
    if len(bad):
        tail, head = edges[bad[0]]
        return (
            f"Path: edge {bad[0]} of {example} is ({tail}, {head}); expected two nodes, integers ≥ 0, or (-1, -1) for "
            "an edge that does not exist."
        )
    cycle = _cycle(edges)
    if cycle:
        around = " → ".join(map(str, cycle))
        return f"Path: the edges of {example} have a cycle, {around}; expected a directed acyclic graph."
    return f"Path: the edges of {example} have no path from the source, {source}, to the sink, {sink}."


path_graph = kernel_operator(
    "path_graph(edges[m, 2], source[], sink[]) -> graph[3, m + 2]: int64, used[m]: bool",
    _number,
    refusal=_refuse_edges,
    moves=0,
)
"""The edges (*batch, m, 2) of DAGs as a graph that kernels read, and which of them are on a path."""


def _refuse_path(example: str, scores: Array, graph: Array, *_: Any) -> str:
    if _holds_bad_scores(scores[graph[2][graph[2] >= 0]]):
        return f"Path: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Path: {example} has no path whose scores are all above -inf within its mask."


_PATH = _Paths(lambda scores, graph: (graph, np.ascontiguousarray(graph[:, 1, -1])))
_PATH_INPUTS = "scores[m], graph[3, m + 2]"
_PATH_OPTIONS: dict[str, Any] = {
    "work": lambda scores, *_: 10.0 * scores.shape[-1],
    "refusal": _refuse_path,
    "structure": "Path",
}

paths = family("path", _PATH_INPUTS, "m", _PATH, is_lattice=True, **_PATH_OPTIONS)
path_sparsemap = projection_operator(
    f"path_sparsemap({_PATH_INPUTS}) -> point[m]",
    _PATH.project,
    jacobian=_PATH.project_backward,
    keeps="graph point",
    **{**_PATH_OPTIONS, "work": lambda scores, *_: 300.0 * scores.shape[-1]},
)


# ---- segmentations


def _segment(scores: Array, lengths: Array) -> tuple[Array, Array]:
    lattice: Any = kernels.paths.segmentations
    return lattice(*scores.shape[1:]), lengths


def segmentation_graph(event: Sequence[int]) -> Tensor:
    """The graph of segmentations with parts of this shape, in which node i stands before position i."""
    lattice: Any = kernels.paths.segmentations
    return torch.from_numpy(lattice(*event)[0])


def _refuse_segmentation(example: str, scores: Array, lengths: Any, *_: Any) -> str:
    n, w, _ = scores.shape
    ends = np.add.outer(np.arange(n), np.arange(w)) < lengths
    if _holds_bad_scores(scores[ends]):
        return f"Segmentation: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Segmentation: {example} has no segmentation whose scores are all above -inf within its mask."


_SEGMENTS = _Paths(_segment)
_SEGMENT_INPUTS = "scores[n, w, t], lengths[] <= n"
_SEGMENT_OPTIONS: dict[str, Any] = {
    "work": lambda scores, *_: 5.0 * scores[0].size,
    "refusal": _refuse_segmentation,
    "structure": "Segmentation",
}

segmentations = family("segmentation", _SEGMENT_INPUTS, "n, w, t", _SEGMENTS, is_lattice=True, **_SEGMENT_OPTIONS)
segmentation_sparsemap = projection_operator(
    f"segmentation_sparsemap({_SEGMENT_INPUTS}) -> point[n, w, t]",
    _SEGMENTS.project,
    jacobian=_SEGMENTS.project_backward,
    keeps="lengths point",
    **{**_SEGMENT_OPTIONS, "work": lambda scores, *_: 100.0 * scores[0].size},
)


# ---- alignments

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


def alignment_graph(event: Sequence[int], length: Sequence[int], kind: int) -> tuple[Tensor, int]:
    """The graph of alignments with parts of this shape, and the node where those of this length end."""
    graphs, ends = _align(np.empty((1, *event)), np.array([length]), kind)
    return torch.from_numpy(graphs[0]), int(ends[0])


def _refuse_alignment(example: str, scores: Array, lengths: Array, kind: int, *_: Any) -> str:
    if _holds_bad_scores(scores[: lengths[0], : lengths[1]]):
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


def _refuse_global_alignment(example: str, scores: Array, lengths: Array, *_: Any) -> str:
    return _refuse_alignment(example, scores, lengths, GLOBAL)


_ALIGNMENT_OPTIONS: dict[str, Any] = {"refusal": _refuse_alignment, "structure": "Alignment"}
_MOVES, _CELLS = "scores[n, m, 3], lengths[2] <= (n, m)", "scores[n, m], lengths[2] <= (n, m)"
_ALIGNMENTS = _Paths(_align)
_GLOBAL = _Paths(lambda scores, lengths: _align(scores, lengths, GLOBAL))

alignments = family(
    "alignment",
    f"{_MOVES}, int kind",
    "n, m, 3",
    _ALIGNMENTS,
    slots="n * m",
    capacity="8 * (n + m)",
    flat=_Inwards(paths=_ALIGNMENTS, least=8, parts=4.5, rounds=100),
    is_lattice=True,
    work=lambda scores, *_: 15.0 * scores[0].size,
    **_ALIGNMENT_OPTIONS,
)
cell_alignments = family(
    "cell_alignment",
    f"{_CELLS}, int kind",
    "n, m",
    _ALIGNMENTS,
    slots="n * m",
    capacity="8 * (n + m)",
    flat=_Inwards(paths=_ALIGNMENTS, least=8, parts=3.0, rounds=100),
    is_lattice=True,
    work=lambda scores, *_: 45.0 * scores[0].size,
    **_ALIGNMENT_OPTIONS,
)
global_sparsemap = projection_operator(
    f"global_alignment_sparsemap({_MOVES}) -> point[n, m, 3]",
    _GLOBAL.project,
    jacobian=_GLOBAL.project_backward,
    keeps="lengths point",
    work=lambda scores, *_: 300.0 * scores[0].size,
    refusal=_refuse_global_alignment,
    structure="Alignment",
)


# ---- examples

_DIAMOND = torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3]])
EXAMPLES["path_graph"] = lambda: (_DIAMOND.expand(2, 4, 2), torch.tensor([0, 0]), torch.tensor([3, 3]))


def _through_a_diamond(example: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    def with_graph() -> tuple[Any, ...]:
        scores, _, *rest = example()
        return scores, path_graph(*EXAMPLES["path_graph"]())[0], *rest

    return with_graph


for _name in ("argmax", "topk", "mixture", "log_partition", "partition", "sample", "max_marginals", "sparsemap"):
    EXAMPLES[f"path_{_name}"] = _through_a_diamond(EXAMPLES[f"path_{_name}"])


def _with_a_slot_for_each_cell(example: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    def with_start() -> tuple[Any, ...]:
        scores, lengths, kind, _, *rest = example()
        return scores, lengths, kind, torch.full((2, 1, 16), -1, dtype=torch.int32), *rest

    return with_start


for _name in ("alignment_mixture", "cell_alignment_mixture"):
    EXAMPLES[_name] = _with_a_slot_for_each_cell(EXAMPLES[_name])

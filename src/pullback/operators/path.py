"""The operators of paths through a graph: scores (*batch, m) of its edges, and for each example a graph of its own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._family import family
from pullback.operators._kernel_operator import EXAMPLES, kernel_operator
from pullback.operators._paths import Array, PathKernels, holds_bad_scores

# ---- the graph


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


graph_of = kernel_operator(
    "path_graph(edges[m, 2], source[], sink[]) -> graph[3, m + 2]: int64, used[m]: bool",
    _number,
    refusal=_refuse_edges,
    moves=0,
)
"""The edges (*batch, m, 2) of DAGs as a graph that kernels read, and which of them are on a path."""


# ---- the paths


def _refusal(example: str, scores: Array, graph: Array, *_: Any) -> str:
    if holds_bad_scores(scores[graph[2][graph[2] >= 0]]):
        return f"Path: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Path: {example} has no path whose scores are all above -inf within its mask."


_KERNELS = PathKernels(lambda scores, graph: (graph, np.ascontiguousarray(graph[:, 1, -1])))
_INPUTS = "scores[m], graph[3, m + 2]"
_OPTIONS: dict[str, Any] = {
    "work": lambda scores, *_: 10.0 * scores.shape[-1],
    "refusal": _refusal,
    "structure": "Path",
}

paths = family("path", _INPUTS, "m", _KERNELS, is_lattice=True, **_OPTIONS)
sparsemap = projection_operator(
    f"path_sparsemap({_INPUTS}) -> point[m]",
    _KERNELS.project,
    jacobian=_KERNELS.project_backward,
    keeps="graph point",
    **{**_OPTIONS, "work": lambda scores, *_: 300.0 * scores.shape[-1]},
)


# ---- examples

_DIAMOND = torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3]])
EXAMPLES["path_graph"] = lambda: (_DIAMOND.expand(2, 4, 2), torch.tensor([0, 0]), torch.tensor([3, 3]))


def _through_a_diamond(example: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
    def with_graph() -> tuple[Any, ...]:
        scores, _, *rest = example()
        return scores, graph_of(*EXAMPLES["path_graph"]())[0], *rest

    return with_graph


for _name in ("argmax", "topk", "mixture", "log_partition", "partition", "sample", "max_marginals", "sparsemap"):
    EXAMPLES[f"path_{_name}"] = _through_a_diamond(EXAMPLES[f"path_{_name}"])

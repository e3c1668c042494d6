"""The operators of spanning trees and forests: scores (*batch, n, n) between n nodes, lengths counting nodes.

Sums take the mean of both halves as the score of an edge, and give derivatives by entries.  The others read only the
upper half of the scores, and of a gradient too; what comes out, gradients included, is the same in both halves.  So a
caller who makes inputs and outputs symmetric gets the derivative of that.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels
from pullback.operators._derivatives import partition_operator, projection_operator
from pullback.operators._kernel_operator import kernel_operator

Array = NDArray[Any]
_GRAPH = "scores[n, n], lengths[] <= n"
_FOREST = f"{_GRAPH}, int components"


def _refusal(example: str, scores: Array, lengths: Any, *rest: Any) -> str:
    components = rest[0] if isinstance(rest[0], int) else 1
    used = np.concatenate([scores[np.triu_indices(lengths, 1)], scores[np.tril_indices(lengths, -1)]])
    if np.isnan(used).any() or (used == np.inf).any():
        return f"SpanningTree: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    if components > max(lengths, 1):
        return f"SpanningTree: {example} has {lengths} node(s); expected at least {components}, one for each tree."
    trees = "tree" if components == 1 else f"forest of {components} trees"
    return f"SpanningTree: {example} has no {trees}: its mask or its edges at -inf leave too many nodes apart."


_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "SpanningTree"}


def _square(scores: Array, *_: Any) -> float:
    return float(scores.shape[-1]) ** 2


def _cubic(scores: Array, *_: Any) -> float:
    return float(scores.shape[-1]) ** 3


argmax = kernel_operator(
    f"spanning_tree_argmax({_FOREST}) -> vertex[n, n]",
    kernels.spanning_trees.argmax,
    work=lambda *arrays: 5 * _square(*arrays),
    **_OPTIONS,
)
topk = kernel_operator(
    f"spanning_tree_topk({_FOREST}, int k) -> vertices[k, n, n], size[]: int64",
    kernels.spanning_trees.topk,
    work=lambda *arrays: _cubic(*arrays) * arrays[-2].shape[1],
    **_OPTIONS,
)
project = projection_operator(
    f"spanning_tree_project({_FOREST}) -> point[n, n], blocks[n, n]: int32",
    kernels.spanning_trees.project,
    jacobian=kernels.spanning_trees.project_backward,
    keeps="blocks",
    work=lambda *arrays: 200 * _square(*arrays),
    **_OPTIONS,
)
"""The nearest mixture of forests, and its blocks: edges whose sum stays the same when the scores change a little."""

log_partition = kernel_operator(
    f"spanning_tree_log_partition({_GRAPH}) -> value[]", kernels.spanning_trees.log_partition, work=_cubic, **_OPTIONS
)
partition = partition_operator(
    f"spanning_tree_partition({_GRAPH}) -> value[], gradient[n, n]",
    kernels.spanning_trees.partition,
    hessian=kernels.spanning_trees.hessian_product,
    most=0.5,  # each half of the table has half of an edge
    work=lambda *arrays: 2 * _cubic(*arrays),
    **_OPTIONS,
)
sample = kernel_operator(
    f"spanning_tree_sample({_GRAPH}, seeds[], int count) -> vertices[count, n, n]",
    kernels.spanning_trees.sample,
    work=lambda *arrays: _cubic(*arrays) + 2.0 * arrays[-1][:1].size,
    **_OPTIONS,
)

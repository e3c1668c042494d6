"""The operators of dependency trees: scores (*batch, n, n) over n − 1 words and the root, lengths counting words.

Kernels know a tree by its heads; here it becomes a matrix of arcs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels
from pullback.operators._derivatives import partition_operator
from pullback.operators._family import family
from pullback.operators._flat import PROJECTIVE_TREES, SINGLE_ROOT_TREES, ByChart
from pullback.operators._kernel_operator import kernel_operator

Array = NDArray[Any]
LENGTH_ADVICE = "Scores are (n + 1, n + 1) for n words: node 0 is the root."
INPUTS = "scores[n, n], lengths[] <= n - 1, bool single_root"


def refusal(example: str, scores: Array, lengths: Any, *_: Any) -> str:
    """Why a kernel could not solve an instance."""
    used = scores[: lengths + 1, 1 : lengths + 1].copy()
    used[np.arange(1, lengths + 1), np.arange(lengths)] = 0  # a word is never its own head
    if np.isnan(used).any() or (used == np.inf).any():
        return f"DependencyTree: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"DependencyTree: {example} has no tree: its mask or its arcs at -inf leave a word out of the root's reach."


OPTIONS: dict[str, Any] = {
    "refusal": refusal,
    "structure": "DependencyTree",
    "out_of_range": LENGTH_ADVICE,
}


def _cubic(scores: Array, *_: Any) -> float:
    return float(scores.shape[-1]) ** 3


def _square(scores: Array, *_: Any) -> float:
    return float(scores.shape[-1]) ** 2


# ---- trees come from the kernels as heads


def _write(heads: Array, lengths: Array, arcs: Array, lo: int, hi: int) -> int:
    """Writes heads (batch, k, n) of sentences with lengths (batch, k) as arcs."""
    k, n = heads.shape[1:]
    flat = heads.reshape(-1, n), lengths.reshape(-1), arcs.reshape(-1, n, n)
    return kernels.trees.write_arcs(*flat, lo * k, hi * k)


class _WithArcs:
    """The kernels of a folder, with trees as matrices of arcs."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self.log_partition, self.partition = folder.log_partition, folder.partition
        self.hessian_product = folder.hessian_product
        self.mixture, self.mixture_backward = folder.mixture, folder.mixture_backward

    def argmax(self, scores: Array, lengths: Array, single_root: bool, arcs: Array, lo: int, hi: int) -> int:
        heads = np.empty(scores.shape[:2], np.int64)
        report: int = self.folder.argmax(scores, lengths, single_root, heads, lo, hi)
        return kernels.trees.write_arcs(heads, lengths, arcs, lo, hi) if report == -1 else report

    def sample(
        self, scores: Array, lengths: Array, single_root: bool, seeds: Array, count: int, arcs: Array, lo: int, hi: int
    ) -> int:
        heads = np.empty((len(scores), count, scores.shape[-1]), np.int64)
        report: int = self.folder.sample(scores, lengths, single_root, seeds, heads, lo, hi)
        return _write(heads, np.repeat(lengths, count), arcs, lo, hi) if report == -1 else report

    def topk(
        self, scores: Array, lengths: Array, single_root: bool, k: int, arcs: Array, size: Array, lo: int, hi: int
    ) -> int:
        heads, values = np.empty((len(scores), k, scores.shape[-1]), np.int64), np.empty((len(scores), k))
        report: int = self.folder.topk(scores, lengths, single_root, k, heads, values, size, lo, hi)
        words = np.where(np.arange(k) < size[:, None], lengths[:, None], 0)
        return _write(heads, words, arcs, lo, hi) if report == -1 else report


FLAT = ByChart(
    chart=lambda single_root: SINGLE_ROOT_TREES if single_root else PROJECTIVE_TREES,
    least=36,
    least_unequal=41,
    parts=32.0,
)
trees = family(
    "tree", INPUTS, "n, n", _WithArcs(kernels.trees), work=_cubic, best=lambda *arrays: 4 * _square(*arrays), **OPTIONS
)
projective_trees = family(
    "projective_tree",
    INPUTS,
    "n, n",
    _WithArcs(kernels.projective_trees),
    work=_cubic,
    capacity="(n - 1) * (n - 2) + 1 if n < 80 else 64 * n",
    flat=FLAT,
    **OPTIONS,
)

linearized_partition = partition_operator(
    f"tree_linearized_partition({INPUTS}) -> value[], marginals[n, n], weights[n, n]: float64, slopes[n, n]: float64",
    kernels.trees.linearize,
    hessian=kernels.trees.hessian_product_at,
    keeps="scores lengths single_root weights slopes",
    work=lambda scores, *_: 2 * _cubic(scores),
    **OPTIONS,
)
"""The partition of non-projective trees with what makes the derivative of the marginals cheap."""


# ---- arc matrices


def _heads(arcs: Array, lengths: Array, projective: bool, single_root: bool, heads: Array, lo: int, hi: int) -> int:
    return kernels.trees.read_trees(arcs, lengths, single_root, projective, heads, lo, hi)


heads = kernel_operator(
    "tree_heads(arcs[n, n], lengths[] <= n - 1, bool projective, bool single_root) -> heads[n]: int16",
    _heads,
    **OPTIONS,
)
"""Arc matrices as heads (*batch, n), the root's being 0; −1 throughout where the matrix is not a tree."""

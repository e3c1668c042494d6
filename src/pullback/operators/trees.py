"""The operators of dependency trees: scores (*batch, n, n) over n − 1 words and the root, lengths counting words.

Those of projective trees bear the same names as the others and are made from the kernels of their own folder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.operators._kernel_operator import kernel_operator, partition_operator
from pullback.operators._threads import Kernel
from pullback.operators.mixture import mixture_operator

Array = NDArray[Any]
SCORES = "scores[n, n], lengths[] <= n - 1, "


@dataclass(frozen=True)
class TreeOperators:
    """What can be computed over one kind of trees."""

    argmax: Callable[..., Tensor]
    sample: Callable[..., Tensor]
    topk: Callable[..., tuple[Tensor, Tensor]]
    log_partition: Callable[..., Tensor]
    partition: Callable[..., tuple[Tensor, ...]]
    mixture: Callable[..., tuple[Tensor, ...]]


def refusal(example: str, scores: Array, lengths: Any, *_: Any) -> str:
    """Why a kernel could not solve an instance."""
    used = scores[: lengths + 1, 1 : lengths + 1].copy()
    used[np.arange(1, lengths + 1), np.arange(lengths)] = 0  # a word is never its own head
    if np.isnan(used).any() or (used == np.inf).any():
        return f"DependencyTree: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"DependencyTree: {example} has no tree: its mask or its arcs at -inf leave a word out of the root's reach."


OPTIONS: dict[str, Any] = {
    "refusal": refusal,
    "out_of_range": "  DependencyTree takes scores (n + 1, n + 1) for n words: node 0 is the root.",
}


def _cubic(scores: Array, *_: Any) -> float:
    return float(scores.shape[-1]) ** 3


def _quadratic(scores: Array, *_: Any) -> float:
    return 4 * float(scores.shape[-1]) ** 2


# ---- trees come from the kernels as heads


def _argmax(kernel: Kernel) -> Kernel:
    def run(scores: Array, lengths: Array, single_root: bool, arcs: Array, lo: int, hi: int) -> int:
        heads = np.empty(scores.shape[:2], np.int64)
        report = kernel(scores, lengths, single_root, heads, lo, hi)
        return kernels.trees.write_arcs(heads, lengths, arcs, lo, hi) if report == -1 else report

    return run


def _several(heads: Array, lengths: Array, arcs: Array, lo: int, hi: int) -> int:
    """Writes heads (batch, k, n) of sentences with lengths (batch, k) as arcs."""
    k, n = heads.shape[1:]
    flat = heads.reshape(-1, n), lengths.reshape(-1), arcs.reshape(-1, n, n)
    return kernels.trees.write_arcs(*flat, lo * k, hi * k)


def _sample(kernel: Kernel) -> Kernel:
    def run(
        scores: Array, lengths: Array, seeds: Array, count: int, single_root: bool, arcs: Array, lo: int, hi: int
    ) -> int:
        heads = np.empty((len(scores), count, scores.shape[-1]), np.int64)
        report = kernel(scores, lengths, single_root, seeds, heads, lo, hi)
        return _several(heads, np.repeat(lengths, count), arcs, lo, hi) if report == -1 else report

    return run


def _topk(kernel: Kernel) -> Kernel:
    def run(
        scores: Array, lengths: Array, k: int, single_root: bool, arcs: Array, size: Array, lo: int, hi: int
    ) -> int:
        heads, values = np.empty((len(scores), k, scores.shape[-1]), np.int64), np.empty((len(scores), k))
        report = kernel(scores, lengths, single_root, k, heads, values, size, lo, hi)
        words = np.where(np.arange(k) < size[:, None], lengths[:, None], 0)
        return _several(heads, words, arcs, lo, hi) if report == -1 else report

    return run


def _operators(name: str, room: Any, argmax_work: Callable[..., float]) -> TreeOperators:
    return TreeOperators(
        argmax=kernel_operator(
            f"{name}_argmax({SCORES}bool single_root) -> arcs[n, n]",
            _argmax(room.argmax),
            work=argmax_work,
            **OPTIONS,
        ),
        sample=kernel_operator(
            f"{name}_sample({SCORES}seeds[], int count, bool single_root) -> arcs[count, n, n]",
            _sample(room.sample),
            work=lambda scores, lengths, seeds, count, *_: _cubic(scores) + 3 * count * _quadratic(scores),
            **OPTIONS,
        ),
        topk=kernel_operator(
            f"{name}_topk({SCORES}int k, bool single_root) -> arcs[k, n, n], size[]: int64",
            _topk(room.topk),
            work=lambda scores, lengths, k, *_: k * _cubic(scores),
            **OPTIONS,
        ),
        log_partition=kernel_operator(
            f"{name}_log_partition({SCORES}bool single_root) -> value[]",
            room.log_partition,
            work=_cubic,
            **OPTIONS,
        ),
        partition=partition_operator(
            f"{name}_partition({SCORES}bool single_root) -> value[], marginals[n, n]",
            room.log_partition_and_marginals,
            hessian=room.hessian_product,
            work=lambda scores, *_: 2 * _cubic(scores),
            **OPTIONS,
        ),
        mixture=mixture_operator(
            f"{name}_mixture({SCORES}bool single_root",
            room.mixture,
            parts="n, n",
            work=lambda scores, *_: 20 * _cubic(scores),
            **OPTIONS,
        ),
    )


any_order = _operators("tree", kernels.trees, _quadratic)
projective = _operators("projective_tree", kernels.projective_trees, _cubic)

linearized_partition = partition_operator(
    f"tree_linearized_partition({SCORES}bool single_root) "
    "-> value[], marginals[n, n], weights[n, n]: float64, slopes[n, n]: float64",
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

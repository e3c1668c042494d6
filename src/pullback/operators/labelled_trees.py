"""The operators of labelled dependency trees: scores (*batch, n, n, t) of an arc from head to modifier with a label.

Sums and searches over trees are those of `operators.trees`, with what the labels of an arc are worth as its score.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators._equal_labels import ByChartOrArcs
from pullback.operators._family import family
from pullback.operators._mixture_projection import ByVertices, MaybeFlat, VertexSearch
from pullback.operators.trees import FLAT, OPTIONS, Array

INPUTS = "scores[n, n, t], lengths[] <= n - 1, bool single_root"


def _in_turn(*steps: Callable[[], int]) -> int:
    """What the first kernel reports that could not solve an instance; −1 if all could."""
    return next((report for report in (step() for step in steps) if report != -1), -1)


def _write(heads: Array, labels: Array, lengths: Array, arcs: Array, lo: int, hi: int) -> int:
    """Writes heads and labels (batch, k, n) of sentences with lengths (batch, k) as arcs."""
    k, n = heads.shape[1:]
    flat = heads.reshape(-1, n), labels.reshape(-1, n), lengths.reshape(-1), arcs.reshape(-1, n, n, arcs.shape[-1])
    return kernels.labels.write_arcs(*flat, lo * k, hi * k)


class _WithLabels:
    """The kernels of a folder, over the labels of each arc."""

    def __init__(self, folder: Any) -> None:
        self.folder = folder
        self.mixture, self.mixture_backward = folder.labelled_mixture, folder.labelled_mixture_backward

    # ---- an arc is worth its best label

    def argmax(self, scores: Array, lengths: Array, single_root: bool, arcs: Array, lo: int, hi: int) -> int:
        best = np.empty(scores.shape[:-1])
        heads, labels = np.empty((2, *scores.shape[:2]), np.int64)
        return _in_turn(
            lambda: kernels.labels.largest(scores, lengths, best, lo, hi),
            lambda: self.folder.argmax(best, lengths, single_root, heads, lo, hi),
            lambda: kernels.labels.choose(scores, lengths, heads, labels, lo, hi),
            lambda: kernels.labels.write_arcs(heads, labels, lengths, arcs, lo, hi),
        )

    def topk(
        self, scores: Array, lengths: Array, single_root: bool, k: int, arcs: Array, size: Array, lo: int, hi: int
    ) -> int:
        best = np.empty(scores.shape[:-1])
        trees, heads, labels = np.empty((3, len(scores), k, scores.shape[1]), np.int64)
        values, found = np.empty((len(scores), k)), np.empty(len(scores), np.int64)

        def write() -> int:
            words = np.where(np.arange(k) < size[:, None], lengths[:, None], 0)
            return _write(heads, labels, words, arcs, lo, hi)

        return _in_turn(
            lambda: kernels.labels.largest(scores, lengths, best, lo, hi),
            lambda: self.folder.topk(best, lengths, single_root, k, trees, values, found, lo, hi),
            lambda: kernels.labels.topk(scores, lengths, trees, values, found, heads, labels, size, lo, hi),
            write,
        )

    # ---- an arc is worth all of its labels

    def sample(
        self, scores: Array, lengths: Array, single_root: bool, seeds: Array, count: int, arcs: Array, lo: int, hi: int
    ) -> int:
        worth, offset = _worth(scores)
        heads, labels = np.empty((2, len(scores), count, scores.shape[1]), np.int64)
        return _in_turn(
            lambda: kernels.labels.together(scores, lengths, worth, offset, scores[:0], lo, hi),
            lambda: self.folder.sample(worth, lengths, single_root, seeds, heads, lo, hi),
            lambda: kernels.labels.draw(scores, lengths, seeds, heads, labels, lo, hi),
            lambda: _write(heads, labels, np.repeat(lengths, count), arcs, lo, hi),
        )

    def log_partition(self, scores: Array, lengths: Array, single_root: bool, value: Array, lo: int, hi: int) -> int:
        (worth, offset), of_trees = _worth(scores), np.empty(len(scores))
        report = _in_turn(
            lambda: kernels.labels.together(scores, lengths, worth, offset, scores[:0], lo, hi),
            lambda: self.folder.log_partition(worth, lengths, single_root, of_trees, lo, hi),
        )
        value[lo:hi] = of_trees[lo:hi] + offset[lo:hi].sum(-1)
        return report

    def partition(
        self, scores: Array, lengths: Array, single_root: bool, value: Array, marginals: Array, lo: int, hi: int
    ) -> int:
        (worth, offset), of_trees = _worth(scores), np.empty(len(scores))
        arcs = np.empty_like(worth)
        report = _in_turn(
            lambda: kernels.labels.together(scores, lengths, worth, offset, marginals, lo, hi),
            lambda: self.folder.partition(worth, lengths, single_root, of_trees, arcs, lo, hi),
            lambda: kernels.labels.spread(marginals, lengths, worth, (arcs,), marginals, lo, hi),
        )
        value[lo:hi] = of_trees[lo:hi] + offset[lo:hi].sum(-1)
        return report

    def hessian_product(
        self, scores: Array, lengths: Array, single_root: bool, direction: Array, product: Array, lo: int, hi: int
    ) -> int:
        (worth, offset), value = _worth(scores), np.empty(len(scores))
        arcs, moved, turned = np.empty((3, *worth.shape))
        given = (np.empty(scores.shape), lengths, worth)
        return _in_turn(
            lambda: kernels.labels.together(scores, lengths, worth, offset, given[0], lo, hi),
            lambda: self.folder.partition(worth, lengths, single_root, value, arcs, lo, hi),
            lambda: kernels.labels.along(*given, (direction,), moved, lo, hi),
            lambda: self.folder.hessian_product(worth, lengths, single_root, moved, turned, lo, hi),
            lambda: kernels.labels.spread_product(*given, (arcs, moved, turned, direction), product, lo, hi),
        )


def _worth(scores: Array) -> tuple[Array, Array]:
    """Room for what an arc is worth (batch, n, n), relative to an offset (batch, n) for each word."""
    return np.empty(scores.shape[:-1]), np.empty(scores.shape[:2])


def _work(scores: Array, *_: Any) -> float:
    n, t = scores.shape[-2:]
    return float(n * n * (n + 2 * t))


def _best_work(scores: Array, *_: Any) -> float:
    n, t = scores.shape[-2:]
    return float(n * n * (4 + t))


_ARCS = ByVertices(
    kernels.projective_trees, VertexSearch(kernels.projective_trees.mixture, OPTIONS["structure"]), products=1
)
_FLAT = ByChartOrArcs(
    chart=FLAT.chart,
    least=8,
    least_unequal=8,
    parts=36.0,
    arcs=MaybeFlat(_ARCS, FLAT, place=0),
    capacity=lambda nodes: (nodes - 1) * (nodes - 2) + 1 if nodes < 80 else 64 * nodes,  # as in `trees`
)
_FAMILY: dict[str, Any] = {"inputs": INPUTS, "parts": "n, n, t", "work": _work, **OPTIONS}
trees = family("labelled_tree", kernels=_WithLabels(kernels.trees), best=_best_work, **_FAMILY)
projective_trees = family(
    "labelled_projective_tree",
    kernels=_WithLabels(kernels.projective_trees),
    capacity="32 * n",
    flat=_FLAT,
    **_FAMILY,
)

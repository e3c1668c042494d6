"""SparseMAP over non-projective dependency trees, with the face of each solution kept for its derivative.

By cuts, the face is the support of the point and the sets of words that are tight.  By trees, with the active-set
method, where few of them are expected to mix, the face is spanned by trees.

The cost of cuts hardly depends on how many trees mix, that of trees on little else.  Where scores are peaked, up to a
dozen trees mix, and going by them is up to twice as fast (`benchmarks`, trees.peaked and trees.parser).  They may also
mix although many arcs compete: where nearly as many sets are tight.  So cuts that become many make way for trees, and
trees that turn out many for cuts.  With labels a tree costs more, and cuts come first however peaked the scores.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators import labelled_trees, trees
from pullback.operators._derivatives import projection_operator
from pullback.operators._mixture import GAP_OF_POINT, Batch, nearest
from pullback.operators.trees import OPTIONS, Array

_FEW_RIVALS, _FEW_PER_WORD = 20, 0.8  # arcs that compete with the best into their words; about as many trees mix
_FEW_TREES = 32
_ROUNDS_OF_TREES = 64  # a search that takes more has met more than a few trees
_ROUNDS_OF_CUTS = 8
_NO_LIMIT = 0


def _operator(
    name: str, inputs: str, parts: str, few_rivals: int, mixture: Any, mixture_backward: Any
) -> Callable[..., Any]:
    """The operator `name`, which begins with trees where rivals are few, from the kernels of the active set."""

    def by_trees(scores: Array, few: Array, single_root: bool, found: tuple[Array, ...], lo: int, hi: int) -> int:
        """Writes points and trees of those of the `few` that mix few trees; the others get a size of 0."""
        point, kept, size = found
        batch = Batch(scores, (few, single_root), point, kept, size, lo, hi)
        gap, _, report = nearest(mixture, batch, rounds=_ROUNDS_OF_TREES)
        failed = (few >= 0) & ((size > _FEW_TREES) | (gap > GAP_OF_POINT))
        failed[:lo] = failed[hi:] = False
        if failed.any():
            kept[failed], size[failed] = 0, 0
        return report

    def project(
        scores: Array, lengths: Array, single_root: bool,
        point: Array, sets: Array, kept: Array, size: Array, lo: int, hi: int,
    ) -> int:  # fmt: skip
        sets[lo:hi], kept[lo:hi], size[lo:hi] = 0, 0, 0  # the face is written in one form only
        arcs, masses = _by_head(scores), _by_head(point)
        few, many, left = np.empty_like(lengths), np.empty_like(lengths), np.empty(len(lengths), np.bool_)
        found = (point, kept, size)

        def by_cuts(rounds: int) -> int:
            return kernels.tree_cuts.project(arcs, many, single_root, rounds, masses, sets, left, lo, hi)

        limits = (few_rivals, _FEW_PER_WORD)
        if kernels.tree_cuts.split_by_rivals(arcs, lengths, *limits, few, many, lo, hi) > 0:
            report = by_trees(scores, few, single_root, found, lo, hi)
            if report != -1:
                return report
            many[lo:hi] = np.where(size > 0, -1, lengths)[lo:hi]
            if (many[lo:hi] < 0).all():
                return -1
        report = by_cuts(_ROUNDS_OF_CUTS)
        if report != -1 or not left[lo:hi].any():
            return report
        report = by_trees(scores, np.where(left & (few < 0), lengths, -1), single_root, found, lo, hi)
        many[lo:hi] = np.where(left & (size == 0), lengths, -1)[lo:hi]
        return by_cuts(_NO_LIMIT) if report == -1 else report

    def differentiate(
        scores: Array, lengths: Array, single_root: bool,
        point: Array, sets: Array, kept: Array, size: Array, gradient: Array, product: Array, lo: int, hi: int,
    ) -> int:  # fmt: skip
        is_mixed = size > 0
        mixed, report = int(is_mixed[lo:hi].sum()), -1
        if mixed > 0:
            words = np.where(is_mixed, lengths, -1)
            report = mixture_backward(scores, words, (single_root,), kept, size, gradient, product, lo, hi)
        if report == -1 and mixed < hi - lo:
            words = np.where(is_mixed, -1, lengths)
            given, found = (_by_head(gradient), words, _by_head(point), sets), _by_head(product)
            report = kernels.tree_cuts.project_backward(*given, found, lo, hi)
        return report

    return projection_operator(
        f"{name}({inputs}) "
        f"-> point[{parts}], sets[n, (n + 63) // 64]: int64, kept[{_FEW_TREES}, n]: int32, size[]: int64",
        project,
        jacobian=differentiate,
        work=lambda scores, *_: 80.0 * scores[0].size,
        **OPTIONS,
    )


def _by_head(array: Array) -> Array:
    """Scores, points or gradients (batch, N, N, t) as (batch, N, N·t), a view; (batch, N, N) as they are."""
    return array if array.ndim == 3 else array.reshape(*array.shape[:2], -1)


project = _operator(
    "tree_sparsemap",
    trees.INPUTS,
    "n, n",
    _FEW_RIVALS,
    kernels.trees.mixture,
    kernels.trees.mixture_backward,
)
"""The nearest mixture of non-projective trees, and its face.

By cuts, with the active sets as bits; or by trees, with their number, which is 0 where it went by cuts.
"""

project_labelled = _operator(
    "labelled_tree_sparsemap",
    labelled_trees.INPUTS,
    "n, n, t",
    0,  # never few
    kernels.trees.labelled_mixture,
    kernels.trees.labelled_mixture_backward,
)
"""`project` for trees whose arcs have labels."""

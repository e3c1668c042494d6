"""SparseMAP over non-projective dependency trees, with the face of each solution kept for its derivative.

By cuts, the face is the support of the point and the sets of words that are tight.  By trees, with the active-set
method, where few of them are expected to mix, the face is spanned by trees.

The cost of cuts hardly depends on how many trees mix, that of trees on little else.  Where scores are peaked, up to a
dozen trees mix, and going by them is up to twice as fast (`benchmarks`, trees.peaked and trees.parser).
"""

import numpy as np

from pullback import kernels
from pullback.operators._kernel_operator import projection_operator
from pullback.operators._mixture import GAP_OF_POINT, nearest
from pullback.operators.trees import INPUTS, OPTIONS, Array

_FEW_RIVALS, _FEW_PER_WORD = 20, 0.8  # arcs that compete with the best into their words; about as many trees mix
_FEW_TREES = 32


def _project(
    scores: Array,
    lengths: Array,
    single_root: bool,
    point: Array,
    sets: Array,
    parts: Array,
    size: Array,
    lo: int,
    hi: int,
) -> int:
    sets[lo:hi], parts[lo:hi], size[lo:hi] = 0, 0, 0  # the face is written in one form only
    few, many = np.empty_like(lengths), np.empty_like(lengths)
    peaked = kernels.tree_cuts.split_by_rivals(scores, lengths, _FEW_RIVALS, _FEW_PER_WORD, few, many, lo, hi)
    if peaked > 0:
        gap, _, report = nearest(kernels.trees.mixture, scores, few, (single_root,), point, parts, size, lo, hi)
        if report != -1:
            return report
        others = (few >= 0) & ((size > _FEW_TREES) | (gap > GAP_OF_POINT))
        others[:lo] = others[hi:] = False
        if others.any():  # cuts are right for them too
            many[others], parts[others], size[others], peaked = lengths[others], 0, 0, 0
    if peaked == hi - lo:
        return -1
    return kernels.tree_cuts.project(scores, many, single_root, point, sets, lo, hi)


def _project_backward(
    scores: Array,
    lengths: Array,
    single_root: bool,
    point: Array,
    sets: Array,
    parts: Array,
    size: Array,
    gradient: Array,
    product: Array,
    lo: int,
    hi: int,
) -> int:
    by_trees = size > 0
    peaked, report = int(by_trees[lo:hi].sum()), -1
    if peaked > 0:
        words = np.where(by_trees, lengths, -1)
        report = kernels.trees.mixture_backward(scores, words, (single_root,), parts, size, gradient, product, lo, hi)
    if report == -1 and peaked < hi - lo:
        words = np.where(by_trees, -1, lengths)
        report = kernels.tree_cuts.project_backward(gradient, words, point, sets, product, lo, hi)
    return report


project = projection_operator(
    f"tree_sparsemap({INPUTS}) "
    f"-> point[n, n], sets[n, (n + 63) // 64]: int64, parts[{_FEW_TREES}, n]: int32, size[]: int64",
    _project,
    jacobian=_project_backward,
    work=lambda scores, *_: 80.0 * scores.shape[-1] ** 2,
    **OPTIONS,
)
"""The nearest mixture of non-projective trees, and its face.

By cuts, with the active sets as bits; or by trees, with their number, which is 0 where it went by cuts.
"""

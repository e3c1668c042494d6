"""SparseMAP over dependency trees, with the face of each solution kept for its derivative.

By cuts, for non-projective trees: the face is the support of the point and the sets of words that are tight.  By trees,
with the active-set method, for either kind: the face is spanned by trees.

The cost of cuts hardly depends on how many trees mix, that of trees on little else.  Where scores are peaked, up to a
dozen trees mix, and going by them is up to twice as fast (`benchmarks`, trees.peaked and trees.parser).
"""

import numpy as np

from pullback import kernels
from pullback.operators._convergence import warn_of_gap
from pullback.operators._kernel_operator import projection_operator
from pullback.operators._mixture import GAP_OF_DERIVATIVE, GAP_OF_POINT, MAX_ITERATIONS, mixture
from pullback.operators._threads import Kernel
from pullback.operators.trees import INPUTS, OPTIONS, Array

_FEW_RIVALS, _FEW_PER_WORD = 20, 0.8  # arcs that compete with the best into their words; about as many trees mix
_FEW_TREES = 32


_trees, _projective_trees = mixture(kernels.trees.mixture), mixture(kernels.projective_trees.mixture)


def _by_trees(
    kernel: Kernel,
    scores: Array,
    lengths: Array,
    single_root: bool,
    point: Array,
    parts: Array,
    size: Array,
    lo: int,
    hi: int,
) -> tuple[Array, Array, int]:
    """Runs the active-set method without a start: (gaps, whether they are as small as rounding allows, report)."""
    batch, most = parts.shape[:2]
    start, probabilities = np.empty((batch, 0, parts.shape[2]), np.int32), np.empty((batch, most), scores.dtype)
    gap, iterations, converged = np.empty(batch), np.empty(batch, np.int64), np.ones(batch, np.bool_)
    limits = (GAP_OF_DERIVATIVE, MAX_ITERATIONS, most)
    found = (point, parts, probabilities, size, gap, iterations, converged)
    report = kernel(scores, lengths, single_root, start, *limits, *found, lo, hi)
    return gap, converged, report


# ---- non-projective: by trees where few of them are expected to mix, by cuts otherwise


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
        gap, _, report = _by_trees(_trees, scores, few, single_root, point, parts, size, lo, hi)
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


# ---- projective: by trees


def _project_projective(
    scores: Array, lengths: Array, single_root: bool, point: Array, parts: Array, size: Array, lo: int, hi: int
) -> int:
    gap, converged, report = _by_trees(_projective_trees, scores, lengths, single_root, point, parts, size, lo, hi)
    if not converged[lo:hi].all():
        warn_of_gap(f"SparseMAP over projective trees stopped at a gap of {gap[lo:hi].max():.1e}.")
    return report


def _differentiate_projective(
    scores: Array,
    lengths: Array,
    single_root: bool,
    parts: Array,
    size: Array,
    gradient: Array,
    product: Array,
    lo: int,
    hi: int,
) -> int:
    most = int(size[lo:hi].max(initial=0))
    if most > parts.shape[1]:  # rare, and cheaper to find again than to make room for in every call
        parts, point = np.empty((len(scores), most, parts.shape[2]), np.int32), np.empty_like(scores)
        _project_projective(scores, lengths, single_root, point, parts, size, lo, hi)
    backward = kernels.projective_trees.mixture_backward
    return backward(scores, lengths, (single_root,), parts, size, gradient, product, lo, hi)


project_projective = projection_operator(
    f"projective_tree_sparsemap({INPUTS}) -> point[n, n], "
    "parts[(n - 1) * (n - 2) + 1 if n < 80 else 64 * n, n]: int32, size[]: int64",
    _project_projective,
    jacobian=_differentiate_projective,
    keeps="scores lengths single_root parts size",
    work=lambda scores, *_: 20.0 * scores.shape[-1] ** 3,
    **OPTIONS,
)
"""The nearest mixture of projective trees, and the trees that span its face."""

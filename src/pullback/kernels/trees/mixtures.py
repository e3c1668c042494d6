"""SparseMAP over dependency trees: the nearest point of their hull and the trees it mixes, by the active-set method.

The argmax is contraction.  A word chooses its head: slot m holds the part head · N + m, slot 0 nothing.
"""

from pullback.kernels.active_set import mixture_over
from pullback.kernels.projective_trees import heads_to_parts, load_relative
from pullback.kernels.tools import inner, kernel
from pullback.kernels.trees.arborescence import arborescence, transpose
from pullback.kernels.trees.arborescence import workspace as contraction


@inner
def _workspace(scores, options):
    return contraction(scores.shape[1])


@inner
def best_tree(rest, n, options, own, parts):
    (single_root,) = options
    transpose(rest, n, own.enter)
    if n > 0 and not arborescence(own, n, single_root, parts):
        return False
    heads_to_parts(n, len(rest), parts)
    return True


_mixture, _mixture_backward, _ = mixture_over(_workspace, load_relative, best_tree)


@kernel
def mixture(
    scores, lengths, single_root, start, tolerance, max_iterations,
    point, parts, probabilities, size, gap, iterations, lo, hi,
):  # fmt: skip
    """The nearest mixture of trees: `mixture_over` says what is written where.

    scores (batch, N, N) by [head, modifier]; lengths (batch,) count words.  At most n² − n + 1 trees mix; an argmax
    costs O(n²).
    """
    return _mixture(
        scores, lengths, (single_root,), start, tolerance, max_iterations,
        point, parts, probabilities, size, gap, iterations, lo, hi,
    )  # fmt: skip


@kernel
def mixture_backward(scores, lengths, single_root, parts, size, gradient, product, lo, hi):
    """The Jacobian of `mixture`, which is symmetric, times `gradient`; from the trees that `mixture` wrote."""
    return _mixture_backward(scores, lengths, (single_root,), parts, size, gradient, product, lo, hi)

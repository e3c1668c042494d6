"""SparseMAP over dependency trees: the nearest point of their hull and the trees it mixes, by the active-set method.

The argmax is contraction, in O(n²).  A word chooses its head: of scores (batch, N, N) by [head, modifier], slot m holds
the part head · N + m, slot 0 nothing.  At most n² − n + 1 trees mix.  The options are (single_root,).

With labels, scores are (batch, N, N, t) by [head, modifier, label], and the part is (head · N + m) · t + label.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.labels import best_labels
from pullback.kernels.labels import heads_to_parts as heads_to_labelled_parts
from pullback.kernels.labels import load_relative as load_labelled
from pullback.kernels.projective_trees import heads_to_parts, load_relative
from pullback.kernels.tools import inner
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


mixture, mixture_backward = mixture_over(_workspace, load_relative, best_tree)


@inner
def _labelled_workspace(scores, options):
    """That of contraction, and the best label of every arc with its score."""
    size = scores.shape[1]
    return contraction(size), np.empty((size, size)), np.empty((size, size), np.int64)


@inner
def best_labelled_tree(rest, n, options, own, parts):
    (single_root,) = options
    work, best, label = own
    best_labels(rest, n, best, label)
    transpose(best, n, work.enter)
    if n > 0 and not arborescence(work, n, single_root, parts):
        return False
    heads_to_labelled_parts(n, rest, label, parts)
    return True


labelled_mixture, labelled_mixture_backward = mixture_over(_labelled_workspace, load_labelled, best_labelled_tree)

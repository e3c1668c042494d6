"""SparseMAP over projective dependency trees: the nearest point of their hull and the trees it mixes.

By the active-set method; the argmax is Eisner's, in O(n³).  A word chooses its head: of scores (batch, N, N) by [head,
modifier], slot m holds the part head · N + m, slot 0 nothing.  The options are (single_root,).

With labels, scores are (batch, N, N, t) by [head, modifier, label], and the part is (head · N + m) · t + label.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.labels import best_labels
from pullback.kernels.labels import heads_to_parts as heads_to_labelled_parts
from pullback.kernels.labels import load_relative as load_labelled
from pullback.kernels.projective_trees.best import best_charts, inside_best, read_best
from pullback.kernels.projective_trees.eisner import load
from pullback.kernels.tools import inner


@inner
def load_relative(scores, b, n, options, own, out):
    """Copies the scores of the arcs over n words, each relative to the best arc into its word."""
    if not load(scores[b], n, out):
        return -1
    for m in range(1, n + 1):
        out[m, m] = best = -np.inf
        for head in range(n + 1):
            best = max(best, out[head, m])
        if best > -np.inf:
            for head in range(n + 1):
                out[head, m] -= best
    return n + 1


@inner
def heads_to_parts(n, size, heads):
    """The arcs of a tree as indices into `size` × `size` scores, in place of its heads."""
    heads[0] = -1
    for m in range(1, n + 1):
        heads[m] = heads[m] * size + m


@inner
def _workspace(scores, options):
    """Eisner's charts and the stack to read them with."""
    size = scores.shape[1]
    return best_charts(size), np.empty((3 * size, 2), np.int64)


@inner
def best_projective_tree(rest, n, options, own, parts):
    (single_root,) = options
    charts, stack = own
    if inside_best(rest, n, single_root, charts) == -np.inf:
        return False
    read_best(len(rest), n, charts, stack, parts)
    heads_to_parts(n, len(rest), parts)
    return True


mixture, mixture_backward = mixture_over(_workspace, load_relative, best_projective_tree)


@inner
def _labelled_workspace(scores, options):
    """Also the best label of every arc, with its score."""
    size = scores.shape[1]
    return _workspace(scores, options), np.empty((size, size)), np.empty((size, size), np.int64)


@inner
def best_labelled_projective_tree(rest, n, options, own, parts):
    (single_root,) = options
    (charts, stack), best, label = own
    best_labels(rest, n, best, label)
    if inside_best(best, n, single_root, charts) == -np.inf:
        return False
    read_best(len(rest), n, charts, stack, parts)
    heads_to_labelled_parts(n, rest, label, parts)
    return True


labelled_mixture, labelled_mixture_backward = mixture_over(
    _labelled_workspace, load_labelled, best_labelled_projective_tree
)

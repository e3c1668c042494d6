"""SparseMAP over projective dependency trees: the nearest point of their hull and the trees it mixes.

By the active-set method; the argmax is Eisner's, in O(n³).  A word chooses its head: of scores (batch, N, N) by [head,
modifier], slot m holds the part head · N + m, slot 0 nothing.  The options are (single_root,).
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.projective_trees.eisner import inside_max, load, read_best
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
    """Eisner's chart and the stack to read it with."""
    size = scores.shape[1]
    return np.empty((3, size, size)), np.empty((3 * size, 2), np.int64)


@inner
def best_projective_tree(rest, n, options, own, parts):
    (single_root,) = options
    chart, stack = own
    if inside_max(rest, n, single_root, chart) == -np.inf:
        return False
    read_best(n, chart, stack, stack, parts)
    heads_to_parts(n, len(rest), parts)
    return True


mixture, mixture_backward = mixture_over(_workspace, load_relative, best_projective_tree)

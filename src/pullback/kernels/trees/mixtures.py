"""SparseMAP over dependency trees: the nearest point of their hull and the trees it mixes, by the active-set method.

The argmax is contraction, in O(n²).  A word chooses its head: of scores (batch, N, N) by [head, modifier], slot m holds
the part head · N + m, slot 0 nothing.  At most n² − n + 1 trees mix.  The options are (single_root,).
"""

from pullback.kernels.active_set import mixture_over
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

"""SparseMAP over binary trees: the nearest point of their hull and the trees it mixes, by the active-set method.

The active set wants the part of a vertex in each of several slots, so the spans that share a slot must never be in one
tree: any two of them must cross.  Spans of the same width w cross if they overlap, so those that start in the same
stretch of w words share a slot, and N words have Σ ⌊N / w⌋ slots, about N log N.  A tree fills 2n − 1 of them.
Of scores (batch, N, N, t), span (i, j) with a label is the part (i · N + j) · t + label.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.constituency.cky import best_labels, best_tree
from pullback.kernels.tools import inner


@inner
def _workspace(scores, options):
    """What the best tree needs, and the first slot of each width."""
    size = scores.shape[1]
    first = np.zeros(size + 2, np.int64)
    for width in range(1, size + 1):
        first[width + 1] = first[width] + size // width
    weight, tree = np.empty((size, size)), np.empty((size, size))
    return weight, tree, np.zeros(scores.shape[3]), np.empty((2 * size, 3), np.int64), first


@inner
def _load_relative(scores, b, n, options, own, out):
    """Copies the scores of the spans over n words, relative to the best: of the word, or of all wider spans.

    Every tree has each word and n − 1 wider spans, so this changes no comparison.
    """
    weight, _, _, _, first = own
    if not best_labels(scores[b], n, weight):
        return -1
    widest = -np.inf
    for i in range(n):
        for j in range(i + 1, n):
            widest = max(widest, weight[i, j])
    for i in range(n):
        for j in range(i, n):
            best = weight[i, i] if i == j else widest
            for label in range(scores.shape[3]):
                score = np.float64(scores[b, i, j, label])
                out[i, j, label] = score - best if score > -np.inf else score
    return first[n] + (n > 0)


@inner
def best_constituency_tree(rest, n, options, own, parts):
    weight, tree, zeros, spans, first = own
    for slot in range(len(parts)):
        parts[slot] = -1
    best_labels(rest, n, weight)
    if n > 0 and not best_tree(rest, n, weight, tree, zeros, spans):
        return False
    for at in range(2 * n - 1):
        i, j = spans[at, 0], spans[at, 1]
        width = j - i + 1
        parts[first[width] + i // width] = (i * len(rest) + j) * len(zeros) + spans[at, 2]
    return True


mixture, mixture_backward = mixture_over(_workspace, _load_relative, best_constituency_tree)

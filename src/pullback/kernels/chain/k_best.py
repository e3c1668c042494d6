"""The k best sequences of tags: Viterbi's recurrence over sorted lists, in O(n t² k).

Each cell (i, b) holds the k best values of the sequences that have tag b at position i.  It merges the lists of the
cells (i − 1, a), each raised by the score of the pair (a, b).  Every sequence stands in one list of each position, so
all are different, however many tie.
"""

import numpy as np

from pullback.kernels.chain.viterbi import is_valid
from pullback.kernels.tools import inner, kernel


@inner
def merge(values, sizes, extra, reached, merged, origin):
    """Merges the sorted lists values[a, : sizes[a]] + extra[a]; returns the length of the list `merged`.

    origin[rank] is the list and the place in it, in one number, a · k + place; reached[a] is workspace.
    """
    k = merged.shape[0]
    reached[:] = 0
    for rank in range(k):
        best, best_list = -np.inf, -1
        for a in range(extra.shape[0]):
            if reached[a] < sizes[a] and values[a, reached[a]] + extra[a] > best:
                best, best_list = values[a, reached[a]] + extra[a], a
        if best_list < 0:
            return rank
        merged[rank] = best
        origin[rank] = best_list * k + reached[best_list]
        reached[best_list] += 1
    return k


@inner
def _fill(scores, n, values, sizes, origin, extra, reached, merged, last):
    """All lists of one instance: values and sizes of two positions in turn; returns the size of the list of the end.

    origin[i] belongs to position i, `last` to the end.
    """
    t = scores.shape[1]
    for b in range(t):
        values[0, b, 0] = scores[0, 0, b]
        sizes[0, b] = 1 if scores[0, 0, b] > -np.inf else 0
    for i in range(1, n):
        old, new = (i - 1) % 2, i % 2
        for b in range(t):
            for a in range(t):
                extra[a] = scores[i, a, b]
            sizes[new, b] = merge(values[old], sizes[old], extra, reached, values[new, b], origin[i, b])
    extra[:] = 0.0
    return merge(values[(n - 1) % 2], sizes[(n - 1) % 2], extra, reached, merged, last)


@inner
def _write(n, origin, place, vertex):
    """Writes the sequence that stands at `place` (list · k + rank) of the last position."""
    k = origin.shape[2]
    for i in range(n - 1, -1, -1):
        tag = place // k
        place = origin[i, tag, place % k]
        vertex[i, place // k if i > 0 else 0, tag] = 1.0


@kernel
def topk(scores, lengths, k, vertices, size, lo, hi):
    """The k best sequences of each instance, best first, all different: vertices[b, rank] is shaped like scores[b].

    scores, lengths and the answer as in `sums`; k ≥ 1.  size[b] says how many there are, fewer than k only if there are
    no more; vertices are zero beyond.  An empty chain has one sequence, all zeros.
    """
    n, t = scores.shape[1:3]
    values, sizes = np.empty((2, t, k)), np.empty((2, t), np.int64)
    origin, last, merged = np.empty((n, t, k), np.int64), np.zeros(k, np.int64), np.empty(k)
    extra, reached = np.empty(t), np.empty(t, np.int64)
    for b in range(lo, hi):
        vertices[b] = 0.0
        if not 0 <= lengths[b] <= n or not is_valid(scores[b], lengths[b]):
            return b
        size[b] = 1
        if lengths[b] > 0:
            size[b] = _fill(scores[b], lengths[b], values, sizes, origin, extra, reached, merged, last)
        if size[b] == 0:
            return b
        for rank in range(size[b]):
            _write(lengths[b], origin, last[rank], vertices[b, rank])
    return -1

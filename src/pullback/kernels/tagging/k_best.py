"""The k best sequences of tags: Viterbi's recurrence over sorted lists, in O(n t² k), as `chain` has it for pairs."""

import numpy as np

from pullback.kernels.chain import merge
from pullback.kernels.tagging.tables import are_valid, join
from pullback.kernels.tools import inner, kernel


@inner
def _fill(scores, table, n, values, sizes, origin, extra, reached, merged, last):
    """All lists of one instance: values and sizes of two positions in turn; returns the size of the list of the end.

    origin[i] belongs to position i, `last` to the end.
    """
    t = scores.shape[1]
    for b in range(t):
        values[0, b, 0] = scores[0, b]
        sizes[0, b] = 1 if scores[0, b] > -np.inf else 0
    for i in range(1, n):
        old, new = (i - 1) % 2, i % 2
        for b in range(t):
            for a in range(t):
                extra[a] = table[a, b] + scores[i, b]
            sizes[new, b] = merge(values[old], sizes[old], extra, reached, values[new, b], origin[i, b])
    extra[:] = 0.0
    return merge(values[(n - 1) % 2], sizes[(n - 1) % 2], extra, reached, merged, last)


@inner
def _write(n, origin, place, vertex):
    """Writes the sequence that stands at `place` (list · k + rank) of the last position."""
    k = origin.shape[2]
    for i in range(n - 1, -1, -1):
        tag = place // k
        vertex[i, tag] = 1.0
        if i > 0:
            place = origin[i, tag, place % k]


@kernel
def topk(scores, table, lengths, k, vertices, size, lo, hi):
    """The k best sequences of each instance, best first, all different: vertices[b, rank] is shaped like scores[b].

    scores, table, lengths and the answer as in `sums`; k ≥ 1.  size[b] says how many there are, fewer than k only
    if there are no more; vertices are zero beyond.  An empty sequence is one, all zeros.
    """
    n, t = scores.shape[1:]
    values, sizes = np.empty((2, t, k)), np.empty((2, t), np.int64)
    origin, last, merged = np.empty((n, t, k), np.int64), np.zeros(k, np.int64), np.empty(k)
    extra, reached, joined = np.empty(t), np.empty(t, np.int64), np.empty((n, t))
    for b in range(lo, hi):
        vertices[b] = 0.0
        if not 0 <= lengths[b] <= n or not are_valid(scores[b], lengths[b]) or not are_valid(table[b], t + 2):
            return b
        size[b] = 1
        if lengths[b] > 0:
            join(scores[b], table[b], lengths[b], joined)
            size[b] = _fill(joined, table[b], lengths[b], values, sizes, origin, extra, reached, merged, last)
        if size[b] == 0:
            return b
        for rank in range(size[b] if lengths[b] > 0 else 0):
            _write(lengths[b], origin, last[rank], vertices[b, rank])
    return -1

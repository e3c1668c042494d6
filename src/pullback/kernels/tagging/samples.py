"""Exact samples of sequences of tags, drawn from left to right, as `chain` draws them for pairs."""

import numpy as np

from pullback.kernels.chain import backward, draw
from pullback.kernels.tagging.tables import write_pairs
from pullback.kernels.tools import kernel


@kernel
def sample(scores, table, lengths, seeds, count, drawn, lo, hi):
    """Independent exact samples, `count` for each instance: drawn[b, sample] is shaped like scores[b], zeros and ones.

    scores, table, lengths and the answer as in `sums`; seeds (batch,), int64: seeds[b] decides all samples of
    instance b.  One pass over the pairs of neighbors, on logarithms, then O(n t) for each sample.
    """
    n, t = scores.shape[1:]
    pairs, share = np.empty((n, t, t)), np.empty((n, t, t))
    total, random = np.empty((n, t)), np.empty(1, np.uint64)
    for b in range(lo, hi):
        drawn[b] = 0.0
        if not 0 <= lengths[b] <= n:
            return b
        if lengths[b] == 0:
            continue
        write_pairs(scores[b], table[b], lengths[b], pairs)
        if not backward(pairs, lengths[b], share, total) > -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for k in range(count):
            tag = 0
            for i in range(lengths[b]):
                tag = draw(share[i, tag], total[i, tag], random)
                drawn[b, k, i, tag] = 1.0
    return -1

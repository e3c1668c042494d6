"""Exact samples of sequences of tags, drawn from left to right.

`sweeps.backward` has summed over all that may follow: given tag a at position i − 1, the tag at position i is b in
proportion to share[i, a, b], and position 0 starts in row 0.  A tag with a positive share always leads on.
"""

import numpy as np

from pullback.kernels.chain.sweeps import backward
from pullback.kernels.tools import inner, kernel, uniform


@inner
def draw(share, total, random):
    """An index drawn in proportion to `share`, which sums to `total`."""
    left = uniform(random) * total
    chosen = 0
    for i in range(share.shape[0]):
        if share[i] > 0.0:  # rounding may leave a remainder behind the last one
            chosen = i
            left -= share[i]
            if left < 0.0:
                break
    return chosen


@kernel
def sample(scores, lengths, seeds, count, drawn, lo, hi):
    """Independent exact samples, `count` for each instance: drawn[b, sample] is shaped like scores[b], zeros and ones.

    scores, lengths and the answer as in `sums`; seeds (batch,), int64: seeds[b] decides all samples of instance b.
    One pass as for the log-partition, then O(n t) for each sample, besides clearing the output.
    """
    n, t = scores.shape[1:3]
    share, total, random = np.empty((n, t, t)), np.empty((n, t)), np.empty(1, np.uint64)
    for b in range(lo, hi):
        drawn[b] = 0.0
        if not 0 <= lengths[b] <= n:
            return b
        if not backward(scores[b], lengths[b], share, total) > -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for k in range(count):
            tag = 0
            for i in range(lengths[b]):
                before, tag = tag, draw(share[i, tag], total[i, tag], random)
                drawn[b, k, i, before, tag] = 1.0
    return -1

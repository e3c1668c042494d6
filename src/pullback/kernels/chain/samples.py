"""Exact samples of sequences of tags, read off the marginals from left to right.

Given the tag a at position i − 1, the tag at position i is b with a probability in proportion to p[i, a, b]; and
position 0 starts in row 0.
"""

import numpy as np

from pullback.kernels.chain.forward_backward import marginals_of, workspace
from pullback.kernels.chain.parts import total
from pullback.kernels.tools import inner, kernel, uniform

_NEVER = 1e-20  # far below the spacing of `uniform`: such a share could only be drawn by a zero


@inner
def _draw(shares, random):
    """An index drawn in proportion to `shares`."""
    mass = total(shares)
    left = uniform(random) * mass
    chosen = 0
    for i in range(shares.shape[0]):
        if shares[i] > _NEVER * mass:  # rounding may leave a remainder behind the last one
            chosen = i
            left -= shares[i]
            if left < 0.0:
                break
    return chosen


@kernel
def sample(scores, lengths, seeds, count, drawn, lo, hi):
    """Independent exact samples, `count` for each instance, drawn[b, sample, i, a, b]: zeros and ones.

    scores, lengths and the answer as in `sums.partition`; seeds (batch,), int64: seeds[b] decides all samples of
    instance b.  One pass of `sums.partition`, then O(n t) for each sample besides clearing the output.
    """
    n, t = scores.shape[1:3]
    work, marginals = workspace(n, t), np.empty((n, t, t))
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        drawn[b] = 0.0
        if not 0 <= lengths[b] <= n:
            return b
        if not marginals_of(scores[b], lengths[b], work, marginals) > -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for draw in range(count):
            tag = 0
            for i in range(lengths[b]):
                after = _draw(marginals[i, tag], random)
                drawn[b, draw, i, tag, after] = 1.0
                tag = after
    return -1

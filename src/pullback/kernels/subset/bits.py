"""Samples of independent bits."""

import numpy as np

from pullback.kernels.tools import kernel, uniform


@kernel
def sample_bits(chances, seeds, count, drawn, lo, hi):
    """Independent bits, each one with its chance: drawn[b, sample] is shaped like chances[b], zeros and ones.

    chances (batch, n); seeds (batch,), int64: seeds[b] decides all samples of instance b.  Returns −1.
    """
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        random[0] = np.uint64(seeds[b])
        for sample in range(count):
            for i in range(chances.shape[1]):
                drawn[b, sample, i] = 1.0 if uniform(random) < chances[b, i] else 0.0
    return -1

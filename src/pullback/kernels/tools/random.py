"""Random numbers inside a kernel: SplitMix64, whose whole state is one integer, so every instance owns a stream."""

import numpy as np

from pullback.kernels.tools.compilation import inner


@inner
def uniform(state):
    """The next number in [0, 1); `state` is an array of one uint64, the seed at first."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    bits = state[0]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return np.float64(bits >> np.uint64(11)) * 2.0**-53

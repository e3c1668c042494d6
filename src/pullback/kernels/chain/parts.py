"""What all sweeps over a chain ask of its scores: the pairs in use, whether they are fit, and their largest."""

import numpy as np

from pullback.kernels.tools import fmax, inner, summing


@inner
def pairs(x, i):
    """The pairs of position i in one row: all of them, but at position 0 those of row 0."""
    return x[0, 0] if i == 0 else x[i].reshape(x.shape[1] * x.shape[2])


@inner
def is_fit(scores, n):
    """Whether no score in use is NaN or +∞."""
    fit = True
    for i in range(n):
        row = pairs(scores, i)
        for j in range(row.shape[0]):
            fit &= row[j] < np.inf
    return fit


@inner
def largest(x):
    """max x; −∞ if it is empty.  NaN is ignored."""
    best = -np.inf
    for i in range(x.shape[0]):
        best = fmax(np.float64(x[i]), best)
    return best


@summing
def total(x):
    result = 0.0
    for i in range(x.shape[0]):
        result += x[i]
    return result

"""Picking a term of a sum Σ x·y: the best, or one drawn at random.  For reading an answer off a chart."""

from pullback.kernels.tools import semirings as ring
from pullback.kernels.tools.compilation import inner
from pullback.kernels.tools.random import uniform
from pullback.kernels.tools.vector import exp


@inner
def first_best(x, y, random):
    """The first index where x + y is largest."""
    best = 0
    for i in range(1, x.shape[0]):
        if x[i] + y[i] > x[best] + y[best]:
            best = i
    return best


@inner
def draw(x, y, random):
    """An index drawn in proportion to x · y."""
    left = uniform(random) * ring.dot(x, y)
    chosen = 0
    for i in range(x.shape[0]):
        share = x[i] * y[i]
        if share > 0.0:  # rounding may leave a remainder behind the last one
            chosen = i
            left -= share
            if left < 0.0:
                break
    return chosen


@inner
def draw_log(x, y, random):
    """An index drawn in proportion to exp(x + y)."""
    largest = ring.max_plus(x, y)
    left = uniform(random) * ring.sum_exp(x, y, largest)
    chosen = 0
    for i in range(x.shape[0]):
        share = exp(x[i] + y[i] - largest)
        if share > 0.0:
            chosen = i
            left -= share
            if left < 0.0:
                break
    return chosen

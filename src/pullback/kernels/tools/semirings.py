"""Semirings for dynamic programs: a dot product of two rows, a product, a sum, and what else a sweep asks for.

    linear         Σ x y
    (max, +)       max x + y
    logarithmic    log Σ exp(x + y): any scale, several times slower than linear
    dual           a + b ε with ε² = 0, kept as complex numbers: b is the derivative of a along some direction; either
                   linear or logarithmic

Only the dot products see rows; they vectorize, and everything else works on single numbers.
"""

import numpy as np

from pullback.kernels.tools.compilation import inner, summing
from pullback.kernels.tools.vector import exp, fmax


@inner
def add(x, y):
    return x + y


@inner
def max_plus(x, y):
    """max x + y; −∞ for empty rows."""
    best = -np.inf
    for i in range(x.shape[0]):
        best = fmax(x[i] + y[i], best)
    return best


@summing
def dot(x, y):
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@inner
def times(x, y):
    return x * y


@inner
def inverse(x):
    return 1.0 / x


@inner
def itself(x):
    return x


@summing
def sum_exp(x, y, shift):
    total = 0.0
    for i in range(x.shape[0]):
        total += exp(x[i] + y[i] - shift)
    return total


@inner
def log_dot(x, y):
    """log Σ exp(x + y)."""
    largest = max_plus(x, y)
    return largest + np.log(sum_exp(x, y, largest)) if largest > -np.inf else largest


@inner
def log_add(x, y):
    largest = max(x, y)
    return largest + np.log1p(exp(min(x, y) - largest)) if largest > -np.inf else largest


@inner
def negative(x):
    return -x


@summing
def dual_dot(x, y):
    value = 0.0
    slope = 0.0
    for i in range(x.shape[0]):
        value += x[i].real * y[i].real
        slope += x[i].real * y[i].imag + x[i].imag * y[i].real
    return complex(value, slope)


@inner
def dual_times(x, y):
    return complex(x.real * y.real, x.real * y.imag + x.imag * y.real)


@inner
def dual_inverse(x):
    return complex(1.0 / x.real, -x.imag / x.real / x.real)


@inner
def slope(x):
    return x.imag


@summing
def _dual_sum_exp(x, y, shift):
    value = 0.0
    slope = 0.0
    for i in range(x.shape[0]):
        share = exp(x[i].real + y[i].real - shift)
        value += share
        slope += share * (x[i].imag + y[i].imag)
    return complex(value, slope)


@inner
def dual_log_dot(x, y):
    largest = -np.inf
    for i in range(x.shape[0]):
        largest = fmax(x[i].real + y[i].real, largest)
    if largest == -np.inf:
        return complex(largest, 0.0)
    total = _dual_sum_exp(x, y, largest)
    return complex(largest + np.log(total.real), total.imag / total.real)


@inner
def dual_log_add(x, y):
    value = log_add(x.real, y.real)
    if value == -np.inf:
        return complex(value, 0.0)
    return complex(value, exp(x.real - value) * x.imag + exp(y.real - value) * y.imag)


@inner
def slope_of_exp(x):
    return exp(x.real) * x.imag

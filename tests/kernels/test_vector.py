"""The exponential and the logarithm that loops can vectorize, against high precision."""

import mpmath
import numpy as np
import pytest

from pullback.kernels.tools import kernel
from pullback.kernels.tools import vector as _vector


@kernel
def map_exp(x, y):
    for i in range(x.shape[0]):
        y[i] = _vector.exp(x[i])


@kernel
def map_log(x, y):
    for i in range(x.shape[0]):
        y[i] = _vector.log(x[i])


def relative_error(found, x, function):
    with mpmath.workdps(40):
        exact = [function(mpmath.mpf(float(v))) for v in x]
        return max(float(abs(a - b) / abs(b)) if b else float(abs(a)) for a, b in zip(map(mpmath.mpf, found), exact))


@pytest.mark.parametrize(("low", "high"), [(-1e-3, 1e-3), (-1, 1), (-700, 700)])
def test_exp_is_right_to_the_last_digits(low, high):
    x = np.random.default_rng(0).uniform(low, high, 1000)
    y = np.empty_like(x)
    map_exp(x, y)
    assert relative_error(y.tolist(), x, mpmath.exp) < 4e-16


def test_exp_of_very_low_numbers_is_zero_and_of_nan_is_nan():
    x, y = np.array([-np.inf, -709.0, 0.0, np.nan]), np.empty(4)
    map_exp(x, y)
    assert y[0] == y[1] == 0 and y[2] == 1 and np.isnan(y[3])


@pytest.mark.parametrize("kind", ["near one", "fractions", "all magnitudes"])
def test_log_is_right_to_the_last_digit(kind):
    random = np.random.default_rng(0)
    x = {
        "near one": np.append(1 + 1e-3 * random.standard_normal(1000), [1.0, np.nextafter(1, 0), np.nextafter(1, 2)]),
        "fractions": 1 - random.random(1000),
        "all magnitudes": np.append(10 ** random.uniform(-307, 308, 1000), 2.0 ** np.arange(-20, 20) * np.sqrt(0.5)),
    }[kind]
    y = np.empty_like(x)
    map_log(x, y)
    assert relative_error(y.tolist(), x, mpmath.log) < 3e-16

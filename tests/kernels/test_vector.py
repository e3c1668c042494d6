"""The exponential and the logarithm that loops can vectorize, against high precision, and sums of exponentials."""

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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 15, 16, 31, 40, 67])
def test_exponentials_add_up_to_what_the_maximum_lacks(n, dtype):
    x = 100 * np.random.default_rng(n).normal(size=n).astype(dtype)
    x[1::3] = -np.inf
    largest, out = _vector.maximum(x), np.empty(n)
    total = _vector.exponentials(x, largest, out)
    assert largest == x.max()
    with np.errstate(under="ignore"):
        np.testing.assert_allclose(out, np.exp(x.astype(float) - x.max()), rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(total, out.sum(), rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 15, 16, 31, 40, 67])
def test_nan_and_infinity_show_in_the_sum_of_exponentials_wherever_they_are(n, dtype):
    out = np.empty(n)
    assert _vector.exponentials(np.full(n, -np.inf, dtype), -np.inf, out) == 1.0 and (out == 0.0).all()
    for bad in (np.nan, np.inf):
        for rest in (-np.inf, 0.0, -1e4):
            for place in range(n):
                x = np.full(n, rest, dtype)
                x[place] = bad
                assert np.isnan(_vector.exponentials(x, _vector.maximum(x), out))

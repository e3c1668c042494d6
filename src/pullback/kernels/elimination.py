"""The sweeps of `matrix_tree` over `LANES` instances at once, and their derivatives along a direction.

Every matrix has the shape (N + ROWS, N, LANES): a few rows more than it needs, since products come `ROWS` at a time.
Columns and rows of `c` hold what is being gathered.  The `dual` functions carry each number x with its derivative dx:
sums and products of pairs, so that the second derivative costs three times the first and is as accurate.
"""

import numpy as np

from pullback.kernels._lanes import LANES, ROWS, dual_products, products
from pullback.kernels._vector import kernel


@kernel
def _column(x, k, count, out):
    for h in range(count):
        for lane in range(LANES):
            out[h, lane] = x[h, k, lane]


@kernel
def copy(source, count, target):
    for i in range(count):
        for lane in range(LANES):
            target[i, lane] = source[i, lane]


@kernel
def _clear(target, count):
    for i in range(count):
        for lane in range(LANES):
            target[i, lane] = 0.0


@kernel
def eliminate(x, size, single_root, z, stuck, c):
    """Z, and the first word whose pivot was zero (0: none).

    x comes with the weights and leaves with p[h, k] above the diagonal, d_k on it and w[k, m] as eliminated below.
    Column and row k gather at once what eliminating the words above k adds to them.
    """
    n = x.shape[1]
    z[:] = 1.0
    stuck[:] = 0
    d = np.empty(LANES)
    for k in range(size, 0, -1):
        _column(x, k, k, c)
        for h in range(0, k, ROWS):
            products(c, h, x, h * n + k + 1, n, 1, x, (k + 1) * n + k, n, size - k)
        for lane in range(LANES):
            d[lane] = 0.0
        for h in range(1 if single_root and k > 1 else 0, k):
            for lane in range(LANES):
                d[lane] += c[h, lane]
        for lane in range(LANES):
            x[k, k, lane] = d[lane]
            z[lane] *= d[lane]
            if d[lane] == 0.0 and stuck[lane] == 0:
                stuck[lane] = k
            d[lane] = 1.0 / d[lane]
        for h in range(k):
            for lane in range(LANES):
                x[h, k, lane] = c[h, lane] * d[lane]
        copy(x[k], k, c)
        for m in range(0, k, ROWS):
            products(c, m, x, (k + 1) * n + m, 1, n, x, k * n + k + 1, 1, size - k)
        copy(c, k, x[k])


@kernel
def adjoint(x, size, single_root, a, c):
    """Writes a = ∂ log Z/∂w, from the elimination."""
    n = x.shape[1]
    mean = np.empty(LANES)
    _clear(a[0], 1)
    for k in range(1, size + 1):
        _clear(c, k)
        for h in range(0, k, ROWS):
            products(c, h, a, h * n, n, 1, x, k * n, 1, k)
        for lane in range(LANES):
            mean[lane] = 0.0
        for h in range(k):
            for lane in range(LANES):
                mean[lane] += x[h, k, lane] * c[h, lane]
        for h in range(k):
            one = 0.0 if single_root and h == 0 and k > 1 else 1.0
            for lane in range(LANES):
                a[h, k, lane] = (c[h, lane] + one * (1.0 - mean[lane])) / x[k, k, lane]
        _clear(c, k)
        for m in range(0, k, ROWS):
            products(c, m, a, m, 1, n, x, k, n, k)
        copy(c, k, a[k])
        _clear(a[k, k:], 1)


@kernel
def dual_eliminate(x, dx, size, single_root, c, dc):
    """`eliminate` with derivatives; the pivots are known to be positive."""
    n = x.shape[1]
    d, dd = np.empty(LANES), np.empty(LANES)
    for k in range(size, 0, -1):
        _column(x, k, k, c)
        _column(dx, k, k, dc)
        for h in range(0, k, ROWS):
            dual_products(c, dc, h, x, dx, h * n + k + 1, n, 1, x, dx, (k + 1) * n + k, n, size - k)
        for lane in range(LANES):
            d[lane] = dd[lane] = 0.0
        for h in range(1 if single_root and k > 1 else 0, k):
            for lane in range(LANES):
                d[lane] += c[h, lane]
                dd[lane] += dc[h, lane]
        for lane in range(LANES):
            x[k, k, lane], dx[k, k, lane] = d[lane], dd[lane]
            d[lane] = 1.0 / d[lane]
        for h in range(k):
            for lane in range(LANES):
                p = c[h, lane] * d[lane]
                x[h, k, lane] = p
                dx[h, k, lane] = (dc[h, lane] - p * dd[lane]) * d[lane]
        copy(x[k], k, c)
        copy(dx[k], k, dc)
        for m in range(0, k, ROWS):
            dual_products(c, dc, m, x, dx, (k + 1) * n + m, 1, n, x, dx, k * n + k + 1, 1, size - k)
        copy(c, k, x[k])
        copy(dc, k, dx[k])


@kernel
def dual_adjoint(x, dx, size, single_root, a, da, c, dc):
    """`adjoint` with derivatives."""
    n = x.shape[1]
    mean, dmean = np.empty(LANES), np.empty(LANES)
    _clear(a[0], 1)
    _clear(da[0], 1)
    for k in range(1, size + 1):
        _clear(c, k)
        _clear(dc, k)
        for h in range(0, k, ROWS):
            dual_products(c, dc, h, a, da, h * n, n, 1, x, dx, k * n, 1, k)
        for lane in range(LANES):
            mean[lane] = dmean[lane] = 0.0
        for h in range(k):
            for lane in range(LANES):
                mean[lane] += x[h, k, lane] * c[h, lane]
                dmean[lane] += x[h, k, lane] * dc[h, lane] + dx[h, k, lane] * c[h, lane]
        for h in range(k):
            one = 0.0 if single_root and h == 0 and k > 1 else 1.0
            for lane in range(LANES):
                slope = (c[h, lane] + one * (1.0 - mean[lane])) / x[k, k, lane]
                a[h, k, lane] = slope
                da[h, k, lane] = (dc[h, lane] - one * dmean[lane] - slope * dx[k, k, lane]) / x[k, k, lane]
        _clear(c, k)
        _clear(dc, k)
        for m in range(0, k, ROWS):
            dual_products(c, dc, m, a, da, m, 1, n, x, dx, k, n, k)
        copy(c, k, a[k])
        copy(dc, k, da[k])
        _clear(a[k, k:], 1)
        _clear(da[k, k:], 1)

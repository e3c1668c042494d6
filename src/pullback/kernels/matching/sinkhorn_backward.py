"""The derivative of entropic matchings.

Prices change so that sums stay what they are where they have to be 1 or have a price:

    product_ij = μ_ij (gradient_ij − a_i − b_j)    with sums of 0 in these rows and columns
"""

import numpy as np

from pullback.kernels.matching.laplacian import new_system, solve_dense
from pullback.kernels.matching.wide import fits, load, unload
from pullback.kernels.tools import inner, kernel


@kernel
def sinkhorn_backward(lengths, optional, point, row_price, col_price, gradient, product, lo, hi):
    """The Jacobian of `sinkhorn`, which is symmetric, times `gradient`.

    point and prices are those `sinkhorn` wrote; gradient, product (batch, n, m).  O(n² m) for n ≤ m.
    """
    n, m = point.shape[1:]
    numbers, slopes, system = np.empty(n * m), np.empty(n * m), new_system(min(n, m), max(n, m))
    for b in range(lo, hi):
        if not fits(lengths[b], point[b]):
            return b
        mixture, transposed, _ = load(point[b], lengths[b], numbers)
        slope, _, _ = load(gradient[b], lengths[b], slopes)
        if transposed:
            _pull_back(mixture, slope, optional, col_price[b], row_price[b], system)
        else:
            _pull_back(mixture, slope, optional, row_price[b], col_price[b], system)
        unload(slope, transposed, product[b])
    return -1


@inner
def _pull_back(point, slope, optional, row_price, col_price, system):
    """Replaces the gradient `slope` by the product."""
    rows, cols = point.shape
    for j in range(cols):
        system.cols[j] = 0.0
        system.tight_cols[j] = (rows == cols and not optional) or col_price[j] > 0.0
    for i in range(rows):
        system.rows[i] = 0.0
        system.tight_rows[i] = not optional or row_price[i] > 0.0
        for j in range(cols):
            flow = point[i, j] * slope[i, j]
            system.rows[i] += flow
            system.cols[j] += flow
    solve_dense(point, system)
    for i in range(rows):
        for j in range(cols):
            slope[i, j] = point[i, j] * (slope[i, j] - (system.rows[i] + system.cols[j]))

"""SparseMAP for matchings: the nearest mixture of matchings, and its derivative.

By Birkhoff's theorem the mixtures are the matrices μ ≥ 0 whose rows and columns sum to 1 (or to at most 1, on the
larger side, and on both if the matching is optional).
"""

from pullback.kernels.matching.newton import BALANCED, collect, nearest, new_workspace, solve
from pullback.kernels.matching.wide import fits, load
from pullback.kernels.tools import inner, kernel

ZERO = 1e-12  # of a mixture, relative to the prices: below is rounding
LARGEST_ZERO = 1e-3  # beside larger prices mass cannot be told from rounding
LEAST_PRICE = 1e-30  # of a sum that is 1 although its price could be 0


@kernel
def project(scores, lengths, optional, point, row_price, col_price, lo, hi):
    """The mixture of matchings nearest to the scores of each instance, and its prices.

    scores, point (batch, n, m); lengths (batch, 2), the rows and columns in use; row_price (batch, n) and col_price
    (batch, m); all are zero in padding.  A sum that may be less than 1 has a price of at least 0, above 0 exactly if it
    is 1.  A step costs O(n m) and a solution of min(n, m) equations; half a dozen steps, a dozen for scores far apart.
    Returns the first instance without a matching, or with a score of NaN or +∞ or a length out of range, −2 − b if the
    search on instance b did not converge, else −1.
    """
    n, m = scores.shape[1:]
    w = new_workspace(n, m)
    for b in range(lo, hi):
        if not fits(lengths[b], scores[b]):
            return b
        rest, transposed, valid = load(scores[b], lengths[b], w.rest)
        if not valid:
            return b
        steps, feasible = nearest(rest, optional, w)
        if not feasible:
            return b
        if steps < 0:
            return -2 - b
        rows, cols = rest.shape
        least = 1.0 - (rows + cols) * BALANCED
        _price_tight(w.row_sum, least, rows, w.row_price)
        _price_tight(w.col_sum, least, cols, w.col_price)
        if transposed:
            is_told = _write(rest, w.row_price, w.col_price, point[b].T, col_price[b], row_price[b])
        else:
            is_told = _write(rest, w.row_price, w.col_price, point[b], row_price[b], col_price[b])
        if not is_told:
            return -2 - b
    return -1


@inner
def _price_tight(sums, least, count, price):
    """Gives a price to each sum that is 1, that is at least `least`, and has none.

    Where scores are equal, prices can move from rows to columns and back, and the search may leave a sum without one
    that cannot change.  It is off 1 by no more than all others together.
    """
    for k in range(count):
        if price[k] == 0.0 and sums[k] >= least:
            price[k] = LEAST_PRICE


@inner
def _write(rest, row_price, col_price, point, rows_out, cols_out):
    """Writes the point and its prices; returns whether its mass could be told from rounding."""
    rows, cols = rest.shape
    size = 1.0
    rows_out[:] = 0.0
    cols_out[:] = 0.0
    for i in range(rows):
        rows_out[i] = row_price[i]
        size = max(size, 1e-3 * abs(row_price[i]))
    for j in range(cols):
        cols_out[j] = col_price[j]
        size = max(size, 1e-3 * abs(col_price[j]))
    point[:] = 0.0
    for i in range(rows):
        for j in range(cols):
            if rest[i, j] > ZERO * size:
                point[i, j] = rest[i, j]
    return ZERO * size <= LARGEST_ZERO


@kernel
def project_backward(lengths, optional, point, row_price, col_price, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    The face has the pairs of the point, and sums of 1 where they have to be or have a price; its directions keep these
    sums.  point and prices are those `project` wrote; gradient, product (batch, n, m); the product is zero elsewhere.
    """
    n, m = point.shape[1:]
    w = new_workspace(n, m)
    for b in range(lo, hi):
        if not fits(lengths[b], point[b]):
            return b
        rest, transposed, _ = load(point[b], lengths[b], w.rest)
        product[b] = 0.0
        if transposed:
            _project_on_face(rest, optional, col_price[b], row_price[b], gradient[b].T, product[b].T, w)
        else:
            _project_on_face(rest, optional, row_price[b], col_price[b], gradient[b], product[b], w)
    return -1


@inner
def _project_on_face(point, optional, row_price, col_price, gradient, product, w):
    rows, cols = point.shape
    system = w.system
    collect(point, 0.0, w)
    for j in range(cols):
        system.cols[j] = 0.0
        system.tight_cols[j] = (rows == cols and not optional) or col_price[j] > 0.0
    for i in range(rows):
        system.rows[i] = 0.0
        system.tight_rows[i] = not optional or row_price[i] > 0.0
        for k in range(w.begin[i], w.begin[i + 1]):
            j = w.column[k]
            system.rows[i] += gradient[i, j]
            system.cols[j] += gradient[i, j]
    solve(rows, cols, 0.0, w)
    for i in range(rows):
        for k in range(w.begin[i], w.begin[i + 1]):
            j = w.column[k]
            product[i, j] = gradient[i, j] - (system.rows[i] + system.cols[j])

"""Entropic matching: the mixture that maximizes ⟨s, μ⟩ + H(μ), where H(μ) = −Σ μ log μ.

Over the same mixtures as SparseMAP.  With a price for each row and column the answer is

    μ_ij = exp(t_ij − u_i − v_j),    t_ij = s_ij − 1

where u, v minimize D(u, v) = Σ μ_ij + Σ u + Σ v; prices of sums that may be less than 1 are not negative.  Columns
always have their best prices, v_j = log Σ_i exp(t_ij − u_i) or 0, which leaves a convex function of u whose gradient is
1 less the sums of the rows.

  sweep   u_i += log of the sum of row i, Sinkhorn's iteration: the best prices of rows, with those of columns held
  step    Newton's on all prices of rows; its equations are those of `laplacian` with weights μ

Sweeps come first, and whenever a step does not help.  They converge slowly if scores are far apart.  Then the start
matters too, see `entropic_prices`; the derivative is in `sinkhorn_backward`.

All is computed with logarithms, relative to the prices of the start, so that scores may be of any size.

References: Sinkhorn (1964); Cuturi (2013); Brauer, Clason, Lorenz and Wirth (2017) for Newton's steps.
"""

import numpy as np

from pullback.kernels.matching.entropic_prices import begin, new_workspace
from pullback.kernels.matching.laplacian import solve_dense
from pullback.kernels.matching.wide import fits, load, unload
from pullback.kernels.tools import exp, fmax, inner, kernel, log, summing

SWEEPS = 4  # at least so many before the first step
NEAR = 0.5  # error from which on steps are tried
RELEASES = 4  # how often a step is tried, with fewer and fewer prices
AT_ONCE = 0.05  # share of a step
LONGEST = 20.0  # change of a price in a step
SMALLEST = 1e-300  # sums below cannot be inverted


@inner
def _tops(rest, row, top):
    """The largest rest_ij − row_i of each column, 0 for a column without any."""
    rows, cols = rest.shape
    top[:cols] = -np.inf
    for i in range(rows):
        here, price = rest[i], row[i]
        for j in range(cols):
            top[j] = fmax(here[j] - price, top[j])
    for j in range(cols):
        if top[j] == -np.inf:
            top[j] = 0.0


@inner
def _exponentials(rest, price, top, point, col_sum):
    """One row of exp(rest − price − top), added to col_sum."""
    for j in range(rest.shape[0]):
        point[j] = exp(rest[j] - price - top[j])
        col_sum[j] += point[j]


@summing
def _scale(point, factor):
    """Multiplies a row; returns its sum."""
    total = 0.0
    for j in range(point.shape[0]):
        point[j] *= factor[j]
        total += point[j]
    return total


@inner
def _evaluate(rest, row, signed_cols, point, w):
    """The mixture at prices `row`, with the best prices of columns and the sums of rows; returns D, shifted."""
    rows, cols = rest.shape
    factor = w.system.scaled
    _tops(rest, row, w.top)
    w.col_sum[:cols] = 0.0
    for i in range(rows):
        _exponentials(rest[i], row[i], w.top, point[i], w.col_sum)
    value = 0.0
    for j in range(cols):
        best = w.top[j] + log(w.col_sum[j]) if w.col_sum[j] > 0.0 else -np.inf
        w.col[j] = best if signed_cols else max(best, -w.col_base[j])
        factor[j] = 1.0 / w.col_sum[j] if w.col[j] == best else exp(w.top[j] - w.col[j])
        value += w.col[j]
    for i in range(rows):
        w.row_sum[i] = _scale(point[i], factor)
        value += w.row_sum[i] + row[i]
    return value


@inner
def _error(rows, signed_rows, row, w):
    """Marks the tight rows; returns how far the sum of one of them is off 1."""
    error = 0.0
    for i in range(rows):
        tight = signed_rows or w.row_base[i] + row[i] > 0.0 or w.row_sum[i] > 1.0
        w.system.tight_rows[i] = tight
        error = max(error, abs(w.row_sum[i] - 1.0) if tight else 0.0)
    return error


@inner
def _sweep(rows, signed_rows, row, w):
    """Sinkhorn's iteration for the prices `row`, whose sums are known."""
    for i in range(rows):
        row[i] += log(max(w.row_sum[i], SMALLEST))
        if not signed_rows:
            row[i] = max(row[i], -w.row_base[i])


@inner
def _newton(rest, value, signed_rows, signed_cols, cautious, point, w):
    """One step of Newton's: (whether D decreases, the new D).

    If prices stand in the way because they would have to become negative, the step is repeated without them; if it is
    `cautious`, those that would be negative almost at once are left out from the beginning.
    """
    rows, cols = rest.shape
    slope = w.system.vectors[0]
    for i in range(rows):
        slope[i] = 1.0 - w.row_sum[i]
    for j in range(cols):
        w.system.tight_cols[j] = signed_cols or w.col_base[j] + w.col[j] > 0.0
        w.old_col[j] = w.col[j]
    for attempt in range(RELEASES):
        for i in range(rows):
            w.system.rows[i] = -slope[i]
        for j in range(cols):
            w.system.cols[j] = 0.0
        solve_dense(point, w.system)
        if cautious and attempt == 0 and _release(rows, cols, signed_rows, signed_cols, AT_ONCE, w):
            continue
        better, new = _search(rest, value, slope, signed_rows, signed_cols, point, w)
        if better or not _release(rows, cols, signed_rows, signed_cols, 1.0, w):
            return better, new
        _evaluate(rest, w.row, signed_cols, point, w)
    return False, value


@inner
def _search(rest, value, slope, signed_rows, signed_cols, point, w):
    """Goes along the solution of the system, then sweeps, until D decreases enough: (whether it does, the new D).

    The price of a column that becomes 0 on the way stops there, and D bends upward.  The sweep corrects its row.
    """
    rows = rest.shape[0]
    longest = 0.0
    for i in range(rows):
        longest = max(longest, abs(w.system.rows[i]))
    length = min(1.0, LONGEST / longest) if longest > 0.0 else 1.0
    corner = _first_corner(rows, rest.shape[1], signed_rows, signed_cols, w)
    for _ in range(6):
        promised = 0.0
        for i in range(rows):
            w.trial[i] = w.row[i] + length * w.system.rows[i]
            if not signed_rows:
                w.trial[i] = max(w.trial[i], -w.row_base[i])
            promised += (w.trial[i] - w.row[i]) * slope[i]
        _evaluate(rest, w.trial, signed_cols, point, w)
        _sweep(rows, signed_rows, w.trial, w)
        new = _evaluate(rest, w.trial, signed_cols, point, w)
        if new - value <= 1e-4 * promised + 1e-14 * (rows + abs(value)):
            w.row[:rows] = w.trial[:rows]
            return True, new
        length = corner if 1e-9 < corner < length else 0.25 * length
        corner = np.inf
    return False, value


@inner
def _first_corner(rows, cols, signed_rows, signed_cols, w):
    """How far along the solution of the system a price becomes 0, and a bit further."""
    first = np.inf
    for i in range(rows):
        if not signed_rows and w.system.rows[i] < 0.0:
            first = min(first, -(w.row_base[i] + w.row[i]) / w.system.rows[i])
    for j in range(cols):
        if not signed_cols and w.system.cols[j] < 0.0:
            first = min(first, -(w.col_base[j] + w.old_col[j]) / w.system.cols[j])
    return 1.001 * first


@inner
def _release(rows, cols, signed_rows, signed_cols, share, w):
    """Takes out prices that this share of the step would make negative: their sums may change.  False if none is."""
    found = False
    for i in range(rows):
        if not signed_rows and w.system.tight_rows[i]:
            if w.row_base[i] + w.row[i] + share * w.system.rows[i] < 0.0:
                w.system.tight_rows[i], found = False, True
    for j in range(cols):
        if not signed_cols and w.system.tight_cols[j]:
            if w.col_base[j] + w.old_col[j] + share * w.system.cols[j] < 0.0:
                w.system.tight_cols[j], found = False, True
    return found


@inner
def _maximize(rest, optional, tolerance, max_iterations, point, w):
    """(iterations, error) of one instance; an iteration is a sweep or a step."""
    rows, cols = rest.shape
    signed_rows, signed_cols = not optional, not optional and rows == cols
    w.row[:rows] = 0.0
    value = _evaluate(rest, w.row, signed_cols, point, w)
    error = _error(rows, signed_rows, w.row, w)
    iteration, wait = 0, SWEEPS
    while error > tolerance and iteration < max_iterations:
        iteration += 1
        if iteration > wait and error < NEAR:
            cautious = iteration % 2 == 0  # neither way is always the better one
            better, value = _newton(rest, value, signed_rows, signed_cols, cautious, point, w)
            if not better:
                value = _evaluate(rest, w.row, signed_cols, point, w)
                wait = iteration + SWEEPS
        else:
            _sweep(rows, signed_rows, w.row, w)
            value = _evaluate(rest, w.row, signed_cols, point, w)
        error = _error(rows, signed_rows, w.row, w)
    return iteration, error


@kernel
def sinkhorn(
    scores, lengths, optional, start_rows, start_cols, tolerance, max_iterations,
    point, row_price, col_price, iterations, error, lo, hi,
):  # fmt: skip
    """The entropic matching of each instance, with its prices.

    scores, point (batch, n, m); lengths (batch, 2), the rows and columns in use; row_price (batch, n) and col_price
    (batch, m); all are zero in padding.  The search begins with the prices start_rows or
    start_cols, those of the smaller side, unless they have a length of 0.  It ends when no sum is off by more than the
    tolerance, or after max_iterations; iterations and error (batch,) tell.  An iteration costs O(n m), or O(n² m) with
    Newton's method for n ≤ m.  Returns the first instance without a matching, or with a score of NaN or +∞ or a length
    out of range, or −1.
    """
    n, m = scores.shape[1:]
    w = new_workspace(n, m)
    for b in range(lo, hi):
        if not fits(lengths[b], scores[b]):
            return b
        rest, transposed, valid = load(scores[b], lengths[b], w.rest)
        if not valid or not begin(rest, optional, start_cols[b] if transposed else start_rows[b], w):
            return b
        rows, cols = rest.shape
        mixture = w.point[: rows * cols].reshape(rows, cols)
        iterations[b], error[b] = _maximize(rest, optional, tolerance, max_iterations, mixture, w)
        unload(mixture, transposed, point[b])
        if transposed:
            _write_prices(rows, cols, w, col_price[b], row_price[b])
        else:
            _write_prices(rows, cols, w, row_price[b], col_price[b])
    return -1


@inner
def _write_prices(rows, cols, w, row_price, col_price):
    row_price[:] = 0.0
    col_price[:] = 0.0
    for i in range(rows):
        row_price[i] = w.row_base[i] + w.row[i]
    for j in range(cols):
        col_price[j] = w.col_base[j] + w.col[j]

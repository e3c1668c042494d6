"""Sparsemax and 1.5-entmax of each row of scores, in linear time and without a sort.

Both are y = (s(x − max x) − τ)₊^(1/s), s = 1 for sparsemax and ½ for 1.5-entmax, with τ in [−1, 0) such that Σ y = 1.
Newton's method finds τ from below: on Σ (z − τ)₊ = 1 for sparsemax (Michelot's algorithm), and on ‖(z − τ)₊‖ = 1 for
1.5-entmax.  These functions are convex, so τ only grows, and linear where the entries kept are equal: steps are few.

Among fewer entries τ is never larger.  A long row is therefore first solved for the maxima of its blocks; a block below
that τ is zero and not read again.  Short rows are turned on their side and solved many at a time, as the lanes of
vector instructions.

Scores are first taken relative to the largest and stored so: subtracting (max + τ) at once would lose τ beside large
scores.  Every kernel returns the first row with NaN, +∞ or no finite score, else −1.

Reference: Martins and Astudillo (2016); Peters, Niculae and Martins (2019).
"""

import numpy as np

from pullback.kernels._vector import fmax, kernel, summing

SHORT, TILE = 48, 256  # rows up to SHORT are solved side by side, TILE of them
LONG, BLOCK = 2048, 128  # rows above LONG are solved by blocks


def sparsemax(x, y, lo, hi):
    """The point of the simplex nearest to each row of `x`: y = (x − τ)₊."""
    return _forward(x, True, y, lo, hi)


def entmax15(x, y, lo, hi):
    """1.5-entmax of each row of `x`: y = (x/2 − τ)₊²."""
    return _forward(x, False, y, lo, hi)


def sparsemax_backward(y, g, out, lo, hi):
    """The gradient of sparsemax at its output `y`: on the support, g minus its mean there."""
    return _backward(y, g, True, out, lo, hi)


def entmax15_backward(y, g, out, lo, hi):
    """The gradient of 1.5-entmax at its output `y`: √y (g − ⟨√y, g⟩ / Σ√y)."""
    return _backward(y, g, False, out, lo, hi)


@kernel
def _forward(x, sparse, y, lo, hi):
    """One machine code for both; compiled into each of them it would be compiled twice."""
    if x.shape[1] <= SHORT:
        return _short_rows(x, sparse, y, lo, hi)
    return _long_rows(x, sparse, y, lo, hi)


# ---- long rows


@kernel
def _long_rows(x, sparse, y, lo, hi):
    n = x.shape[1]
    width = n if n <= LONG else BLOCK
    blocks = (n + width - 1) // width
    top = np.empty((1, blocks), x.dtype)
    z = np.empty((blocks, width), x.dtype)
    scale = x.dtype.type(1.0 if sparse else 0.5)
    for r in range(lo, hi):
        row, out = x[r], y[r]
        best = x.dtype.type(-np.inf)
        total = 0.0
        for k in range(blocks):
            top[0, k], part = _top_and_sum(row[k * width : (k + 1) * width])
            best = fmax(top[0, k], best)
            total += part
        if (np.isnan(total) or not np.isfinite(best)) and _unsolvable(row):
            return r
        for k in range(blocks):
            top[0, k] = fmax(scale * (top[0, k] - best), x.dtype.type(-2))
        bound = _threshold(top, sparse, -1.0)
        live = 0
        for k in range(blocks):
            if top[0, k] > bound:
                _shift(row[k * width : (k + 1) * width], best, scale, z[live])
                live += 1
        tau = x.dtype.type(_threshold(z[:live], sparse, bound))
        live = 0
        for k in range(blocks):
            piece = out[k * width : (k + 1) * width]
            if top[0, k] > bound:
                _cut(z[live], tau, sparse, piece)
                live += 1
            else:
                piece[:] = 0
    return -1


@summing
def _top_and_sum(x):
    """The maximum, and a sum that is NaN if an entry is (or, rarely, after an overflow)."""
    top = x.dtype.type(-np.inf)
    total = x.dtype.type(0)
    for i in range(x.shape[0]):
        top = fmax(x[i], top)
        total += x[i]
    return top, total


@kernel
def _unsolvable(row):
    """Whether the row holds NaN, +∞ or nothing finite."""
    finite = False
    for score in row:
        if np.isnan(score) or score == np.inf:
            return True
        finite |= score > -np.inf
    return not finite


@kernel
def _shift(x, best, scale, z):
    """z = scale (x − best), no lower than matters (−∞ times zero would be NaN); the rest of `z` as low."""
    low = x.dtype.type(-2)
    for i in range(x.shape[0]):
        z[i] = fmax(scale * (x[i] - best), low)
    for i in range(x.shape[0], z.shape[0]):
        z[i] = low


@kernel
def _threshold(z, sparse, tau):
    """Newton's method for τ over the blocks of `z`, from a lower bound."""
    small = 1e-6 if z.itemsize == 4 else 1e-14
    previous = np.inf
    while True:
        t = z.dtype.type(tau)
        first = 0.0
        second = 0.0
        for k in range(z.shape[0]):
            u, v = _count_and_mass(z[k], t) if sparse else _moments(z[k], t)
            first += u
            second += v
        step = (second - (1.0 if sparse else np.sqrt(second))) / first
        tau = t + step
        if first >= previous if sparse else step <= small:
            return tau
        previous = first


@summing
def _count_and_mass(z, t):
    """How many entries exceed t, and by how much in total."""
    zero, one = z.dtype.type(0), z.dtype.type(1)
    count, mass = zero, zero
    for i in range(z.shape[0]):
        kept = one if z[i] > t else zero  # one factor: two selects would not vectorize
        count += kept
        mass += kept * (z[i] - t)
    return count, mass


@summing
def _moments(z, t):
    """Σ (z − t)₊ and Σ (z − t)₊²."""
    zero = z.dtype.type(0)
    first, second = zero, zero
    for i in range(z.shape[0]):
        d = fmax(z[i] - t, zero)
        first += d
        second += d * d
    return first, second


@kernel
def _cut(z, t, sparse, y):
    """y = (z − t)₊, squared unless sparse."""
    zero = z.dtype.type(0)
    if sparse:
        for i in range(y.shape[0]):
            y[i] = fmax(z[i] - t, zero)
    else:
        for i in range(y.shape[0]):
            d = fmax(z[i] - t, zero)
            y[i] = d * d


# ---- short rows, side by side: z[i, j] is entry i of row j


@kernel
def _short_rows(x, sparse, y, lo, hi):
    n = x.shape[1]
    lanes = min(TILE, hi - lo)
    z = np.empty((n, lanes), x.dtype)
    lane = np.empty((5, lanes), x.dtype)
    best, total, first, second, tau = lane[0], lane[1], lane[2], lane[3], lane[4]
    scale = x.dtype.type(1.0 if sparse else 0.5)
    for tile in range(lo, hi, TILE):
        start = min(tile, hi - lanes)  # the last tile reaches back
        _transpose(x[start : start + lanes], z)
        best[:] = -np.inf
        total[:] = 0
        for i in range(n):
            _lane_top_and_sum(z[i], best, total)
        for j in range(lanes):
            if (np.isnan(total[j]) or not np.isfinite(best[j])) and _unsolvable(x[start + j]):
                return start + j
        for i in range(n):
            _lane_shift(z[i], best, scale)
        _lane_threshold(z, sparse, tau, first, second)
        for i in range(n):
            _lane_cut(z[i], tau, sparse)
        _transpose(z, y[start : start + lanes])
    return -1


@kernel
def _transpose(a, b):
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] = a[j, i]


@kernel
def _lane_top_and_sum(z, best, total):
    for j in range(z.shape[0]):
        best[j] = fmax(z[j], best[j])
        total[j] += z[j]


@kernel
def _lane_shift(z, best, scale):
    low = z.dtype.type(-2)
    for j in range(z.shape[0]):
        z[j] = fmax(scale * (z[j] - best[j]), low)


@kernel
def _lane_threshold(z, sparse, tau, first, second):
    """Newton's method for the τ of every lane, until the last one has settled."""
    small = z.dtype.type(1e-6 if z.itemsize == 4 else 1e-14)
    tau[:] = -1
    moved = z.dtype.type(1)
    while moved > small:
        first[:] = 0
        second[:] = 0
        if sparse:
            for i in range(z.shape[0]):
                _lane_count_and_mass(z[i], tau, first, second)
        else:
            for i in range(z.shape[0]):
                _lane_moments(z[i], tau, first, second)
        moved = _lane_step(tau, first, second, sparse)


@summing
def _lane_step(tau, first, second, sparse):
    largest = tau.dtype.type(0)
    one = tau.dtype.type(1)
    if sparse:
        for j in range(tau.shape[0]):
            step = (second[j] - one) / first[j]
            tau[j] += step
            largest = fmax(step, largest)
    else:
        for j in range(tau.shape[0]):
            step = (second[j] - np.sqrt(second[j])) / first[j]
            tau[j] += step
            largest = fmax(step, largest)
    return largest


@kernel
def _lane_count_and_mass(z, t, count, mass):
    zero, one = z.dtype.type(0), z.dtype.type(1)
    for j in range(z.shape[0]):
        kept = one if z[j] > t[j] else zero
        count[j] += kept
        mass[j] += kept * (z[j] - t[j])


@kernel
def _lane_moments(z, t, first, second):
    zero = z.dtype.type(0)
    for j in range(z.shape[0]):
        d = fmax(z[j] - t[j], zero)
        first[j] += d
        second[j] += d * d


@kernel
def _lane_cut(z, t, sparse):
    zero = z.dtype.type(0)
    for j in range(z.shape[0]):
        d = fmax(z[j] - t[j], zero)
        z[j] = d if sparse else d * d


# ---- backward


@kernel
def _backward(y, g, sparse, out, lo, hi):
    """s (g − ⟨s, g⟩ / Σ s), with s = [y > 0] or √y."""
    n = y.shape[1]
    group = max(1, LONG // max(1, n))  # short rows share one loop over their weights
    weight = np.empty((group, n), y.dtype)
    for start in range(lo, hi, group):
        rows = y[start : min(start + group, hi)]
        _weights(rows.reshape(-1), sparse, weight.reshape(-1))
        for j in range(rows.shape[0]):
            r = start + j
            s = weight[j]
            size = 0.0
            inner = 0.0
            for k in range(0, n, LONG):
                u, v = _sum_and_inner(s[k : k + LONG], g[r, k : k + LONG])
                size += u
                inner += v
            _center(s, g[r], y.dtype.type(inner / size), out[r])
    return -1


@kernel
def _weights(y, sparse, s):
    zero, one = y.dtype.type(0), y.dtype.type(1)
    if sparse:
        for i in range(y.shape[0]):
            s[i] = one if y[i] > zero else zero
    else:
        for i in range(y.shape[0]):
            s[i] = np.sqrt(y[i])


@summing
def _sum_and_inner(s, g):
    total, inner = s.dtype.type(0), s.dtype.type(0)
    for i in range(s.shape[0]):
        total += s[i]
        inner += s[i] * g[i]
    return total, inner


@kernel
def _center(s, g, mean, out):
    for i in range(s.shape[0]):
        out[i] = s[i] * (g[i] - mean)

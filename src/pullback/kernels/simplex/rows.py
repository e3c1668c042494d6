"""Sparsemax and 1.5-entmax of each row of scores, in linear time and without a sort.

Both are y = (s(x − max x) − τ)₊^(1/s), s = 1 for sparsemax and ½ for 1.5-entmax, with τ in [−1, 0) such that Σ y = 1.
Newton's method finds τ from below: on Σ (z − τ)₊ = 1 for sparsemax (Michelot's algorithm), and on ‖(z − τ)₊‖ = 1 for
1.5-entmax.  These functions are convex, so τ only grows, and linear where the entries kept are equal: steps are few.

Among fewer entries τ is never larger.  A row is therefore first solved for the maxima of its blocks, which gives a
close start; in a long row, a block below that start is zero and not read again.  Short rows are turned on their side
and solved many at a time, as the lanes of vector instructions.

Scores are first taken relative to the largest and stored so: subtracting (max + τ) at once would lose τ beside large
scores.  The four entries are plain functions, so that only the case at hand is compiled, and once for both mappings.
Every kernel returns the first row with NaN, +∞ or no finite score, else −1.

Reference: Martins and Astudillo (2016); Peters, Niculae and Martins (2019).
"""

import numpy as np

from pullback.kernels.simplex.short_rows import short_rows, unsolvable
from pullback.kernels.tools import fmax, inner, kernel, summing

SHORT = 96  # rows up to here are solved side by side
LONG, BLOCK = 2048, 128  # rows above LONG leave out whole blocks


def sparsemax(x, y, lo, hi):
    """The point of the simplex nearest to each row of `x`: y = (x − τ)₊."""
    return (short_rows if x.shape[1] <= SHORT else _long_rows)(x, True, y, lo, hi)


def entmax15(x, y, lo, hi):
    """1.5-entmax of each row of `x`: y = (x/2 − τ)₊²."""
    return (short_rows if x.shape[1] <= SHORT else _long_rows)(x, False, y, lo, hi)


def sparsemax_backward(y, g, out, lo, hi):
    """The gradient of sparsemax at its output `y`: on the support, g minus its mean there."""
    return (_backward if y.shape[1] <= LONG else _backward_by_blocks)(y, g, True, out, lo, hi)


def entmax15_backward(y, g, out, lo, hi):
    """The gradient of 1.5-entmax at its output `y`: √y (g − ⟨√y, g⟩ / Σ√y)."""
    return (_backward if y.shape[1] <= LONG else _backward_by_blocks)(y, g, False, out, lo, hi)


# ---- forward


@kernel
def _long_rows(x, sparse, y, lo, hi):
    n = x.shape[1]
    blocks = (n + BLOCK - 1) // BLOCK
    top = np.empty((1, blocks), x.dtype)
    z = np.empty((blocks, BLOCK), x.dtype)
    whole = np.empty((1, min(n, LONG)), x.dtype)
    scale = x.dtype.type(1.0 if sparse else 0.5)
    for r in range(lo, hi):
        row, out = x[r], y[r]
        best = x.dtype.type(-np.inf)
        total = 0.0
        for k in range(blocks):
            top[0, k], part = _top_and_sum(row[k * BLOCK : (k + 1) * BLOCK])
            best = fmax(top[0, k], best)
            total += part
        if (np.isnan(total) or not np.isfinite(best)) and unsolvable(row):
            return r
        for k in range(blocks):
            top[0, k] = fmax(scale * (top[0, k] - best), x.dtype.type(-2))
        bound = _threshold(top, sparse, -1.0)
        if n <= LONG:  # to leave out some of few blocks costs more than it saves
            _shift(row, best, scale, whole[0])
            tau = x.dtype.type(_threshold(whole, sparse, bound))
            _cut(whole[0], tau, sparse, out)
            continue
        live = 0
        for k in range(blocks):
            if top[0, k] > bound:
                _shift(row[k * BLOCK : (k + 1) * BLOCK], best, scale, z[live])
                live += 1
        tau = x.dtype.type(_threshold(z[:live], sparse, bound))
        live = 0
        for k in range(blocks):
            piece = out[k * BLOCK : (k + 1) * BLOCK]
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


@inner
def _shift(x, best, scale, z):
    """z = scale (x − best), no lower than matters (−∞ times zero would be NaN); the rest of `z` as low."""
    low = x.dtype.type(-2)
    for i in range(x.shape[0]):
        z[i] = fmax(scale * (x[i] - best), low)
    for i in range(x.shape[0], z.shape[0]):
        z[i] = low


@inner
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


@inner
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


# ---- backward


@kernel
def _backward(y, g, sparse, out, lo, hi):
    """s (g − m) with m = ⟨s, g⟩ / Σ s, where s = [y > 0] or √y."""
    n = y.shape[1]
    group = LONG // max(1, n)  # short rows are faster together, each loop over all of them
    weight = np.empty((group, n), y.dtype)
    mean = np.empty(group, y.dtype)
    for start in range(lo, hi, group):
        rows = y[start : min(start + group, hi)]
        _weights(rows.reshape(-1), sparse, weight.reshape(-1))
        for j in range(rows.shape[0]):
            size, inner = _sum_and_inner(weight[j], g[start + j])
            mean[j] = inner / size
        for j in range(rows.shape[0]):
            _center(weight[j], g[start + j], mean[j], out[start + j])
    return -1


@kernel
def _backward_by_blocks(y, g, sparse, out, lo, hi):
    """The same by blocks: where a block of y is zero, g is not read."""
    n = y.shape[1]
    live = np.empty((n + BLOCK - 1) // BLOCK, np.int64)
    weight = np.empty((live.shape[0], BLOCK), y.dtype)
    for r in range(lo, hi):
        row, gradient, result = y[r], g[r], out[r]
        size, inner = 0.0, 0.0
        count = 0
        for k in range(0, n, BLOCK):
            piece = row[k : k + BLOCK]
            if _top_and_sum(piece)[1] == 0:
                result[k : k + BLOCK] = 0
                continue
            s = weight[count, : piece.shape[0]]
            _weights(piece, sparse, s)
            u, v = _sum_and_inner(s, gradient[k : k + BLOCK])
            size += u
            inner += v
            live[count] = k
            count += 1
        mean = y.dtype.type(inner / size)
        for c in range(count):
            k = live[c]
            piece = result[k : k + BLOCK]
            _center(weight[c, : piece.shape[0]], gradient[k : k + BLOCK], mean, piece)
    return -1


@inner
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


@inner
def _center(s, g, mean, out):
    for i in range(s.shape[0]):
        out[i] = s[i] * (g[i] - mean)

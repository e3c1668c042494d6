"""Sums over all dependency trees by elimination without subtraction: log-partition, marginals and their derivative.

The weight of a tree is the product of w[h, m] = exp(score[h, m]) over its arcs.  Each word has one head, so a column
may be scaled at will; scaled to sum to one, Z is the probability that heads drawn independently form a tree.  By the
matrix-tree theorem Z = Π d_k, where eliminating the words k = n … 1 (Grassmann, Taksar and Heyman, 1985) means

    d_k = Σ_{h<k} w[h, k],    p[h, k] = w[h, k] / d_k,    w[h, m] += p[h, k] w[k, m]    for h, m < k.

Sums, products and quotients of positive numbers: Z has full relative accuracy however peaked the scores are, where a
determinant by LU loses all digits.  Backwards, k = 1 … n, with a = ∂ log Z/∂w,

    c_h = Σ_m a[h, m] w[k, m],    a[k, m] = Σ_h p[h, k] a[h, m],    a[h, k] = (1 + c_h − Σ_h p[h, k] c_h) / d_k,

and the marginals are w a.  Since p[h, k] c_h ≤ n, that one difference costs n machine epsilons.

**One root.**  The coefficient of the first power of the root's weights: leave h = 0 out of every d_k but the last, d_1.
A word k whose d_k is then zero cannot be reached from any word left.  If there is a tree, its root word r reaches k,
hence r is k itself or was eliminated before it; since the pivots before were positive, such an r is
in turn reached from k.  So k reaches all words, and exchanging it with word 1 makes every pivot but d_1 positive.
Stuck a second time, or without `single_root`, means that there is no tree.

**Range.**  Weights below 1e-307 are rounded to zero, and so is any term of the sums.  Column sums stay at most one
through the elimination, so each rounding takes at most 1e-307 from Z: as long as Z is above n³ 1e-291 nothing is lost.
Otherwise the instance is done again on logarithms (`matrix_tree_log`).

**Layout.**  `LANES` instances go through the sweeps together, the last axis of every array; shorter sentences are
filled up with words that have no other head than word 1, and change nothing.
"""

import numpy as np

from pullback.kernels import matrix_tree_log
from pullback.kernels._lanes import LANES, ROWS
from pullback.kernels._vector import exp, fmax, kernel
from pullback.kernels.elimination import adjoint, copy, dual_adjoint, dual_eliminate, eliminate

_LOWEST = -np.finfo(np.float64).max


@kernel
def _maximum(row, shift):
    for i in range(row.shape[0]):
        shift[i] = fmax(row[i], shift[i])


@kernel
def _exponentials(row, shift):
    for i in range(row.shape[0]):
        row[i] = exp(row[i] - shift[i])


@kernel
def _accumulate(row, total):
    for i in range(row.shape[0]):
        total[i] += row[i]


@kernel
def _scale(row, factor):
    for i in range(row.shape[0]):
        row[i] *= factor[i]


@kernel
def _pack(source, n, size, lane, target):
    """Writes the arcs among n words into a lane; False if one is NaN or +∞.

    The others get −∞, but the words n + 1 … size hang from word 1 with a score of zero, and word 1 from the root.
    """
    valid = True
    for h in range(size + 1):
        row = target[h]
        for m in range(size + 1):
            row[m, lane] = -np.inf
        if h <= n:
            for m in range(1, n + 1):
                if m != h:
                    x = np.float64(source[h, m])
                    valid &= x < np.inf
                    row[m, lane] = x
    for m in range(n + 1, size + 1):
        target[min(m - 1, 1), m, lane] = 0.0
    return valid


@kernel
def exchanged(word, last):
    """The word in the place of `word` once word 1 and `last` have changed places."""
    return last if word == 1 else 1 if word == last else word


@kernel
def _exchange(x, size, k, lane):
    """Makes word 1 and word k change places."""
    for i in range(size + 1):
        x[1, i, lane], x[k, i, lane] = x[k, i, lane], x[1, i, lane]
    for i in range(size + 1):
        x[i, 1, lane], x[i, k, lane] = x[i, k, lane], x[i, 1, lane]


@kernel
def _normalize(w, size, scale):
    """Turns scores into weights whose columns sum to one; scale is what that takes from the log-partition."""
    width = (size + 1) * LANES
    rows = w.reshape(w.shape[0], w.shape[1] * LANES)
    shift, sums = np.full(width, _LOWEST), np.zeros(width)
    for h in range(size + 1):
        _maximum(rows[h, :width], shift)
    for h in range(size + 1):
        _exponentials(rows[h, :width], shift)
        _accumulate(rows[h, :width], sums)
    for lane in range(LANES):
        scale[lane], product = 0.0, 1.0
        for i in range(LANES + lane, width, LANES):
            scale[lane] += shift[i]
            product *= sums[i]
            if product > 1e250:
                scale[lane] += np.log(product)
                product = 1.0
        scale[lane] += np.log(product)
    for i in range(width):
        sums[i] = 1.0 / sums[i] if sums[i] > 0.0 else 0.0
    for h in range(size + 1):
        _scale(rows[h, :width], sums)


@kernel
def workspace(size):
    """Weights, elimination, adjoint; a column; and per lane: Z, the scale, the exchanged word, where it was stuck."""
    shape = (size + ROWS, size, LANES)
    lanes = np.zeros((2, LANES))
    return (
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.empty((size + ROWS, LANES)),
        lanes[0],
        lanes[1],
        np.empty(LANES, np.int64),
        np.empty(LANES, np.int64),
    )


@kernel
def factorize(scores, lengths, single_root, first, stop, work):
    """Weights and elimination of the instances first … stop − 1; returns the longest length.

    Z is NaN where a score is, and zero where it is too small to be trusted.
    """
    w, x, _, c, z, scale, last, stuck = work
    size = lengths[first:stop].max()
    last[:] = 1
    valid = np.ones(LANES, np.bool_)
    for lane in range(LANES):
        b = min(first + lane, stop - 1)  # the last instance fills the lanes that are left
        valid[lane] = _pack(scores[b], lengths[b], size, lane, w)
    _normalize(w, size, scale)
    for h in range(size + 1):
        copy(w[h], size + 1, x[h])
    eliminate(x, size, single_root, z, stuck, c)
    if single_root and stuck.max() > 1:
        for lane in range(LANES):
            if stuck[lane] > 1:
                last[lane] = stuck[lane]
                _exchange(w, size, last[lane], lane)
        for h in range(size + 1):
            copy(w[h], size + 1, x[h])
        eliminate(x, size, single_root, z, stuck, c)
    for lane in range(LANES):
        if not valid[lane]:
            z[lane] = np.nan
        elif not lengths[min(first + lane, stop - 1)] ** 3 * 1e-291 < z[lane] < 2.0:
            z[lane] = 0.0
    return size


@kernel
def _unpack_marginals(w, a, n, size, last, lane, out):
    """Writes w a; whether it is a mean of trees, n in sum (an overflow of `a` shows here)."""
    if last > 1:
        _exchange(w, size, last, lane)
        _exchange(a, size, last, lane)
    total = 0.0
    for h in range(n + 1):
        for m in range(1, n + 1):
            x = w[h, m, lane] * a[h, m, lane]
            out[h, m] = x
            total += x
    return abs(total - n) <= 1e-6 * n


@kernel
def _pack_derivative(w, g, n, size, last, lane, dw):
    """Writes the derivative of the weights along g, w g, into a lane."""
    for h in range(size + 1):
        for m in range(size + 1):
            inside = h <= n and 1 <= m <= n and h != m and w[h, m, lane] > 0.0
            dw[h, m, lane] = w[h, m, lane] * g[exchanged(h, last), exchanged(m, last)] if inside else 0.0


@kernel
def _unpack_derivative(w, dw, a, da, n, last, lane, out):
    """Writes the derivative of w a; whether it is finite."""
    total = 0.0
    for h in range(n + 1):
        row = out[exchanged(h, last)]
        for m in range(1, n + 1):
            x = dw[h, m, lane] * a[h, m, lane] + w[h, m, lane] * da[h, m, lane]
            row[exchanged(m, last)] = x
            total += x
    return np.isfinite(total)


@kernel
def log_partition(scores, lengths, single_root, value, lo, hi):
    """log Σ exp(score) over the trees of each instance.  O(n³) each.

    scores (batch, N, N) by [head, modifier], node 0 the root; column 0 and the diagonal are never read.
    lengths (batch,): the number of words, at most N − 1.  value (batch,).
    Returns the first instance without a tree or with a score of NaN or +∞, or -1.
    """
    work = workspace(scores.shape[1])
    z, scale = work[4], work[5]
    for first in range(lo, hi, LANES):
        stop = min(first + LANES, hi)
        factorize(scores, lengths, single_root, first, stop, work)
        for b in range(first, stop):
            total = scale[b - first] + np.log(z[b - first])
            if z[b - first] == 0.0:
                total = matrix_tree_log.log_partition(scores[b], lengths[b], single_root)
            if not total > -np.inf:
                return b
            value[b] = total
    return -1


@kernel
def log_partition_and_marginals(scores, lengths, single_root, value, marginals, lo, hi):
    """The log-partition of each instance and its gradient, the probability of every arc.  O(n³) each.

    marginals (batch, N, N): zero in column 0, on the diagonal and in the padding.  Otherwise as `log_partition`.
    """
    work = workspace(scores.shape[1])
    w, x, a, c, z, scale, last, _ = work
    for first in range(lo, hi, LANES):
        stop = min(first + LANES, hi)
        size = factorize(scores, lengths, single_root, first, stop, work)
        adjoint(x, size, single_root, a, c)
        for b in range(first, stop):
            n, lane = lengths[b], b - first
            marginals[b] = 0.0
            total = scale[lane] + np.log(z[lane])
            fits = _unpack_marginals(w, a, n, size, last[lane], lane, marginals[b])
            if z[lane] == 0.0 or not (fits or np.isnan(z[lane])):
                total = matrix_tree_log.log_partition_and_marginals(scores[b], n, single_root, marginals[b])
            if not total > -np.inf:
                return b
            value[b] = total
    return -1


@kernel
def hessian_product(scores, lengths, single_root, g, out, lo, hi):
    """The derivative of each instance's marginals along g; as they are a gradient, also their transposed derivative.

    g, out (batch, N, N); what g holds in column 0, on the diagonal and in the padding is never read, and out is zero
    there.  O(n³) each, about three times `log_partition_and_marginals`.  Otherwise as `log_partition`.
    """
    work = workspace(scores.shape[1])
    w, x, a, c, z, _, last, _ = work
    dw, dx, da, dc = np.empty_like(w), np.empty_like(w), np.empty_like(w), np.empty_like(c)
    for first in range(lo, hi, LANES):
        stop = min(first + LANES, hi)
        size = factorize(scores, lengths, single_root, first, stop, work)
        for lane in range(LANES):
            b = min(first + lane, stop - 1)
            _pack_derivative(w, g[b], lengths[b], size, last[lane], lane, dw)
        for h in range(size + 1):
            copy(w[h], size + 1, x[h])
            copy(dw[h], size + 1, dx[h])
        dual_eliminate(x, dx, size, single_root, c, dc)
        dual_adjoint(x, dx, size, single_root, a, da, c, dc)
        for b in range(first, stop):
            n, lane = lengths[b], b - first
            out[b] = 0.0
            fits = _unpack_derivative(w, dw, a, da, n, last[lane], lane, out[b])
            if np.isnan(z[lane]):
                return b
            if z[lane] == 0.0 or not fits:
                if not matrix_tree_log.hessian_product(scores[b], g[b], n, single_root, out[b]):
                    return b
    return -1

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
Otherwise the sweeps are repeated on logarithms (`matrix_tree_log`).
"""

import numpy as np

from pullback.kernels import matrix_tree_log
from pullback.kernels._vector import exp, fmax, kernel, summing


@summing
def _row_dots(a, rows, start, stop, y, out):
    """out[i] += ⟨a[i, start:stop], y[start:stop]⟩ for i < rows, four rows for one pass over y."""
    y = y[start:stop]
    i = 0
    while i + 4 <= rows:
        a0, a1, a2, a3 = a[i, start:stop], a[i + 1, start:stop], a[i + 2, start:stop], a[i + 3, start:stop]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(y.shape[0]):
            s0 += a0[j] * y[j]
            s1 += a1[j] * y[j]
            s2 += a2[j] * y[j]
            s3 += a3[j] * y[j]
        out[i] += s0
        out[i + 1] += s1
        out[i + 2] += s2
        out[i + 3] += s3
        i += 4
    while i < rows:
        a0 = a[i, start:stop]
        s0 = 0.0
        for j in range(y.shape[0]):
            s0 += a0[j] * y[j]
        out[i] += s0
        i += 1


@kernel
def _maximum(row, shift):
    for i in range(row.shape[0]):
        shift[i] = fmax(np.float64(row[i]), shift[i])


@kernel
def _exponentials(row, shift, w, sums):
    for i in range(row.shape[0]):
        w[i] = exp(np.float64(row[i]) - shift[i])
        sums[i] += w[i]


@kernel
def weights(scores, n, w, shift, sums):
    """Writes exp(scores) scaled to columns that sum to one, zero on the diagonal and in column 0.

    Returns the logarithm of the scale, Σ_m log Σ_h exp(score[h, m]): −∞ if a word has no head, NaN for a NaN or +∞.
    """
    shift[:] = -np.inf
    sums[:] = 0.0
    for h in range(n + 1):
        _maximum(scores[h, 1:h], shift[1:h])
        _maximum(scores[h, h + 1 : n + 1], shift[h + 1 : n + 1])
    total = 0.0
    for m in range(1, n + 1):
        total += shift[m]
    if total == -np.inf:
        return total
    for h in range(n + 1):
        w[h, 0] = w[h, h] = 0.0
        _exponentials(scores[h, 1:h], shift[1:h], w[h, 1:h], sums[1:h])
        _exponentials(scores[h, h + 1 : n + 1], shift[h + 1 : n + 1], w[h, h + 1 : n + 1], sums[h + 1 : n + 1])
    for m in range(1, n + 1):
        total += np.log(sums[m])
        sums[m] = 1.0 / sums[m]
    for h in range(n + 1):
        for m in range(1, n + 1):
            w[h, m] *= sums[m]
    return total


@kernel
def _exchange(w, n, k):
    """Renames word 1 to k and k to 1."""
    for i in range(n + 1):
        w[1, i], w[k, i] = w[k, i], w[1, i]
    for i in range(n + 1):
        w[i, 1], w[i, k] = w[i, k], w[i, 1]


@kernel
def eliminate(w, n, single_root, lu, lut, c):
    """log Z, and the word at which the elimination got stuck (0: none).

    Writes lu, with w[k, m] as eliminated below the diagonal, p[h, k] above and d_k on it, and its transpose lut.
    Row and column k gather at once what eliminating n … k + 1 adds to them, as products of rows.
    """
    total = 0.0
    for k in range(n, 0, -1):
        for h in range(k):
            c[h] = w[h, k]
        _row_dots(lu, k, k + 1, n + 1, lut[k], c)
        d = 0.0
        for h in range(1 if single_root and k > 1 else 0, k):
            d += c[h]
        if not d > 0.0:
            return -np.inf, k
        total += np.log(d)
        lu[k, k] = lut[k, k] = d
        for h in range(k):
            lu[h, k] = lut[k, h] = c[h] / d
            lu[k, h] = w[k, h]
        _row_dots(lut, k, k + 1, n + 1, lu[k], lu[k])
        for m in range(k):
            lut[m, k] = lu[k, m]
    return total, 0


@kernel
def adjoint(lu, lut, n, single_root, a, at, c):
    """Writes a = ∂ log Z/∂w and its transpose, from the elimination."""
    a[0, 0] = at[0, 0] = 0.0
    for k in range(1, n + 1):
        c[:k] = 0.0
        a[k, : k + 1] = at[k, k] = 0.0
        _row_dots(a, k, 0, k, lu[k], c)
        _row_dots(at, k, 0, k, lut[k], a[k])
        mean = 0.0
        for h in range(k):
            mean += lut[k, h] * c[h]
        a[k, 0] = 0.0
        r = 1.0 / lu[k, k]
        for h in range(k):
            at[h, k] = a[k, h]
            a[h, k] = at[k, h] = (c[h] if single_root and h == 0 and k > 1 else c[h] + 1.0 - mean) * r


@kernel
def _factorize(w, n, single_root, lu, lut, c):
    """`eliminate`, with the word exchanged for word 1 if need be (1: none); log Z is −∞ out of range."""
    last = 1
    value, stuck = eliminate(w, n, single_root, lu, lut, c)
    if stuck > 1 and single_root:
        last = stuck
        _exchange(w, n, last)
        value, stuck = eliminate(w, n, single_root, lu, lut, c)
        _exchange(w, n, last)
    in_range = 3.0 * np.log(n) - 670.0 < value < 1.0
    return value if in_range else -np.inf, last


@summing
def _product(x, y, out):
    """Writes x y and returns its sum."""
    total = 0.0
    for i in range(x.shape[0]):
        z = x[i] * y[i]
        out[i] = z
        total += z
    return total


@kernel
def _marginals(w, n, a, out):
    """Writes w a; whether it is a mean of trees, n in sum (an overflow of `a` shows here)."""
    total = 0.0
    for h in range(n + 1):
        total += _product(w[h, : n + 1], a[h, : n + 1], out[h, : n + 1])
    return abs(total - n) < 1e-6 * n


@kernel
def log_partition(scores, lengths, single_root, value, lo, hi):
    """log Σ exp(score) over the trees of each instance.  O(n³) each.

    scores (batch, N, N) by [head, modifier], node 0 the root; column 0 and the diagonal are never read.
    lengths (batch,): the number of words, at most N − 1.  value (batch,).
    Returns the first instance without a tree or with a score of NaN or +∞, or -1.
    """
    size = scores.shape[1]
    work = np.empty((3, size, size))
    w, lu, lut = work[0], work[1], work[2]
    c, sums = np.empty(size), np.empty(size)
    for b in range(lo, hi):
        n = lengths[b]
        value[b] = 0.0
        if n > 0:
            scale = weights(scores[b], n, w, c, sums)
            if not scale > -np.inf:
                return b
            log_z, _ = _factorize(w, n, single_root, lu, lut, c)
            if log_z == -np.inf:
                scale = 0.0
                log_z = matrix_tree_log.sweep(scores[b], w, n, single_root, lu, lut)
                if log_z == -np.inf:
                    return b
            value[b] = scale + log_z
    return -1


@kernel
def log_partition_and_marginals(scores, lengths, single_root, value, marginals, lo, hi):
    """The log-partition of each instance and its gradient, the probability of every arc.  O(n³) each.

    marginals (batch, N, N): zero in column 0, on the diagonal and in the padding.  Otherwise as `log_partition`.
    """
    size = scores.shape[1]
    work = np.empty((6, size, size))
    w, lu, lut, a, at, product = work[0], work[1], work[2], work[3], work[4], work[5]
    c, sums = np.empty(size), np.empty(size)
    for b in range(lo, hi):
        n = lengths[b]
        value[b] = 0.0
        marginals[b] = 0.0
        if n > 0:
            scale = weights(scores[b], n, w, c, sums)
            if not scale > -np.inf:
                return b
            log_z, last = _factorize(w, n, single_root, lu, lut, c)
            safe = log_z > -np.inf
            if safe:
                adjoint(lu, lut, n, single_root, a, at, c)
                if last > 1:
                    _exchange(a, n, last)
                safe = _marginals(w, n, a, marginals[b])
            if not safe:
                scale = 0.0
                log_z = matrix_tree_log.sweep(scores[b], w, n, single_root, marginals[b], product)
                if log_z == -np.inf:
                    return b
            value[b] = scale + log_z
    return -1

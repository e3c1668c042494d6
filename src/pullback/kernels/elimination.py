"""Weights and sweeps of the matrix-tree theorem over `LANES` instances at once; `matrix_tree` has the formulas.

Matrices have the shape (N + ROWS, N, LANES), a few rows more than they need since sums come `ROWS` at a time.  Shorter
sentences of a group are filled up with words that hang from word 1 and change nothing.
"""

import numpy as np

from pullback.kernels._lanes import LANES, ROWS, add_dot, add_scaled, divide, move, products
from pullback.kernels._vector import exp, fmax, kernel

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
def _interleave(first, second, third, fourth, count, out):
    for m in range(count):
        out[m, 0] = first[m]
        out[m, 1] = second[m]
        out[m, 2] = third[m]
        out[m, 3] = fourth[m]


@kernel
def _pack(scores, lengths, members, size, w):
    """Writes the scores of a group; the words beyond a sentence hang from word 1, and word 1 of an empty one from 0."""
    shortest = size
    for lane in range(LANES):
        shortest = min(shortest, lengths[members[lane]])
    b0, b1, b2, b3 = members[0], members[1], members[2], members[3]
    for h in range(size + 1):
        row = w[h]
        common = shortest + 1 if h <= shortest else 0
        _interleave(scores[b0, h], scores[b1, h], scores[b2, h], scores[b3, h], common, row)
        for lane in range(LANES):
            n = lengths[members[lane]]
            for m in range(common, size + 1):
                row[m, lane] = scores[members[lane], h, m] if h <= n and m <= n else -np.inf
                if m > n and h == min(m - 1, 1):
                    row[m, lane] = 0.0
            row[0, lane] = row[h, lane] = -np.inf


@kernel
def exchanged(word, last):
    """The word in the place of `word` once word 1 and `last` have changed places."""
    return last if word == 1 else 1 if word == last else word


@kernel
def exchange(x, size, k, lane):
    """Makes word 1 and word k change places."""
    for i in range(size + 1):
        x[1, i, lane], x[k, i, lane] = x[k, i, lane], x[1, i, lane]
    for i in range(size + 1):
        x[i, 1, lane], x[i, k, lane] = x[i, k, lane], x[i, 1, lane]


@kernel
def _normalize(w, size, scale):
    """Turns scores into weights whose columns sum to one; scale is what that takes from the log-partition.

    A score of NaN or +∞ makes it NaN.
    """
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
def clear(vector):
    for lane in range(LANES):
        vector[lane] = 0.0


@kernel
def _divide(x, k, column, ones, single_root, z, stuck):
    """Writes d_k and p[:, k] from the column of weights."""
    n = x.shape[1]
    d = x[k, k]
    clear(d)
    first = 1 if single_root and k > 1 else 0
    add_dot(d, 0, column, first, 1, ones, 0, 0, k - first)
    for lane in range(LANES):
        z[lane] *= d[lane]
        if d[lane] == 0.0 and stuck[lane] == 0:
            stuck[lane] = k
    divide(x, k, n, column, 0, 1, d, 0, k)


@kernel
def eliminate(x, size, single_root, z, stuck, c):
    """Z, and the first word whose pivot was zero (0: none).

    x comes with the weights and leaves with p[h, k] above the diagonal, d_k on it and w[k, m] as eliminated below.
    The columns and rows of two words, k and k − 1, gather together what eliminating the words above adds to them.
    """
    n = x.shape[1]
    column, next_column, row, next_row, ones = c[0], c[1], c[2], c[3], c[4]
    z[:] = 1.0
    stuck[:] = 0
    if size % 2:  # pairs start at the bottom, so that filling up a sentence does not change the order of its sums
        move(column, 0, 1, x, size, n, size)
        _divide(x, size, column, ones, single_root, z, stuck)
    for k in range(size - size % 2, 0, -2):
        above = (k + 1) * n
        move(column, 0, 1, x, k, n, k)
        move(next_column, 0, 1, x, k - 1, n, k - 1)
        for h in range(0, k, ROWS):
            products(column, next_column, h, x, h * n + k + 1, n, 1, x, above + k, above + k - 1, n, size - k)
        _divide(x, k, column, ones, single_root, z, stuck)
        move(row, 0, 1, x, k * n, 1, k)
        move(next_row, 0, 1, x, (k - 1) * n, 1, k - 1)
        for m in range(0, k, ROWS):
            products(row, next_row, m, x, above + m, 1, n, x, above - n + k + 1, above - 2 * n + k + 1, 1, size - k)
        move(x, k * n, 1, row, 0, 1, k)
        add_scaled(next_column, 0, 1, x, k, n, x, k * n + k - 1, k - 1)
        _divide(x, k - 1, next_column, ones, single_root, z, stuck)
        add_scaled(next_row, 0, 1, x, k * n, 1, x, (k - 1) * n + k, k - 1)
        move(x, (k - 1) * n, 1, next_row, 0, 1, k - 1)


@kernel
def _slopes(x, k, column, row, ones, single_root, a):
    """Writes a[:, k] and a[k, :] from what they gathered."""
    n = x.shape[1]
    rest = a[k, k]
    clear(rest)
    add_dot(rest, 0, x, k, n, column, 0, 1, k)
    for lane in range(LANES):
        rest[lane] = 1.0 - rest[lane]
    first = 1 if single_root and k > 1 else 0
    add_scaled(column, first, 1, ones, 0, 0, rest, 0, k - first)
    divide(a, k, n, column, 0, 1, x, k * n + k, k)
    move(a, k * n, 1, row, 0, 1, k)
    clear(rest)


@kernel
def adjoint(x, size, single_root, a, c):
    """Writes a = ∂ log Z/∂w, from the elimination; two words at a time again."""
    n = x.shape[1]
    column, next_column, row, next_row, ones = c[0], c[1], c[2], c[3], c[4]
    zeros = a[0, 0]
    clear(zeros)
    for k in range(1, size + 1, 2):
        for i in range(4):
            move(c, i * c.shape[1], 1, zeros, 0, 0, k)
        for h in range(0, k, ROWS):
            products(column, next_column, h, a, h * n, n, 1, x, k * n, (k + 1) * n, 1, k)
        for m in range(0, k, ROWS):
            products(row, next_row, m, a, m, 1, n, x, k, k + 1, n, k)
        _slopes(x, k, column, row, ones, single_root, a)
        if k < size:
            add_scaled(next_column, 0, 1, a, k, n, x, (k + 1) * n + k, k)
            clear(next_column[k])
            add_dot(next_column, k, a, k * n, 1, x, (k + 1) * n, 1, k)
            add_scaled(next_row, 0, 1, a, k * n, 1, x, k * n + k + 1, k)
            clear(next_row[k])
            add_dot(next_row, k, a, k, n, x, k + 1, n, k)
            _slopes(x, k + 1, next_column, next_row, ones, single_root, a)


@kernel
def copy(x, size, out):
    """Writes the first size + 1 rows."""
    n = x.shape[1]
    move(out, 0, 1, x, 0, 1, (size + 1) * n)


@kernel
def workspace(size):
    """Weights, elimination, adjoint; a column; and per lane: Z, the scale, the exchanged word, where it was stuck.

    Sums that come `ROWS` at a time read rows that were never written.  Nobody uses what they give, but other numbers
    than zero may be subnormal there, and arithmetic on those is a hundred times slower.
    """
    shape = (size + ROWS, size, LANES)
    lanes = np.zeros((2, LANES))
    return (
        np.empty(shape),
        np.zeros(shape),
        np.zeros(shape),
        np.ones((5, size + ROWS, LANES)),
        lanes[0],
        lanes[1],
        np.empty(LANES, np.int64),
        np.empty(LANES, np.int64),
    )


@kernel
def group(first, hi, members):
    """The instances from `first` on that fill the lanes; the last one again where there are none left."""
    for lane in range(LANES):
        members[lane] = min(first + lane, hi - 1)


@kernel
def factorize(scores, lengths, single_root, members, work):
    """Weights and elimination of a group of instances; returns the longest length.

    Z is NaN where a score is, and zero where it is too small to be trusted.
    """
    w, x, _, c, z, scale, last, stuck = work
    size = lengths[members[0]]
    for lane in range(1, LANES):
        size = max(size, lengths[members[lane]])
    last[:] = 1
    _pack(scores, lengths, members, size, w)
    _normalize(w, size, scale)
    again = True
    while again:
        copy(w, size, x)
        eliminate(x, size, single_root, z, stuck, c)
        again = False
        for lane in range(LANES):
            if single_root and stuck[lane] > 1 and last[lane] == 1:
                last[lane] = stuck[lane]
                exchange(w, size, last[lane], lane)
                again = True
    for lane in range(LANES):
        if np.isnan(scale[lane]):
            z[lane] = np.nan
        elif not lengths[members[lane]] ** 3 * 1e-291 < z[lane] < 2.0:
            z[lane] = 0.0
    return size

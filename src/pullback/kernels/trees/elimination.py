"""Weights and sweeps of the matrix-tree theorem over `LANES` instances at once; `matrix_tree` has the formulas.

Matrices have the shape (N + ACROSS, N, LANES), a few rows more than they need since sums come several at a time.
Shorter sentences of a group are filled up with words that hang from word 1 and change nothing.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import fmax, inner
from pullback.kernels.trees.lanes import (
    ACROSS,
    LANES,
    ROWS,
    WORDS,
    add_dot,
    add_scaled,
    divide,
    exponentials,
    inner_products,
    move,
    outer_products,
)

_LOWEST = -np.finfo(np.float64).max
_SMALLEST = 1e-291  # what a product of pivots has to stay above: `matrix_tree` says why


@inner
def _maximum(row, shift):
    for i in range(row.shape[0]):
        shift[i] = fmax(row[i], shift[i])


@inner
def _scale(row, factor):
    for i in range(row.shape[0]):
        row[i] *= factor[i]


@inner
def _interleave(first, second, third, fourth, count, out):
    for m in range(count):
        out[m, 0] = first[m]
        out[m, 1] = second[m]
        out[m, 2] = third[m]
        out[m, 3] = fourth[m]


@inner
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


@inner
def exchanged(word, last):
    """The word in the place of `word` once word 1 and `last` have changed places."""
    return last if word == 1 else 1 if word == last else word


@inner
def exchange(x, size, k, lane):
    """Makes word 1 and word k change places."""
    for i in range(size + 1):
        x[1, i, lane], x[k, i, lane] = x[k, i, lane], x[1, i, lane]
    for i in range(size + 1):
        x[i, 1, lane], x[i, k, lane] = x[i, k, lane], x[i, 1, lane]


@inner
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
        exponentials(w, h * w.shape[1], shift, sums, size + 1)
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


@inner
def clear(vector):
    for lane in range(LANES):
        vector[lane] = 0.0


@inner
def _divide(x, k, column, ones, single_root, z, stuck):
    """Writes d_k and p[:, k] from the column of weights."""
    n = x.shape[1]
    d = x[k, k]
    clear(d)
    first = 1 if single_root and k > 1 else 0
    add_dot(d, 0, column, first, 1, ones, 0, 0, k - first)
    for lane in range(LANES):
        z[lane] = z[lane] * d[lane] if z[lane] > _SMALLEST else 0.0  # with one root, d_1 could lift it again
        if d[lane] == 0.0 and stuck[lane] == 0:
            stuck[lane] = k
    divide(x, k, n, column, 0, 1, d, 0, k)


@inner
def eliminate(work, size, single_root):
    """Z, and the first word whose pivot was zero (0: none).

    x comes with the weights and leaves with p[h, k] above the diagonal, d_k on it and w[k, m] as eliminated below.
    The columns and rows of `WORDS` neighbors gather together what eliminating the words above adds to them.
    """
    x, z, stuck, columns, rows, others = work.x, work.z, work.stuck, work.columns, work.rows, work.others
    n, width = x.shape[1], columns.shape[1]
    z[:] = 1.0
    stuck[:] = 0
    top = size
    while top > 0:
        low = (top - 1) // WORDS * WORDS + 1  # from the bottom, so that filling up a sentence does not regroup its sums
        above = (top + 1) * n
        for k in range(top, low - 1, -1):
            move(columns[top - k], 0, 1, x, k, n, k)
            move(rows[top - k], 0, 1, x, k * n, 1, k)
        if top < size:
            for k in range(top, low - 1, -1):
                move(others[top - k], 0, 1, x, above + k, n, size - top)
            for h in range(0, top, ROWS):
                inner_products(columns, h, width, x, h * n + top + 1, n, others, 0, width, size - top)
            for m in range(0, top, ACROSS):
                outer_products(rows, m, width, x, above + m, n, x, above - n + top + 1, -n, 1, size - top)
        for k in range(top, low - 1, -1):
            column, row = columns[top - k], rows[top - k]
            for j in range(top, k, -1):
                add_scaled(column, 0, 1, x, j, n, x, j * n + k, k)
                add_scaled(row, 0, 1, x, j * n, 1, x, k * n + j, k)
            _divide(x, k, column, work.ones, single_root, z, stuck)
            move(x, k * n, 1, row, 0, 1, k)
        top = low - 1


@inner
def smallest_pivot(x, size, lane):
    """The smallest d_k of the elimination."""
    smallest = np.inf
    for k in range(1, size + 1):
        smallest = min(smallest, x[k, k, lane])
    return smallest


@inner
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


@inner
def adjoint(work, size, single_root):
    """Writes a = ∂ log Z/∂w, from the elimination; `WORDS` words at a time again."""
    x, a, columns, rows = work.x, work.a, work.columns, work.rows
    n, width = x.shape[1], columns.shape[1]
    zeros = a[0, 0]
    clear(zeros)
    for low in range(1, size + 1, WORDS):
        top = min(low + WORDS - 1, size)
        for k in range(low, top + 1):
            move(columns[k - low], 0, 1, zeros, 0, 0, k)
            move(rows[k - low], 0, 1, zeros, 0, 0, k)
        for h in range(0, low, ROWS):
            inner_products(columns, h, width, a, h * n, n, x, low * n, n, low)
        for m in range(0, low, ACROSS):
            outer_products(rows, m, width, a, m, n, x, low, 1, n, low)
        for k in range(low, top + 1):
            column, row = columns[k - low], rows[k - low]
            for j in range(low, k):
                add_scaled(column, 0, 1, a, j, n, x, k * n + j, low)
                add_scaled(row, 0, 1, a, j * n, 1, x, j * n + k, low)
                clear(column[j])
                clear(row[j])
                add_dot(column, j, a, j * n, 1, x, k * n, 1, k)
                add_dot(row, j, a, j, n, x, k, n, k)
            _slopes(x, k, column, row, work.ones, single_root, a)


@inner
def copy(x, size, out):
    """Writes the first size + 1 rows."""
    n = x.shape[1]
    move(out, 0, 1, x, 0, 1, (size + 1) * n)


# What the sweeps over a group need, beside its members.
Workspace = namedtuple(
    "Workspace",
    [
        "w",  # [head, modifier]: the weights
        "x",  # [head, modifier]: the elimination
        "a",  # [head, modifier]: the adjoint, ∂ log Z/∂w
        "columns",  # [word, head], of a few words
        "rows",  # [word, modifier], of a few words
        "others",  # [word, head], of the same words, beyond them
        "ones",
        "z",  # [lane]: Z
        "scale",  # [lane]: what log Z has to be added
        "last",  # [lane]: the word that changed places with word 1
        "stuck",  # [lane]: the first word whose pivot was zero
    ],
)


@inner
def workspace(size):
    """Room for a group of sentences of less than `size` words.

    Sums that come several at a time read rows that were never written.  What they give is not used, but other numbers
    than zero may be subnormal there, and arithmetic on those is a hundred times slower.
    """
    shape, few = (size + ACROSS, size, LANES), (WORDS, size + ACROSS, LANES)
    x = np.empty(shape)
    x[size:] = 0.0
    return Workspace(
        np.empty(shape),
        x,
        np.zeros(shape),
        np.zeros(few),
        np.zeros(few),
        np.zeros(few),
        np.ones((1, LANES)),
        np.zeros(LANES),
        np.zeros(LANES),
        np.empty(LANES, np.int64),
        np.empty(LANES, np.int64),
    )


@inner
def group(first, hi, members):
    """The instances from `first` on that fill the lanes; the last one again where there are none left."""
    for lane in range(LANES):
        members[lane] = min(first + lane, hi - 1)


@inner
def factorize(scores, lengths, single_root, members, work):
    """Weights and elimination of a group of instances; returns the longest length.

    Z is NaN where a score is, and zero where it is too small to be trusted.
    """
    w, z, scale, last, stuck = work.w, work.z, work.scale, work.last, work.stuck
    size = lengths[members[0]]
    for lane in range(1, LANES):
        size = max(size, lengths[members[lane]])
    last[:] = 1
    _pack(scores, lengths, members, size, w)
    _normalize(w, size, scale)
    again = True
    while again:
        copy(w, size, work.x)
        eliminate(work, size, single_root)
        again = False
        for lane in range(LANES):
            if single_root and stuck[lane] > 1 and last[lane] == 1:
                last[lane] = stuck[lane]
                exchange(w, size, last[lane], lane)
                again = True
    for lane in range(LANES):
        if np.isnan(scale[lane]):
            z[lane] = np.nan
        elif not lengths[members[lane]] ** 3 * _SMALLEST < z[lane] < 2.0:
            z[lane] = 0.0
    return size

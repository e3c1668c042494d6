"""Scores of one instance as the algorithms want them: float64, no padding, at least as many columns as rows.

A matching of n rows and m columns is one of m rows and n columns, so all that follows may assume n ≤ m: rows are the
smaller side, which is matched as a whole unless the matching is optional.
"""

import numpy as np

from pullback.kernels.tools import borrowing, inlined, inner


@borrowing
def fits(lengths, scores):
    """Whether the rows and columns in use exist."""
    return 0 <= lengths[0] <= scores.shape[0] and 0 <= lengths[1] <= scores.shape[1]


@inlined
def wide_shape(lengths):
    """(rows and columns of the wide matrix of an instance, whether it is transposed)."""
    n, m = lengths[0], lengths[1]
    return (min(n, m), max(n, m)), n > m


@inner
def load(scores, lengths, room):
    """(the scores in use as a wide matrix within `room`, whether that is transposed, whether none is NaN or +∞)."""
    (rows, cols), transposed = wide_shape(lengths)
    valid = fill(scores, lengths, room)
    return room[: rows * cols].reshape(rows, cols), transposed, valid


@borrowing
def fill(scores, lengths, room):
    """Writes the scores in use into `room` as a wide matrix, row after row; whether none is NaN or +∞."""
    n, m = lengths[0], lengths[1]
    valid = True
    if n <= m and m == scores.shape[1]:  # in one go, because a row may be short
        given = scores.flat
        for k in range(n * m):
            valid &= given[k] < np.inf
            room[k] = given[k]
        return valid
    row_step, column_step = (1, n) if n > m else (m, 1)
    for i in range(n):
        row = scores[i]
        for j in range(m):
            valid &= row[j] < np.inf
            room[i * row_step + j * column_step] = row[j]
    return valid


@inner
def unload(wide, transposed, out):
    """Writes a wide matrix back to where `load` found it, and zeros beyond."""
    rows, cols = wide.shape
    out[:] = 0
    for i in range(rows):
        for j in range(cols):
            if transposed:
                out[j, i] = wide[i, j]
            else:
                out[i, j] = wide[i, j]


@borrowing
def write_vertex(match, shape, transposed, out):
    """Writes a one into `out`, which holds zeros, for every row i of a wide matrix that has a column match[i] of it."""
    rows, cols = shape
    for i in range(rows):
        if 0 <= match[i] < cols:
            if transposed:
                out[match[i], i] = 1
            else:
                out[i, match[i]] = 1

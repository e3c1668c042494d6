"""Scores of one instance as the algorithms want them: float64, no padding, at least as many columns as rows.

A matching of n rows and m columns is one of m rows and n columns, so all that follows may assume n ≤ m: rows are the
smaller side, which is matched as a whole unless the matching is optional.
"""

import numpy as np

from pullback.kernels.tools import inner


@inner
def fits(lengths, scores):
    """Whether the rows and columns in use exist."""
    return 0 <= lengths[0] <= scores.shape[0] and 0 <= lengths[1] <= scores.shape[1]


@inner
def load(scores, lengths, room):
    """(the scores in use as a wide matrix within `room`, whether it is transposed, whether none is NaN or +∞)."""
    n, m = lengths[0], lengths[1]
    transposed, valid = n > m, True
    wide = room[: n * m].reshape(min(n, m), max(n, m))
    if not transposed and m == scores.shape[1]:  # in one go, because a row may be short
        given = scores.reshape(-1)
        for k in range(n * m):
            valid &= given[k] < np.inf
            room[k] = given[k]
        return wide, transposed, valid
    for i in range(n):
        row = scores[i]
        for j in range(m):
            valid &= row[j] < np.inf
        if transposed:
            for j in range(m):
                wide[j, i] = row[j]
        else:
            for j in range(m):
                wide[i, j] = row[j]
    return wide, transposed, valid


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


@inner
def write_vertex(match, shape, transposed, out):
    """Writes a one for every row i of a wide matrix that has a column match[i] of it, and zeros elsewhere."""
    rows, cols = shape
    out[:] = 0
    for i in range(rows):
        if 0 <= match[i] < cols:
            if transposed:
                out[match[i], i] = 1
            else:
                out[i, match[i]] = 1

"""Symmetric positive definite systems whose rows begin late: the Cholesky factor fills nothing before that."""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import inner, summing

_LOST = 1e-15  # of the diagonal: a pivot below has no digits left
_RIGID = 1e150  # the pivot of an unknown that stays 0


class Skyline(NamedTuple):
    """The lower triangle: number (i, j) is values[start[i] + j], for j = low[i], …, i."""

    values: np.ndarray
    start: np.ndarray
    low: np.ndarray


@inner
def empty(low):
    """Room for a matrix whose row i begins at low[i] ≤ i, or a little earlier: four neighbors begin together."""
    start, count = np.empty(len(low), np.int64), 0
    for i in range(len(low)):
        block = i - i % 4
        for k in range(block, min(block + 4, len(low))):
            low[i] = min(low[i], low[k])
        start[i] = count - low[i]
        count += i - low[i] + 1
    return Skyline(np.empty(count), start, low)


@summing
def _dot(x, i, y, j, count):
    total = 0.0
    for k in range(count):
        total += x[i + k] * y[j + k]
    return total


@summing
def _four_dots(x, a, b, c, d, j, count):
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for k in range(count):
        first += x[a + k] * x[j + k]
        second += x[b + k] * x[j + k]
        third += x[c + k] * x[j + k]
        fourth += x[d + k] * x[j + k]
    return first, second, third, fourth


@inner
def _eliminate(matrix, i):
    """The rows i, …, i + 3 of the factor, before column i."""
    values, start, low = matrix
    a, b, c, d = start[i], start[i + 1], start[i + 2], start[i + 3]
    for j in range(low[i], i):
        k, pivot = max(low[i], low[j]), values[start[j] + j]
        first, second, third, fourth = _four_dots(values, a + k, b + k, c + k, d + k, start[j] + k, j - k)
        values[a + j] = (values[a + j] - first) / pivot
        values[b + j] = (values[b + j] - second) / pivot
        values[c + j] = (values[c + j] - third) / pivot
        values[d + j] = (values[d + j] - fourth) / pivot


@inner
def factor(matrix):
    """The matrix becomes its Cholesky factor.  An unknown that the others decide, up to rounding, is held at 0."""
    values, start, low = matrix
    for i in range(len(low)):
        done = low[i]
        if i - i % 4 + 4 <= len(low):
            if i % 4 == 0:
                _eliminate(matrix, i)
            done = i - i % 4
        row, diagonal = start[i], values[start[i] + i]
        for j in range(done, i):
            begin = max(low[i], low[j])
            above = _dot(values, row + begin, values, start[j] + begin, j - begin)
            values[row + j] = (values[row + j] - above) / values[start[j] + j]
        pivot = diagonal - _dot(values, row + low[i], values, row + low[i], i - low[i])
        values[row + i] = np.sqrt(pivot) if pivot > _LOST * diagonal else _RIGID


@inner
def solve(matrix, x):
    """x = the solution of the system whose right-hand side is x, from the factor."""
    values, start, low = matrix
    for i in range(len(low)):
        known = _dot(values, start[i] + low[i], x, low[i], i - low[i])
        x[i] = (x[i] - known) / values[start[i] + i]
    for i in range(len(low) - 1, -1, -1):
        x[i] /= values[start[i] + i]
        for j in range(low[i], i):
            x[j] -= values[start[i] + j] * x[i]

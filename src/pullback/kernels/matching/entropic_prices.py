"""The first prices of the search in `sinkhorn`, and its arrays.

If scores are far apart, the first prices are the middle ones of the best matching, to which the answer tends as scores
grow.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.assignment import Assignment, assign, new_assignment
from pullback.kernels.matching.centering import center
from pullback.kernels.matching.laplacian import System, new_system
from pullback.kernels.tools import inner

FAR = 8.0  # spread of scores from which on the best matching is a good start


class Workspace(NamedTuple):
    """Arrays of one search; `rest` and `point` hold a matrix, the others a number for each row or column.

    rest      t less the prices of the start, `row_base` and `col_base`
    row       prices of rows relative to the start, and `trial` ones
    col       prices of columns relative to the start, those of the last evaluation; old_col, before the search
    """

    rest: np.ndarray
    point: np.ndarray
    row_base: np.ndarray
    col_base: np.ndarray
    row: np.ndarray
    trial: np.ndarray
    col: np.ndarray
    old_col: np.ndarray
    top: np.ndarray
    row_sum: np.ndarray
    col_sum: np.ndarray
    assignment: Assignment
    system: System


@inner
def new_workspace(n, m):
    rows, cols = min(n, m), max(n, m)
    return Workspace(
        np.empty(n * m),
        np.empty(n * m),
        np.empty(rows),
        np.empty(cols),
        np.empty(rows),
        np.empty(rows),
        np.empty(cols),
        np.empty(cols),
        np.empty(cols),
        np.empty(rows),
        np.empty(cols),
        new_assignment(rows, cols),
        new_system(rows, cols),
    )


@inner
def begin(rest, optional, given, w):
    """Turns scores into what is left of t at the first prices; False if there is no matching.

    The prices of rows are `given`, if there are any; else the best score of each, or those of the best matching.
    """
    rows, cols = rest.shape
    w.col_base[:cols] = 0.0
    lowest, highest = np.inf, -np.inf
    for i in range(rows):
        w.row_base[i] = -np.inf
        for j in range(cols):
            w.row_base[i] = max(w.row_base[i], rest[i, j])
            lowest = min(lowest, rest[i, j])
        highest = max(highest, w.row_base[i])
    if lowest == -np.inf or (highest - lowest > FAR and len(given) == 0):
        if not assign(rest, optional, w.assignment):
            return False
        for i in range(rows):
            j = w.assignment.match[i]
            w.row_base[i] = rest[i, j] - w.assignment.price[j] if j >= 0 else 0.0
        center(rest, optional, w.assignment, w.row_base)
        w.col_base[:cols] = w.assignment.price[:cols]
    for i in range(min(rows, len(given))):
        w.row_base[i] = given[i]
    for i in range(rows):
        if optional:
            w.row_base[i] = max(w.row_base[i], 0.0)
        for j in range(cols):
            rest[i, j] -= 1.0 + (w.row_base[i] + w.col_base[j])
    return True

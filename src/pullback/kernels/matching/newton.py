"""The mixture of matchings nearest to given scores, by Newton's method on the prices of rows and columns.

    argmin ½‖μ − s‖²   over μ ≥ 0 whose rows and columns sum to 1, or to at most 1 where they may be left out

The dual has a price for each row and column, which is not negative where the sum may be less than 1:

    D(u, v) = ½ Σ max(0, r_ij)² + Σ u + Σ v,    r_ij = s_ij − u_i − v_j,    μ_ij = max(0, r_ij)

It is convex and piecewise quadratic.  Its gradient is 1 less the sums of rows and columns; its Hessian is the Laplacian
of the active pairs, those with r > 0 (`laplacian`).

  settle    the best prices of all rows, then of all columns, exactly (`thresholds`): twice at the start, and once after
            each step
  step      Newton's on all prices, shortened until D decreases and does not rise at the end
  rematch   D is linear along some direction if active pairs form a component with fewer rows than columns or the other
            way round: there is no step.  The prices of the best matching for s − μ have s − μ ≤ u + v, like those at
            hand, and the least sum, so D decreases; now pairs with r = 0 count as active, and they match all that has
            to be matched.  Of these prices take those in the middle (`centering`), else Newton's method would go to and
            fro between pairs that are tight by accident

After each step the scores are replaced by r, so that no digits are lost to large prices.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.assignment import Assignment, assign, new_assignment
from pullback.kernels.matching.centering import center
from pullback.kernels.matching.laplacian import System, new_system, solve_dense, solve_sparse
from pullback.kernels.matching.thresholds import settle_columns, settle_rows
from pullback.kernels.tools import inner, root_of, summing

STEPS = 200
BALANCED = 1e-12  # what a sum may be off 1
NOISE = 2e-14  # what rounding may do to a sum
TIGHT = 1e-12  # relative to the prices: r above −TIGHT counts as 0 after `rematch`
WIDE_SPREAD = 4.0  # largest less smallest score from which on the best matching is a good start
LARGE = 48  # rows from which on conjugate gradients are faster


class Workspace(NamedTuple):
    """Arrays of one search; `rest` and `weight` hold a matrix, the others a number for each row or column.

    begin, column   the active pairs, by rows
    component       of rows, then of columns
    """

    rest: np.ndarray
    weight: np.ndarray
    row_price: np.ndarray
    col_price: np.ndarray
    row_sum: np.ndarray
    col_sum: np.ndarray
    row_move: np.ndarray
    col_move: np.ndarray
    mass: np.ndarray
    number: np.ndarray
    begin: np.ndarray
    column: np.ndarray
    component: np.ndarray
    excess: np.ndarray
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
        np.empty(cols),
        np.empty(rows),
        np.empty(cols),
        np.empty(cols),
        np.empty(cols),
        np.empty(rows + 1, np.int64),
        np.empty(n * m + 1, np.int64),
        np.empty(rows + cols, np.int64),
        np.empty(rows + cols, np.int64),
        new_assignment(rows, cols),
        new_system(rows, cols),
    )


@inner
def nearest(rest, optional, w):
    """Replaces a wide score matrix by r, prices in w: (steps, whether there is a matching at all); −1 steps if lost."""
    rows, cols = rest.shape
    signed_rows, signed_cols = not optional, not optional and rows == cols
    if not _start(rest, optional, w):
        return 0, False
    for _ in range(2):
        _settle(rest, signed_rows, signed_cols, w)
    for step in range(STEPS):
        squares = _measure_here(rest, w)
        if _worst(rows, cols, signed_rows, signed_cols, w) <= BALANCED:
            return step, True
        collect(rest, 0.0, w)
        if not _is_balanced(rows, cols, w):
            size = _rematch(rest, optional, w)
            squares = _measure_here(rest, w)
            _worst(rows, cols, signed_rows, signed_cols, w)
            collect(rest, -TIGHT * size, w)
        for i in range(rows):
            w.system.rows[i] = w.row_sum[i] - 1.0
        for j in range(cols):
            w.system.cols[j] = w.col_sum[j] - 1.0
        solve(rows, cols, NOISE, w)
        if not _search(rest, squares, signed_rows, signed_cols, w):
            return -1, True
        if _worst(rows, cols, signed_rows, signed_cols, w) > BALANCED:
            _settle(rest, signed_rows, signed_cols, w)
    return -1, True


@inner
def _start(rest, optional, w):
    """First prices: 0, or those of the best matching if scores are far apart or forbidden; False if there is none."""
    rows, cols = rest.shape
    w.row_price[:rows] = 0.0
    w.col_price[:cols] = 0.0
    lowest, highest = np.inf, -np.inf
    for i in range(rows):
        for j in range(cols):
            lowest, highest = min(lowest, rest[i, j]), max(highest, rest[i, j])
    if lowest == -np.inf or highest - lowest > WIDE_SPREAD:
        if not assign(rest, optional, w.assignment):
            return False
        _take_prices(rest, rest, optional, 1.0, w)
    return True


@inner
def _take_prices(score, rest, optional, lowered, w):
    """Moves to the middle prices of the best matching for `score`, which w.assignment holds, and lowers those of rows.

    An idle row keeps the price 0, as does a row whose price would become negative.
    """
    rows, cols = rest.shape
    a, row_price = w.assignment, w.row_move
    for i in range(rows):
        j = a.match[i]
        row_price[i] = score[i, j] - a.price[j] if j >= 0 else 0.0
    center(score, optional, a, row_price)
    for i in range(rows):
        row_price[i] -= lowered
        if optional:
            row_price[i] = max(0.0, row_price[i])
    for i in range(rows):
        for j in range(cols):
            rest[i, j] -= (row_price[i] - w.row_price[i]) + (a.price[j] - w.col_price[j])
    w.row_price[:rows] = row_price[:rows]
    w.col_price[:cols] = a.price[:cols]


@inner
def _rematch(rest, optional, w):
    """Moves to the prices of the best matching for s − μ; returns their size."""
    rows, cols = rest.shape
    score = w.weight[: rows * cols].reshape(rows, cols)
    for i in range(rows):
        for j in range(cols):
            score[i, j] = min(rest[i, j], 0.0) + (w.row_price[i] + w.col_price[j])
    assign(score, optional, w.assignment)  # there is a matching: `_start` has found one, or all pairs are allowed
    _take_prices(score, rest, optional, 0.0, w)
    size = 1.0
    for i in range(rows):
        size = max(size, abs(w.row_price[i]))
    for j in range(cols):
        size = max(size, abs(w.col_price[j]))
    return size


@inner
def _settle(rest, signed_rows, signed_cols, w):
    settle_rows(rest, w.row_price, signed_rows)
    settle_columns(rest, w.col_price, signed_cols, w.col_move, w.mass, w.number)


@summing
def _measure(rest, row_move, col_move, row_sum, col_sum):
    """Sums of rows and columns after a move of the prices; returns ½ Σ max(0, r)²."""
    rows, cols = rest.shape
    squares = 0.0
    col_sum[:cols] = 0.0
    for i in range(rows):
        row, move, total = rest[i], row_move[i], 0.0
        for j in range(cols):
            x = max(row[j] - (move + col_move[j]), 0.0)
            total += x
            squares += x * x
            col_sum[j] += x
        row_sum[i] = total
    return 0.5 * squares


@inner
def _measure_here(rest, w):
    w.row_move[: rest.shape[0]] = 0.0
    w.col_move[: rest.shape[1]] = 0.0
    return _measure(rest, w.row_move, w.col_move, w.row_sum, w.col_sum)


@inner
def _worst(rows, cols, signed_rows, signed_cols, w):
    """Marks the tight rows and columns, whose sum has to be 1; returns how far one of them is off."""
    worst = 0.0
    for i in range(rows):
        tight = signed_rows or w.row_price[i] > 0.0 or w.row_sum[i] > 1.0
        w.system.tight_rows[i] = tight
        worst = max(worst, abs(w.row_sum[i] - 1.0) if tight else 0.0)
    for j in range(cols):
        tight = signed_cols or w.col_price[j] > 0.0 or w.col_sum[j] > 1.0
        w.system.tight_cols[j] = tight
        worst = max(worst, abs(w.col_sum[j] - 1.0) if tight else 0.0)
    return worst


@inner
def collect(rest, above, w):
    """Lists the pairs with r > above."""
    rows, cols = rest.shape
    size = 0
    for i in range(rows):
        w.begin[i] = size
        row = rest[i]
        for j in range(cols):
            w.column[size] = j
            size += row[j] > above
    w.begin[rows] = size


@inner
def _is_balanced(rows, cols, w):
    """Whether each component of active pairs that is tight throughout has as many rows as columns."""
    component, excess = w.component, w.excess
    left = rows + cols  # components
    for v in range(rows + cols):
        component[v] = v
    for i in range(rows):
        here = root_of(component, i)
        for k in range(w.begin[i], w.begin[i + 1]):
            there = root_of(component, rows + w.column[k])
            if there != here:
                component[there] = here
                left -= 1
        if left == 1:
            break
    many = rows + cols + 1  # one row or column that is not tight outweighs all others
    excess[: rows + cols] = 0
    for v in range(rows + cols):
        tight = w.system.tight_rows[v] if v < rows else w.system.tight_cols[v - rows]
        excess[root_of(component, v)] += (1 if v < rows else -1) if tight else 2 * many
    for v in range(rows + cols):
        if excess[v] != 0 and abs(excess[v]) < many:
            return False
    return True


@inner
def solve(rows, cols, noise, w):
    """Solves the system of the active pairs, whose right side is known up to `noise`."""
    if rows >= LARGE and solve_sparse(w.begin, w.column, rows, cols, noise, w.system):
        return
    weight = w.weight[: rows * cols].reshape(rows, cols)
    weight[:] = 0.0
    for i in range(rows):
        for k in range(w.begin[i], w.begin[i + 1]):
            weight[i, w.column[k]] = 1.0
    solve_dense(weight, w.system)


@inner
def _search(rest, squares, signed_rows, signed_cols, w):
    """Goes along the solution of the system until D decreases and does not rise any more; False if it never does.

    A test of D alone would let steps and `settle` go round in circles.
    """
    rows, cols = rest.shape
    length = 1.0
    old_rows, old_cols = w.mass, w.number  # at least as long as needed
    for i in range(rows):
        old_rows[i] = w.row_sum[i]
    for j in range(cols):
        old_cols[j] = w.col_sum[j]
    for _ in range(60):
        size = _propose(w.system.rows, length, w.row_price, signed_rows, rows, w.row_move)
        size = max(size, _propose(w.system.cols, length, w.col_price, signed_cols, cols, w.col_move))
        new = _measure(rest, w.row_move, w.col_move, w.row_sum, w.col_sum)
        slope, end, rise = 0.0, 0.0, 0.0
        for i in range(rows):
            slope += w.row_move[i] * (1.0 - old_rows[i])
            end += w.row_move[i] * (1.0 - w.row_sum[i])
            rise += w.row_move[i]
        for j in range(cols):
            slope += w.col_move[j] * (1.0 - old_cols[j])
            end += w.col_move[j] * (1.0 - w.col_sum[j])
            rise += w.col_move[j]
        if end <= 0.5 * abs(slope) + 1e-15 * size and (new - squares) + rise <= 1e-14 * (1.0 + squares + size):
            _accept(rest, w)
            return True
        length *= max(0.1, min(0.7, slope / (slope - end))) if slope < 0.0 else 0.5
    return False


@inner
def _propose(direction, length, price, signed, count, move):
    """The move of some prices, which keeps them from becoming negative unless `signed`; returns the largest."""
    size = 0.0
    for k in range(count):
        move[k] = length * direction[k]
        if not signed:
            move[k] = max(move[k], -price[k])
        size = max(size, abs(move[k]))
    return size


@inner
def _accept(rest, w):
    rows, cols = rest.shape
    for i in range(rows):
        row, move = rest[i], w.row_move[i]
        w.row_price[i] += move
        for j in range(cols):
            row[j] -= move + w.col_move[j]
    for j in range(cols):
        w.col_price[j] += w.col_move[j]

"""Systems of equations between rows and columns: the linear algebra of prices.

    Σ_j w_ij (x_i + y_j) = f_i   for every tight row,       x_i = 0 for others
    Σ_i w_ij (x_i + y_j) = g_j   for every tight column,    y_j = 0 for others

with weights w ≥ 0: the Laplacian of a bipartite graph, up to the sign of y.  In a component of the graph that is tight
throughout, adding to all x what is taken from all y changes nothing: one of them is pinned at 0.

Dense weights: the columns are eliminated, and what is left for the rows, the smaller side, goes to Cholesky.  Sparse
weights, all one: conjugate gradients, scaled by the diagonal.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import dot, inner, sum_of

PINNED = 1e-12  # pivots below, relative to the diagonal, are zero
ACCURATE = 1e-13  # residual of conjugate gradients, relative to the right side


class System(NamedTuple):
    """The right side, which the solution replaces, which unknowns exist, and workspace.

    rows, cols               right side and solution
    tight_rows, tight_cols   whether there is an unknown
    inverse (columns,), scaled (columns,), factor (rows, rows)        for Cholesky
    vectors (5, rows + columns)                                       for conjugate gradients
    """

    rows: np.ndarray
    cols: np.ndarray
    tight_rows: np.ndarray
    tight_cols: np.ndarray
    inverse: np.ndarray
    scaled: np.ndarray
    factor: np.ndarray
    vectors: np.ndarray


@inner
def new_system(rows, cols):
    return System(
        np.empty(rows),
        np.empty(cols),
        np.empty(rows, np.bool_),
        np.empty(cols, np.bool_),
        np.empty(cols),
        np.empty(cols),
        np.empty((rows, rows)),
        np.empty((5, rows + cols)),
    )


@inner
def solve_dense(weight, system):
    """Solves a system with weights (rows, columns)."""
    rows, cols = weight.shape
    x, y, inverse, scaled, factor = system.rows, system.cols, system.inverse, system.scaled, system.factor
    inverse[:cols] = 0.0
    for i in range(rows):
        row = weight[i]
        for j in range(cols):
            inverse[j] += row[j]
    for j in range(cols):
        inverse[j] = 1.0 / inverse[j] if system.tight_cols[j] and inverse[j] > 0.0 else 0.0
    for i in range(rows):
        if system.tight_rows[i]:
            row = weight[i]
            for j in range(cols):
                scaled[j] = row[j] * inverse[j]
            x[i] -= dot(scaled, y, cols)
            for k in range(i + 1):
                factor[i, k] = -dot(scaled, weight[k], cols) if system.tight_rows[k] else 0.0
            factor[i, i] += sum_of(row, cols)
    _cholesky(rows, system)
    for j in range(cols):
        scaled[j] = y[j]
    for i in range(rows):
        row, xi = weight[i], x[i]
        for j in range(cols):
            scaled[j] -= row[j] * xi
    for j in range(cols):
        y[j] = scaled[j] * inverse[j]


@inner
def _cholesky(rows, system):
    """Solves for the tight rows in place; the diagonal of the factor is kept inverted, 0 where a row is pinned."""
    x, factor = system.rows, system.factor
    for i in range(rows):
        row = factor[i]
        if not system.tight_rows[i]:
            row[: i + 1] = 0.0
            x[i] = 0.0
            continue
        diagonal = row[i]
        for k in range(i):
            row[k] = (row[k] - dot(row, factor[k], k)) * factor[k, k]
        pivot = diagonal - dot(row, row, i)
        if pivot > PINNED * diagonal and pivot > 1e-300:
            row[i] = 1.0 / np.sqrt(pivot)
            x[i] = (x[i] - dot(row, x, i)) * row[i]
        else:
            row[i] = x[i] = 0.0
    for i in range(rows - 1, -1, -1):
        row = factor[i]
        x[i] *= row[i]
        for k in range(i):
            x[k] -= row[k] * x[i]


@inner
def solve_sparse(begin, column, rows, cols, noise, system):
    """Solves a system whose weights are one at column[begin[i] : begin[i + 1]]; False if that takes too long.

    The right side is known up to `noise`: with a smaller residual, x would grow where nothing but rounding asks for it.
    """
    n = rows + cols
    inverse, x, rest, move, image = system.vectors
    _degrees(begin, column, rows, cols, inverse)
    size = 0.0
    for v in range(n):
        tight = system.tight_rows[v] if v < rows else system.tight_cols[v - rows]
        inverse[v] = 1.0 / inverse[v] if tight and inverse[v] > 0.0 else 0.0
        rest[v] = (system.rows[v] if v < rows else system.cols[v - rows]) if inverse[v] > 0.0 else 0.0
        x[v], move[v] = 0.0, rest[v] * inverse[v]
        size = max(size, abs(rest[v]))
    energy, worst = dot(rest, move, n), size
    for _ in range(2 * n):
        if worst <= ACCURATE * size + noise:
            break
        _apply(begin, column, rows, cols, inverse, move, image)
        curvature = dot(move, image, n)
        if not curvature > 0.0:
            break
        worst = _advance(energy / curvature, n, inverse, x, rest, move, image)
        next_energy = dot(rest, image, n)
        for v in range(n):
            move[v] = image[v] + (next_energy / energy) * move[v]
        energy = next_energy
    if not worst <= 1e3 * (ACCURATE * size + noise):
        return False
    system.rows[:rows] = x[:rows]
    system.cols[:cols] = x[rows:n]
    return True


@inner
def _degrees(begin, column, rows, cols, degree):
    degree[rows : rows + cols] = 0.0
    for i in range(rows):
        degree[i] = begin[i + 1] - begin[i]
        for k in range(begin[i], begin[i + 1]):
            degree[rows + column[k]] += 1.0


@inner
def _apply(begin, column, rows, cols, inverse, move, image):
    """image = Laplacian · move, where there are unknowns."""
    for v in range(rows + cols):
        image[v] = move[v] / inverse[v] if inverse[v] > 0.0 else 0.0
    for i in range(rows):
        total = 0.0
        for k in range(begin[i], begin[i + 1]):
            j = rows + column[k]
            total += move[j]
            image[j] += move[i]
        image[i] += total
    for v in range(rows + cols):
        image[v] = image[v] if inverse[v] > 0.0 else 0.0


@inner
def _advance(length, n, inverse, x, rest, move, image):
    """Goes along `move`; leaves the scaled residual in `image` and returns the largest residual."""
    worst = 0.0
    for v in range(n):
        x[v] += length * move[v]
        rest[v] -= length * image[v]
        image[v] = rest[v] * inverse[v]
        worst = max(worst, abs(rest[v]))
    return worst

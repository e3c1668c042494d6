"""Every matching of a few rows and columns, by trying them all, and the best of many by SciPy."""

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment


def matchings(n, m, optional=False):
    """All matchings of n rows and m columns as tuples of pairs: of the whole smaller side, or any if optional."""
    whole = min(n, m)
    found = []
    for size in range(0 if optional else whole, whole + 1):
        for rows in itertools.combinations(range(n), size):
            for cols in itertools.permutations(range(m), size):
                found.append(tuple(zip(rows, cols)))
    return found


def vertices(n, m, optional=False):
    """All matchings as (count, n, m) zeros and ones."""
    every = matchings(n, m, optional)
    matrices = np.zeros((len(every), n, m))
    for matrix, pairs in zip(matrices, every):
        for i, j in pairs:
            matrix[i, j] = 1.0
    return matrices


def values(scores, every):
    """⟨s, z⟩ of every vertex; what a vertex does not use may be anything."""
    return np.array([scores[z > 0.0].astype(float).sum() for z in every])


def best_value(scores, optional=False):
    """The score of the best matching, −∞ if there is none, by SciPy."""
    scores = np.asarray(scores, float)
    if optional:
        scores = np.maximum(scores, 0.0)  # a pair below 0 is as good as none
    try:
        return scores[linear_sum_assignment(scores, maximize=True)].sum()
    except ValueError:
        return -np.inf


def gap(scores, point, optional=False):
    """⟨s − μ, z − μ⟩ with z the best matching for s − μ: zero if and only if the mixture μ is nearest to s."""
    rest, used = scores - point, point > 0.0
    return best_value(rest, optional) - (rest[used] * point[used]).sum()


def surplus(point, optional=False):
    """How far the sums of rows and columns are from those of a mixture of matchings."""
    rows, cols = point.sum(1), point.sum(0)
    must_rows = not optional and len(rows) <= len(cols)
    must_cols = not optional and len(cols) <= len(rows)
    over = [np.abs(rows - 1.0) if must_rows else rows - 1.0, np.abs(cols - 1.0) if must_cols else cols - 1.0]
    return max(0.0, np.concatenate(over).max(initial=0.0))


def face_projection(point, tight_rows, tight_cols, gradient):
    """Projection of `gradient` on the directions that use pairs in use and keep the sums of tight rows and columns."""
    used = np.argwhere(point > 0.0)
    sums = [used[:, 0] == i for i in np.flatnonzero(tight_rows)] + [used[:, 1] == j for j in np.flatnonzero(tight_cols)]
    product, on_face = np.zeros(point.shape), gradient[point > 0.0]
    if sums:
        kept = np.array(sums, float)
        on_face = on_face - kept.T @ np.linalg.lstsq(kept.T, on_face, rcond=1e-10)[0]
    product[point > 0.0] = on_face
    return product

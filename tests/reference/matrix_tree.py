"""The matrix-tree theorem by determinant and inverse, in as many digits as the cancellation takes."""

import mpmath as mp
import numpy as np


def _determinant_and_inverse(rows):
    """By Gauss–Jordan elimination with partial pivoting; a determinant up to sign."""
    n = len(rows)
    rows = [row + [mp.mpf(i == j) for j in range(n)] for i, row in enumerate(rows)]
    determinant = mp.mpf(1)
    for k in range(n):
        i = max(range(k, n), key=lambda i: abs(rows[i][k]))
        rows[k], rows[i] = rows[i], rows[k]
        pivot = rows[k][k]
        determinant *= pivot
        rows[k] = [x / pivot for x in rows[k]]
        for i in range(n):
            factor = rows[i][k]
            if i != k and factor:
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k])]
    return abs(determinant), [row[n:] for row in rows]


def partition(scores, single_root, digits):
    """log det L and w ∂ log det L/∂w; L[m, m] = Σ_h w[h, m], L[h, m] = −w[h, m].

    With a single root the root's weights leave the diagonal and become the first row (Koo et al., 2007).  Scores that
    favor cycles cancel: `digits` has to grow with their scale.
    """
    n = scores.shape[0] - 1
    with mp.workdps(digits):
        w = np.full((n + 1, n + 1), mp.mpf(0), dtype=object)
        for h in range(n + 1):
            for m in range(1, n + 1):
                w[h, m] = mp.exp(mp.mpf(float(scores[h, m]))) if h != m else mp.mpf(0)
        laplacian = np.diag(w[1 if single_root else 0 :, 1:].sum(0)) - w[1:, 1:]
        if single_root:
            laplacian[0] = w[0, 1:]
        determinant, inverse = _determinant_and_inverse(laplacian.tolist())
        marginals = np.zeros((n + 1, n + 1))
        for m in range(1, n + 1):
            column = inverse[m - 1]  # ∂ log det L / ∂L[:, m]
            diagonal = column[m - 1] if not single_root or m > 1 else 0
            for h in range(1, n + 1):
                marginals[h, m] = w[h, m] * (diagonal - (column[h - 1] if not single_root or h > 1 else 0))
            marginals[0, m] = w[0, m] * (column[0] if single_root else diagonal)
        return mp.log(determinant), marginals

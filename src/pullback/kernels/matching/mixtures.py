"""SparseMAP over matchings: the nearest point of their hull and the matchings it mixes.

By the active-set method; the argmax is that of `assignment`.  A row chooses a column: of m columns, slot i holds the
part i · m + column, or −1 if the row has no partner.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.matching.assignment import Assignment, assign, new_assignment
from pullback.kernels.matching.wide import fits
from pullback.kernels.matching.wide import load as load_wide
from pullback.kernels.tools import inner, kernel


class Own(NamedTuple):
    """What the argmax needs: the matching, and room for a wide matrix."""

    assignment: Assignment
    room: np.ndarray


@inner
def _workspace(scores, options):
    n, m = scores.shape[1:]
    return Own(new_assignment(min(n, m), max(n, m)), np.empty(n * m))


@inner
def _code(lengths, scores):
    """The rows and columns in use as one number, which `_decoded` reads; more rows than there are if out of range."""
    n, m = scores.shape
    return lengths[0] * (m + 1) + lengths[1] if fits(lengths, scores) else (n + 1) * (m + 1)


@inner
def _decoded(code, m):
    return code // (m + 1), code % (m + 1)


@inner
def _load(scores, b, code, options, own, out):
    """Copies the scores in use, each relative to the best of its row if every row has a partner."""
    (optional,) = options
    n, m = _decoded(code, scores.shape[2])
    if n > scores.shape[1]:
        return -1
    valid = True
    for i in range(n):
        best = -np.inf
        for j in range(m):
            valid &= scores[b, i, j] < np.inf
            best = max(best, np.float64(scores[b, i, j]))
        shift = best if best > -np.inf and n <= m and not optional else 0.0
        for j in range(m):
            out[i, j] = scores[b, i, j] - shift
    return n if valid else -1


@inner
def best_matching(rest, code, options, own, parts):
    """Writes the parts of the best matching; False if there is none."""
    (optional,) = options
    n, m = _decoded(code, rest.shape[1])
    wide, transposed, _ = load_wide(rest, (n, m), own.room)
    if not assign(wide, optional, own.assignment):
        return False
    match = own.assignment.match
    for i in range(n):
        parts[i] = -1
    for i in range(len(wide)):
        if match[i] >= 0:
            row, col = (match[i], i) if transposed else (i, match[i])
            parts[row] = row * rest.shape[1] + col
    return True


_mixture, _mixture_backward = mixture_over(_workspace, _load, best_matching)


@inner
def _codes(lengths, scores):
    codes = np.empty(len(scores), np.int64)
    for b in range(len(scores)):
        codes[b] = _code(lengths[b], scores[b])
    return codes


@kernel
def mixture(
    scores, lengths, options, start, tolerance, max_iterations,
    point, parts, probabilities, size, gap, iterations, lo, hi,
):  # fmt: skip
    """The nearest mixture of matchings: `mixture_over` says what is written where.

    scores (batch, n, m) and lengths (batch, 2) as in `argmax`, which every round calls; options: (optional,).
    """
    return _mixture(
        scores, _codes(lengths, scores), options, start, tolerance, max_iterations,
        point, parts, probabilities, size, gap, iterations, lo, hi,
    )  # fmt: skip


@kernel
def mixture_backward(scores, lengths, options, parts, size, gradient, product, lo, hi):
    """The Jacobian of `mixture`, which is symmetric, times `gradient`; from the matchings that `mixture` wrote."""
    return _mixture_backward(scores, _codes(lengths, scores), options, parts, size, gradient, product, lo, hi)

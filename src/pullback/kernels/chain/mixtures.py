"""SparseMAP over the sequences of a linear chain: the nearest point of their hull and the sequences it mixes.

By the active-set method; the argmax is Viterbi's.  A position chooses a tag and that before it: slot i holds the part
(i · t + tag before) · t + tag.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.chain.viterbi import is_valid, read_sequence, sweep
from pullback.kernels.tools import inner, kernel


@inner
def _workspace(scores, options):
    """Viterbi's chart."""
    return np.empty((scores.shape[1], scores.shape[2]))


@inner
def _load(scores, b, n, options, own, out):
    """Copies the scores of n positions, each relative to the best of its position."""
    if n > scores.shape[1] or not is_valid(scores[b], n):
        return -1
    for i in range(n):
        rows = scores.shape[2] if i > 0 else 1
        best = -np.inf
        for a in range(rows):
            for c in range(scores.shape[3]):
                best = max(best, np.float64(scores[b, i, a, c]))
        shift = best if best > -np.inf else 0.0
        for a in range(rows):
            for c in range(scores.shape[3]):
                out[i, a, c] = scores[b, i, a, c] - shift
    return n


@inner
def best_sequence(rest, n, options, own, parts):
    if n == 0:
        return True
    sweep(rest, n, own)
    return read_sequence(rest, n, own, parts)


_mixture, _mixture_backward, attempt = mixture_over(_workspace, _load, best_sequence)


@kernel
def mixture(
    scores, lengths, start, tolerance, max_iterations,
    point, parts, probabilities, size, gap, iterations, lo, hi,
):  # fmt: skip
    """The nearest mixture of sequences: `mixture_over` says what is written where.

    scores (batch, n, t, t) by [position, tag before, tag], of position 0 only the row 0; lengths (batch,) in 0 … n.
    An argmax costs O(n t²).
    """
    return _mixture(
        scores, lengths, (), start, tolerance, max_iterations,
        point, parts, probabilities, size, gap, iterations, lo, hi,
    )  # fmt: skip


@kernel
def mixture_backward(scores, lengths, parts, size, gradient, product, lo, hi):
    """The Jacobian of `mixture`, which is symmetric, times `gradient`; from the sequences that `mixture` wrote."""
    return _mixture_backward(scores, lengths, (), parts, size, gradient, product, lo, hi)

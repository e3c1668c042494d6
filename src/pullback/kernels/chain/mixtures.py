"""SparseMAP over the sequences of a linear chain: the nearest point of their hull and the sequences it mixes.

By the active-set method; the argmax is Viterbi's, in O(n t²).  A position chooses a tag and that before it: of scores
(batch, n, t, t), slot i holds the part (i · t + tag before) · t + tag; of position 0 only the row 0 is read.  There are
no options.
"""

import numpy as np

from pullback.kernels.active_set import attempt_over, mixture_over
from pullback.kernels.chain.viterbi import is_valid, read_sequence, sweep
from pullback.kernels.tools import inner


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


mixture, mixture_backward = mixture_over(_workspace, _load, best_sequence)
attempt = attempt_over(_workspace, _load, best_sequence)

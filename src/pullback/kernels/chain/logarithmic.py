"""The sweeps of `forward_backward` on logarithms, for scores whose weights leave the range of floating-point numbers.

Every score loses the largest of its position first, and every prefix the logarithm of its sum, so that the numbers stay as
small as the differences between scores: a large common offset costs no digits.
"""

import numpy as np

from pullback.kernels.chain.parts import is_fit, largest, pairs
from pullback.kernels.tools import exp, fmax, inner, summing


@summing
def _exp_total(x, shift):
    result = 0.0
    for i in range(x.shape[0]):
        result += exp(x[i] - shift)
    return result


@inner
def _log_sum(x):
    """log Σ exp x."""
    top = largest(x)
    return top + np.log(_exp_total(x, top)) if top > -np.inf else top


@inner
def _step(before, score, top, after, best):
    """after[b] = log Σ_a exp(before[a] + score[a, b] − top); `best` is workspace."""
    best[:] = -np.inf
    after[:] = 0.0
    for a in range(before.shape[0]):
        p, row = before[a], score[a]
        for b in range(best.shape[0]):
            best[b] = fmax((row[b] - top) + p, best[b])
    for b in range(best.shape[0]):
        best[b] = max(best[b], -1e300)  # so that −∞ − best is not NaN
    for a in range(before.shape[0]):
        p, row = before[a], score[a]
        for b in range(best.shape[0]):
            after[b] += exp((row[b] - top) + p - best[b])
    for b in range(best.shape[0]):
        after[b] = best[b] + np.log(after[b])


@inner
def forward(scores, n, prefix, norm):
    """Fills log prefix and log norm; returns log Z, NaN if a score is not fit, −∞ if there is no sequence."""
    start, best = np.zeros(1), np.empty(scores.shape[1])
    value = 0.0
    if not is_fit(scores, n):
        return np.nan
    for i in range(n):
        top = largest(pairs(scores, i))
        before = prefix[i - 1] if i > 0 else start
        _step(before, scores[i], top, prefix[i], best)
        norm[i] = _log_sum(prefix[i])
        if norm[i] == -np.inf:
            return norm[i]
        prefix[i] -= norm[i]
        value += top + norm[i]
    return value


@summing
def _exp_into(x, shift, y):
    """y = exp(x − shift); returns its sum."""
    result = 0.0
    for i in range(x.shape[0]):
        y[i] = exp(x[i] - shift)
        result += y[i]
    return result


@inner
def backward(scores, n, prefix, norm, marginals):
    """Writes p[i, a, b] in the range of the chain, from the logarithms of `forward`."""
    t = scores.shape[1]
    suffix, joined, share = np.zeros(t), np.empty(t), np.empty(t)
    for i in range(n - 1, -1, -1):
        top = largest(pairs(scores, i))
        after = suffix - norm[i]
        for a in range(t if i > 0 else 1):
            row = scores[i, a]
            for b in range(t):
                joined[b] = (row[b] - top) + after[b]
            best = largest(joined)
            sum_of_shares = _exp_into(joined, max(best, -1e300), share)
            reach = exp(best + (prefix[i - 1, a] if i > 0 else 0.0))
            suffix[a] = best + np.log(sum_of_shares)
            out = marginals[i, a]
            for b in range(t):
                out[b] = reach * share[b]

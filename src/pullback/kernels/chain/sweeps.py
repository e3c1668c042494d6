"""One linear chain as a Markov chain: its log-partition, and how probable each tag is given the tag before it.

A sequence takes the pair (a, b), tag a at position i − 1 and tag b at position i, at the score s[i, a, b]; position 0
has no tag before it and uses row 0.  From the end to the start, with future[n − 1, b] = 0,

    share[i, a, b] = exp(s[i, a, b] + future[i, b] − peak[i, a])            peak: the largest exponent of the row
    total[i, a]    = Σ_b share[i, a, b]
    future[i−1, a] = peak[i, a] + log total[i, a]                           of row 0 of position 0: log Z

so the probability of b given a is share / total.  From the start to the end, with mass 1 before position 0,

    p[i, a, b] = mass[i−1, a] share[i, a, b] / total[i, a],        mass[i, b] = Σ_a p[i, a, b]

in O(n t²), with one exponential for each score.

Scale: `future` is a logarithm and every other number a probability, of which only those underflow that do not matter;
so scores may be of any size.  Every score loses the largest of its position first, and `future` its own largest, so an
offset common to all scores costs no digits.  Products of weights, rescaled at each position, would be somewhat faster,
but a sequence whose product underflows on the way may still be the best; here no such case exists.
"""

import numpy as np

from pullback.kernels.tools import exponentiate, fmax, inner, log, maximum, summing

_LOWEST = -np.finfo(np.float64).max  # stands for −∞ as a peak: −∞ less −∞ would be NaN


@inner
def pairs(x, i):
    """The pairs of position i in one row: all of them, but at position 0 those of row 0."""
    return x[0, 0] if i == 0 else x[i].reshape(x.shape[1] * x.shape[2])


@inner
def _join(score, top, future, peak, joined):
    """joined[a, b] = score[a, b] − top + future[b] − peak[a], where peak[a] makes 0 the largest of row a."""
    for a in range(peak.shape[0]):
        row, out = score[a], joined[a]
        best = _LOWEST
        for b in range(future.shape[0]):
            x = (row[b] - top) + future[b]
            out[b] = x
            best = fmax(x, best)
        peak[a] = best
        for b in range(future.shape[0]):
            out[b] -= best


@summing
def _add_rows(share, total):
    for a in range(total.shape[0]):
        row = share[a]
        result = 0.0
        for b in range(row.shape[0]):
            result += row[b]
        total[a] = result


@inner
def _log_totals(peak, total, future):
    """future = peak + log(total), less its largest, which is returned: NaN if a total is, −∞ if all are zero."""
    best = -np.inf
    for a in range(total.shape[0]):
        if np.isnan(total[a]):
            return np.nan
        future[a] = peak[a] + log(total[a]) if total[a] > 0.0 else -np.inf
        best = max(best, future[a])
    if best > -np.inf:
        for a in range(total.shape[0]):
            future[a] -= best
    return best


@inner
def backward(scores, n, share, total):
    """Fills share and total, of position 0 row 0 alone, and returns log Z.  Rows of tags that lead nowhere are zero.

    NaN or −∞ says that there is no answer: a score in use is NaN or +∞, or no sequence is above −∞.
    """
    t = scores.shape[1]
    future, peak = np.zeros(t), np.empty(t)
    value = 0.0
    for i in range(n - 1, -1, -1):
        rows = t if i > 0 else 1
        top = maximum(pairs(scores, i))
        _join(scores[i], top, future, peak[:rows], share[i])
        exponentiate(pairs(share, i))
        _add_rows(share[i], total[i, :rows])
        rise = _log_totals(peak[:rows], total[i, :rows], future[:rows])
        if not rise > -np.inf:
            return rise
        value += top + rise
    return value


@inner
def _add_columns(reach, share, mass):
    """mass[b] = Σ_a reach[a] share[a, b], four rows at a time."""
    t = reach.shape[0]
    mass[:] = 0.0
    for a in range(0, t - 3, 4):
        p, q, r, s = reach[a], reach[a + 1], reach[a + 2], reach[a + 3]
        first, second, third, fourth = share[a], share[a + 1], share[a + 2], share[a + 3]
        for b in range(mass.shape[0]):
            mass[b] += (p * first[b] + q * second[b]) + (r * third[b] + s * fourth[b])
    for a in range(t - t % 4, t):
        p, first = reach[a], share[a]
        for b in range(mass.shape[0]):
            mass[b] += p * first[b]


@inner
def _multiply(reach, share, marginals):
    """marginals[a, b] = reach[a] share[a, b]."""
    for a in range(reach.shape[0]):
        p, row, out = reach[a], share[a], marginals[a]
        for b in range(row.shape[0]):
            out[b] = p * row[b]


@inner
def forward(n, share, total, mass, marginals):
    """Fills mass[i, b] and p[i, a, b]; marginals are zero in rows a > 0 of position 0 and from position n on."""
    reach = np.ones(share.shape[1])
    marginals[n:] = 0.0
    marginals[:1, 1:] = 0.0
    for i in range(n):
        rows = len(reach) if i > 0 else 1
        for a in range(rows):
            before = mass[i - 1, a] if i > 0 else 1.0
            reach[a] = before / total[i, a] if before > 0.0 else 0.0
        _multiply(reach[:rows], share[i], marginals[i])
        _add_columns(reach[:rows], share[i], mass[i])

"""Distributions over sequences of tags: log-partition, marginals and their derivative.

p(sequence) ∝ exp of the sum of its scores.  Scores are (batch, n, t, t): scores[·, i, a, b] belongs to tag a at
position i − 1 and tag b at position i; of position 0 only row 0 is read.  lengths (batch,) say how many positions are
in use.  Every kernel returns the first instance whose length is not in 0 … n, that has a NaN or +∞ among the scores in
use, or no sequence above −∞; else −1.
"""

import numpy as np

from pullback.kernels.chain.sweeps import backward, forward, pairs
from pullback.kernels.tools import inner, kernel, summing


@kernel
def log_partition(scores, lengths, value, lo, hi):
    """log Σ exp(score) over the sequences of each instance; one number each, 0 for an empty chain.  O(n t²)."""
    n, t = scores.shape[1:3]
    share, total = np.empty((n, t, t)), np.empty((n, t))
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        result = backward(scores[b], lengths[b], share, total)
        if not result > -np.inf:
            return b
        value[b] = result
    return -1


@kernel
def partition(scores, lengths, value, marginals, lo, hi):
    """The log-partition and its gradient, the probability of each pair of tags, shaped like scores.  O(n t²)."""
    n, t = scores.shape[1:3]
    share, total, mass = np.empty((n, t, t)), np.empty((n, t)), np.empty((n, t))
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        result = backward(scores[b], lengths[b], share, total)
        if not result > -np.inf:
            return b
        value[b] = result
        forward(lengths[b], share, total, mass, marginals[b])
    return -1


_NO_MASS = 1e-200  # the mean over tags that are less probable has no digits left, and does not matter


@inner
def _times(joint, direction, pulled):
    """pulled = joint · direction, and zero where joint is, whatever the direction of an impossible pair."""
    for j in range(joint.shape[0]):
        share, step = joint[j], np.float64(direction[j])
        pulled[j] = share * step if share > 0.0 else 0.0


@inner
def _add_columns(joint, pulled, before, moved):
    """moved[b] = Σ_a joint[a, b] before[a] + pulled[a, b], two rows at a time."""
    t = before.shape[0]
    moved[:] = 0.0
    for a in range(0, t - 1, 2):
        p, q = before[a], before[a + 1]
        first, second, pulled_first, pulled_second = joint[a], joint[a + 1], pulled[a], pulled[a + 1]
        for b in range(moved.shape[0]):
            moved[b] += (p * first[b] + pulled_first[b]) + (q * second[b] + pulled_second[b])
    if t % 2:
        p, first, pulled_first = before[t - 1], joint[t - 1], pulled[t - 1]
        for b in range(moved.shape[0]):
            moved[b] += p * first[b] + pulled_first[b]


@summing
def _add_rows(joint, pulled, after, moved):
    """moved[a] = Σ_b joint[a, b] after[b] + pulled[a, b]."""
    for a in range(moved.shape[0]):
        row, pulled_row = joint[a], pulled[a]
        result = 0.0
        for b in range(after.shape[0]):
            result += row[b] * after[b] + pulled_row[b]
        moved[a] = result


@inner
def _combine(joint, pulled, before, mean, after, product):
    """product[a, b] = joint[a, b] · (before[a] − mean + after[b]) + pulled[a, b]."""
    for a in range(before.shape[0]):
        row, pulled_row, out = joint[a], pulled[a], product[a]
        past = before[a] - mean
        for b in range(after.shape[0]):
            out[b] = row[b] * (past + after[b]) + pulled_row[b]


@inner
def _conditional(moved, mass, mean, result):
    """result = moved / mass − mean, the mean given each tag less the mean of all."""
    for b in range(mass.shape[0]):
        result[b] = moved[b] / mass[b] - mean if mass[b] > _NO_MASS else 0.0


@inner
def _covariance_product(marginals, mass, direction, n, pulled, before, product):
    """Cov(z) · direction of one chain, from its marginals of pairs and of tags; pulled and before are workspace.

    They say everything: given its tag at one position, the past and the future of a random sequence are independent.
    So Cov(z[i, a, b], ⟨g, z⟩) = p[i, a, b] · (the mean of ⟨g, z⟩ given the pair (a, b), less the mean of all), and the
    former is the mean before a, plus g[i, a, b], plus the mean after b.  A constant on all pairs of a position moves no
    marginal, so the mean of each position is taken off at once, and small numbers keep their digits.
    """
    t = marginals.shape[1]
    start, moved, mean, after = np.zeros(1), np.empty(t), np.empty(n), np.zeros(t)
    for i in range(n):
        earlier = before[i - 1] if i > 0 else start
        _times(pairs(marginals, i), pairs(direction, i), pairs(pulled, i))
        _add_columns(marginals[i], pulled[i], earlier, moved)
        mean[i] = moved.sum()
        _conditional(moved, mass[i], mean[i], before[i])
    for i in range(n - 1, -1, -1):
        earlier = before[i - 1] if i > 0 else start
        _combine(marginals[i], pulled[i], earlier, mean[i], after, product[i])
        if i > 0:
            _add_rows(marginals[i], pulled[i], after, moved)
            _conditional(moved, mass[i - 1], mean[i], after)


@kernel
def hessian_product(marginals, lengths, direction, product, lo, hi):
    """The derivative of the marginals along `direction`: the Hessian of the log-partition times it, Cov(z) · g.

    marginals are those that `partition` gave; direction and product are shaped like them.  The Hessian is symmetric, so
    this is also the backward pass of the marginals.  O(n t²).
    """
    n, t = marginals.shape[1:3]
    exact, pulled = np.empty((n, t, t)), np.empty((n, t, t))
    mass, before = np.empty((n, t)), np.empty((n, t))
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        _load(marginals[b], lengths[b], exact, mass)
        product[b, lengths[b] :] = 0.0
        product[b, :1, 1:] = 0.0
        _covariance_product(exact, mass, direction[b], lengths[b], pulled, before, product[b])
    return -1


@inner
def _load(marginals, n, exact, mass):
    """Copies the marginals of pairs in double precision, and adds up those of tags."""
    t = marginals.shape[1]
    for i in range(n):
        row = mass[i]
        for b in range(t):
            row[b] = 0.0
        for a in range(t if i > 0 else 1):
            given, copied = marginals[i, a], exact[i, a]
            for b in range(t):
                copied[b] = given[b]
                row[b] += copied[b]

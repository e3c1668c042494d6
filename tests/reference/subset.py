"""Subsets, one by one: slow, obvious, trusted."""

import itertools

import mpmath
import numpy as np
from scipy.special import logsumexp, softmax


def subsets(n, low, high):
    """Every 0/1 vector of length n with low … high ones: (subsets, n)."""
    every = [z for z in itertools.product((0.0, 1.0), repeat=n) if low <= sum(z) <= high]
    return np.array(every).reshape(-1, n)


def allowed(scores, low, high):
    """The subsets without a forbidden item, and the total score of each."""
    every = subsets(len(scores), low, high)
    every = every[(every[:, scores == -np.inf] == 0).all(1)]
    return every, every @ np.where(scores == -np.inf, 0.0, scores)


def log_partition(scores, low, high):
    """log Σ exp⟨s, z⟩, the expected subset and the covariance of the items."""
    every, total = allowed(scores, low, high)
    p = softmax(total)
    mean = p @ every
    return logsumexp(total), mean, (every - mean).T @ (p[:, None] * (every - mean))


def precise_marginals(scores, low, high, digits=60):
    """log Σ exp⟨s, z⟩ and the marginals, in high precision: what an item weighs times the sum over the other items."""
    with mpmath.workdps(digits):
        weight = [mpmath.exp(mpmath.mpf(float(s))) for s in scores]

        def total(items, low, high):
            sums = [mpmath.mpf(1)] + [mpmath.mpf(0)] * high
            for i in items:
                sums = [sums[0]] + [sums[j] + weight[i] * sums[j - 1] for j in range(1, high + 1)]
            return sum(sums[max(low, 0) :])

        n = len(scores)
        everything = total(range(n), low, high)
        marginals = [
            weight[i] * total([j for j in range(n) if j != i], low - 1, high - 1) / everything for i in range(n)
        ]
        return float(mpmath.log(everything)), np.array([float(m) for m in marginals])


def project(scores, low, high):
    """clip(s − τ, 0, 1); where a count k is violated, τ by bisection on the unit interval below the k-th score."""
    total = np.clip(scores, 0, 1).sum()
    if low <= total <= high:
        return np.clip(scores, 0, 1)
    k = low if total < low else high
    if k == 0:
        return np.zeros(len(scores))
    relative = scores - np.sort(scores)[-k]
    left, right = -1.0, 0.0
    for _ in range(60):
        tau = (left + right) / 2
        left, right = (tau, right) if np.clip(relative - tau, 0, 1).sum() > k else (left, tau)
    return np.clip(relative - right, 0, 1)

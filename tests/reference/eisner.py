"""The sum over projective trees in high precision, from the recurrences and nothing else."""

from functools import cache

import mpmath as mp


def log_partition(scores, single_root):
    """log Σ exp(score) over the projective trees of one (n+1, n+1) score matrix, as an mpmath number.

    right(i, j): half trees of i over i..j; left(i, j): half trees of j over i..j; the words between a head and its
    outermost modifier are shared between the two.
    """
    n = len(scores) - 1
    mp.mp.dps = 80

    def weight(head, modifier):
        return mp.exp(mp.mpf(float(scores[head, modifier])))

    @cache
    def right(i, j):
        if i == j:
            return mp.mpf(1)
        if single_root and i == 0:
            return mp.fsum(weight(0, k) * left(1, k) * right(k, j) for k in range(1, j + 1))
        return mp.fsum(weight(i, k) * between(i, k) * right(k, j) for k in range(i + 1, j + 1))

    @cache
    def left(i, j):
        if i == j:
            return mp.mpf(1)
        return mp.fsum(left(i, k) * weight(j, k) * between(k, j) for k in range(i, j))

    @cache
    def between(i, j):
        return mp.fsum(right(i, k) * left(k + 1, j) for k in range(i, j))

    return mp.log(right(0, n))


def marginal(scores, single_root, head, modifier):
    """The probability of one arc: 1 − Z(without it) / Z."""
    without = scores.copy()
    without[head, modifier] = -mp.inf
    return 1 - mp.exp(log_partition(without, single_root) - log_partition(scores, single_root))

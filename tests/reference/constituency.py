"""Binary trees over spans: all of them, and their sum in high precision from the recurrence and nothing else."""

import itertools
from functools import cache

import mpmath as mp
import numpy as np


def bracketings(i, j):
    """The sets of spans of all binary trees over the words i..j, as frozensets of (first, last)."""
    if i == j:
        return [frozenset({(i, i)})]
    return [
        left | right | {(i, j)}
        for k in range(i, j)
        for left in bracketings(i, k)
        for right in bracketings(k + 1, j)
    ]  # fmt: skip


def labelled_trees(n, t):
    """All trees over n words with t labels as 0/1 arrays: (trees, n, n, t)."""
    found = []
    for tree in bracketings(0, n - 1) if n else [frozenset()]:
        for labels in itertools.product(range(t), repeat=len(tree)):
            z = np.zeros((n, n, t))
            for (i, j), label in zip(sorted(tree), labels):
                z[i, j, label] = 1.0
            found.append(z)
    return np.array(found)


def distribution(scores):
    """All trees for scores (n, n, t), their scores, and their probabilities."""
    n, _, t = scores.shape
    z = labelled_trees(n, t)
    values = np.where(z > 0, np.where(z > 0, scores, 0.0), 0.0).reshape(len(z), -1).sum(1)
    p = np.exp(values - values.max())
    return z, values, p / p.sum()


def log_partition(scores):
    """log Σ exp(score) over the trees of scores (n, n, t), as an mpmath number."""
    n = len(scores)
    mp.mp.dps = 80

    def weight(i, j):
        return mp.fsum(mp.exp(mp.mpf(float(score))) for score in scores[i, j])

    @cache
    def tree(i, j):
        if i == j:
            return weight(i, i)
        return weight(i, j) * mp.fsum(tree(i, k) * tree(k + 1, j) for k in range(i, j))

    return mp.log(tree(0, n - 1))


def marginal(scores, i, j, label):
    """The probability of one labelled span: 1 − Z(without it) / Z."""
    without = scores.copy()
    without[i, j, label] = -mp.inf
    return 1 - mp.exp(log_partition(without) - log_partition(scores))

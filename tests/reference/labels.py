"""Labelled trees, written out: every tree with every way to label it."""

import itertools

import numpy as np

from reference.trees import enumerate_trees


def labelled_trees(n, t, projective, single_root):
    """Every labelled tree over n words, as a pair of heads and labels, one for each word."""
    every = itertools.product(enumerate_trees(n, projective, single_root), itertools.product(range(t), repeat=n))
    return [(tuple(heads), labels) for heads, labels in every]


def score(scores, heads, labels):
    """The sum over arcs of scores[head, modifier, label]."""
    return sum(scores[h, m, k] for m, (h, k) in enumerate(zip(heads, labels), start=1))


def arcs(n, t, heads, labels):
    """The (n + 1, n + 1, t) array with a one at [head, modifier, label] for each arc."""
    answer = np.zeros((n + 1, n + 1, t))
    for m, (h, k) in enumerate(zip(heads, labels), start=1):
        answer[h, m, k] = 1
    return answer


def k_best(scores, k, projective, single_root):
    """The k best scores of labelled trees, in decreasing order."""
    n, t = scores.shape[1] - 1, scores.shape[2]
    values = [score(scores, *tree) for tree in labelled_trees(n, t, projective, single_root)]
    return sorted((value for value in values if value > -np.inf), reverse=True)[:k]

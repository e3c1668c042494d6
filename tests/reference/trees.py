"""Every dependency tree over n words, by trying all head assignments."""

import functools
import itertools

import numpy as np


def is_tree(heads):
    """Whether following `heads` (heads[m − 1] is the head of word m) leads every word to the root, node 0."""
    for word in range(1, len(heads) + 1):
        node, steps = word, 0
        while node and steps <= len(heads):
            node, steps = heads[node - 1], steps + 1
        if node:
            return False
    return True


def is_projective(heads):
    """Whether every word strictly between a head and its modifier descends from that head; so no two arcs cross."""
    for modifier, head in enumerate(heads, start=1):
        for between in range(min(head, modifier) + 1, max(head, modifier)):
            node = between
            while node and node != head:
                node = heads[node - 1]
            if node != head:
                return False
    return True


def enumerate_trees(n, projective, single_root):
    """All trees over n words as head tuples of length n; one empty tuple when n = 0.

    Counts: (n+1)ⁿ⁻¹ trees, nⁿ⁻¹ with a single root; projective 1, 3, 12, 55, 273, with a single root 1, 2, 7, 30, 143.
    """
    return [
        heads
        for heads in itertools.product(range(n + 1), repeat=n)
        if (heads.count(0) == 1 or not single_root or n == 0)
        and is_tree(heads)
        and (not projective or is_projective(heads))
    ]


def arcs(heads):
    """The (n+1, n+1) matrix of zeros and ones with a one at [head, modifier] for each arc."""
    matrix = np.zeros((len(heads) + 1, len(heads) + 1))
    for modifier, head in enumerate(heads, start=1):
        matrix[head, modifier] = 1.0
    return matrix


def distribution(scores, projective, single_root):
    """Trees, their arc matrices, their scores and their probabilities ∝ exp(score) for one (n+1, n+1) score matrix.

    Where all trees are forbidden (score −∞) the probabilities are zero.
    """
    trees = enumerate_trees(scores.shape[0] - 1, projective, single_root)
    matrices = np.array([arcs(heads) for heads in trees])
    safe = np.where(matrices.any(0), scores, 0.0)  # column 0 and the diagonal may hold anything
    values = np.where(matrices > 0, safe, 0.0).sum((1, 2))
    weights = np.exp(values - max(values.max(), np.finfo(float).min))
    return trees, matrices, values, weights / max(weights.sum(), 1.0)


@functools.cache
def all_arcs(n, single_root):
    """The arc matrices of all trees over n words as the rows of one matrix, (trees, (n+1)²)."""
    return np.array([arcs(heads).ravel() for heads in enumerate_trees(n, False, single_root)])


def distributions(scores, single_root):
    """Arc matrices as the rows of one matrix, scores and probabilities of all trees, for a batch of finite scores."""
    matrices = all_arcs(scores.shape[1] - 1, single_root)
    values = scores.reshape(len(scores), -1).astype(np.float64) @ matrices.T
    weights = np.exp(values - values.max(1, keepdims=True))
    return matrices, values, weights / weights.sum(1, keepdims=True)

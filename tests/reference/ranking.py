"""The permutahedron, written out: isotonic regression by its minimax formula, and all permutations."""

import itertools

import numpy as np


def permutations(values):
    """Every order of the values, each once: (orders, n)."""
    return np.unique(list(itertools.permutations(values)), axis=0)


def isotonic(n, level):
    """The ascending v that is constant on blocks, with level(j, k) on the block j … k: maxⱼ minₖ over j ≤ i ≤ k."""
    return np.array([max(min(level(j, k) for k in range(i, n)) for j in range(i + 1)) for i in range(n)])


def project(scores, values):
    """The point of the permutahedron of `values` nearest to `scores`."""
    order = np.argsort(scores)
    s, w = scores[order], np.sort(values)
    point = np.empty(len(s))
    point[order] = s - isotonic(len(s), lambda j, k: np.mean(s[j : k + 1] - w[j : k + 1]))
    return point


def project_entropic(scores, values):
    """The point μ of the permutahedron with the least Σ μ log μ − μ − μ s."""
    order = np.argsort(scores)
    s, w = scores[order], np.sort(values)

    def level(j, k):
        return np.logaddexp.reduce(s[j : k + 1]) - np.log(w[j : k + 1].sum())

    point = np.empty(len(s))
    point[order] = np.exp(s - isotonic(len(s), level))
    return point


def project_logarithms(scores, values):
    """The logarithm of `project_entropic` where the values are the exponentials of those given."""
    order = np.argsort(scores)
    s, w = scores[order], np.sort(values)

    def level(j, k):
        return np.logaddexp.reduce(s[j : k + 1]) - np.logaddexp.reduce(w[j : k + 1])

    point = np.empty(len(s))
    point[order] = s - isotonic(len(s), level)
    return point

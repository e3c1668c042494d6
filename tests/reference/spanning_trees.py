"""Every spanning forest of a complete graph, by trying all sets of edges; and what makes a point a mixture of them."""

import functools
import itertools

import mpmath as mp
import numpy as np

from reference.matrix_tree import _determinant_and_inverse


def has_cycle(n, edges):
    component = list(range(n))
    for i, j in edges:
        a, b = component[i], component[j]
        if a == b:
            return True
        component = [a if c == b else c for c in component]
    return False


@functools.cache
def forests(n, components=1):
    """The vertices (count, n, n), symmetric; one of zeros for a graph without edges.  nⁿ⁻² of them are trees."""
    pairs = list(itertools.combinations(range(n), 2))
    chosen = [e for e in itertools.combinations(pairs, max(n, 1) - components) if not has_cycle(n, e)]
    vertices = np.zeros((len(chosen), n, n))
    for vertex, edges in zip(vertices, chosen):
        for i, j in edges:
            vertex[i, j] = vertex[j, i] = 1
    return vertices


def values(scores, vertices):
    """Σ scores over the edges of each vertex, each edge once; only scores above the diagonal count."""
    upper = np.triu(np.ones(scores.shape, bool), 1)
    chosen = vertices[:, upper] > 0
    return np.where(chosen, scores[upper].astype(float), 0.0).sum(1)


def distribution(scores):
    """Trees, their scores and their probabilities ∝ exp(score); zero where all are forbidden."""
    trees = forests(len(scores))
    totals = values(scores, trees)
    weights = np.exp(totals - max(totals.max(), np.finfo(float).min))
    return trees, totals, weights / max(weights.sum(), 1.0)


def excess(point, components=1):
    """The largest violation of a constraint: x ≥ 0, x(T) ≤ |T| − 1, x(all) = n − components."""
    n = len(point)
    worst = max(-point.min(initial=0.0), abs(np.triu(point, 1).sum() - (max(n, 1) - components)))
    for size in range(2, n + 1):
        for nodes in itertools.combinations(range(n), size):
            worst = max(worst, point[np.ix_(nodes, nodes)].sum() / 2 - (size - 1))
    return worst


def partition(scores, digits):
    """log Z and the marginals of trees from the determinant and inverse of the Laplacian, in many digits."""
    n = len(scores)
    with mp.workdps(digits):
        w = np.full((n, n), mp.mpf(0), dtype=object)
        for i, j in itertools.combinations(range(n), 2):
            w[i, j] = w[j, i] = mp.exp(mp.mpf(float(scores[i, j])))
        laplacian = np.diag(w.sum(0)) - w
        determinant, inverse = _determinant_and_inverse(laplacian[1:, 1:].tolist())
        padded = np.full((n, n), mp.mpf(0), dtype=object)
        padded[1:, 1:] = inverse
        resistance = np.diag(padded)[:, None] + np.diag(padded) - padded - padded.T
        return mp.log(determinant), (w * resistance).astype(float)

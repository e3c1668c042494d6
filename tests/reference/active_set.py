"""Projection onto the hull of listed vertices, and small polytopes to project onto."""

import itertools

import numpy as np
from scipy.optimize import lsq_linear


def project(scores, vertices):
    """The point of conv(vertices) nearest to `scores`: p ∝ argmin over x ≥ 0 of ‖Σ xᵢ (zᵢ − s)‖² + (Σ xᵢ − 1)².

    With x = t p the first term is t² times the squared distance of Σ pᵢ zᵢ, so for any t the best p is the same.
    Forbidden parts (−∞) take away the vertices that use them.
    """
    forbidden = np.isneginf(scores)
    vertices = vertices[~vertices[:, forbidden].any(1)]
    away = vertices - np.where(forbidden, 0.0, scores)
    system = np.vstack([away.T, np.ones(len(vertices))])
    goal = np.append(np.zeros(len(scores)), 1.0)
    x = lsq_linear(system, goal, (0, np.inf), method="bvls", tol=1e-15, max_iter=100 * len(vertices)).x
    return x / x.sum() @ vertices


def face_projector(gradient, vertices, point):
    """Orthogonal projector onto the span of the best vertices for `gradient` = s − μ: the projection's Jacobian."""
    best = vertices[(vertices - point) @ gradient > -1e-9]
    span = best - best[0]
    return np.linalg.pinv(span) @ span


def subsets(n, k):
    return np.array([np.isin(np.arange(n), chosen) for chosen in itertools.combinations(range(n), k)], float)


def permutations(n):
    return np.array([np.eye(n)[list(order)].ravel() for order in itertools.permutations(range(n))])


def sequences(n, tags):
    return np.array([np.eye(tags)[list(path)].ravel() for path in itertools.product(range(tags), repeat=n)])


def cube(n):
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))


def as_vertices(parts, size, total):
    """The parts (batch, k, slots) of size[b] vertices as zeros and ones (batch, k, total); zero beyond."""
    vertices = np.zeros((*parts.shape[:2], total))
    for b, t, i in np.argwhere(parts >= 0):
        if t < size[b]:
            vertices[b, t, parts[b, t, i]] = 1.0
    return vertices

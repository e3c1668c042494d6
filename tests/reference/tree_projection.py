"""What makes a point the projection onto the arborescence polytope, checked the long way."""

import itertools

import numpy as np


def subsets(n):
    """All sets of at least two of the words 1…n, as lists."""
    for size in range(2, n + 1):
        yield from (list(words) for words in itertools.combinations(range(1, n + 1), size))


def inflow(point, words):
    """What a set of words receives from outside; every column sums to 1."""
    return len(words) - point[np.ix_(words, words)].sum()


def max_flow(capacity, sink):
    """The largest flow from node 0 to `sink`, by shortest augmenting paths in the dense residual matrix."""
    residual = capacity.copy()
    total = 0.0
    while True:
        parent = np.full(len(residual), -1)
        parent[0] = 0
        frontier = np.array([0])
        while len(frontier) and parent[sink] < 0:
            open_arcs = (residual[frontier] > 1e-13) & (parent < 0)
            reached = np.flatnonzero(open_arcs.any(0))
            parent[reached] = frontier[open_arcs[:, reached].argmax(0)]
            frontier = reached
        if parent[sink] < 0:
            return total
        path = [sink]
        while path[-1]:
            path.append(parent[path[-1]])
        heads, modifiers = path[1:], path[:-1]
        amount = residual[heads, modifiers].min()
        residual[heads, modifiers] -= amount
        residual[modifiers, heads] += amount
        total += amount


def least_inflow(point):
    """The smallest amount that any set of words receives: the least flow from the root to a word."""
    return min(max_flow(point, word) for word in range(1, len(point)))


def face_projection(point, single_root, grad):
    """Projection of `grad` on the directions of the smallest face that holds `point`, from every set that is tight."""
    n = len(point) - 1
    support = point > 0
    rows = [~support & (np.arange(n + 1) == i)[:, None] & (np.arange(n + 1) == j) for i, j in np.argwhere(~support)]
    rows += [np.ones((n + 1, 1), bool) & (np.arange(n + 1) == j) for j in range(1, n + 1)]
    for words in subsets(n):
        if inflow(point, words) < 1 + 1e-9:
            inside = np.zeros((n + 1, n + 1), bool)
            inside[np.ix_(words, words)] = True
            rows.append(inside)
    if single_root:
        rows.append(np.arange(n + 1)[:, None] + np.zeros(n + 1) == 0)
    constraints = np.array(rows, float).reshape(len(rows), -1)
    basis = np.linalg.svd(constraints, full_matrices=True)[2][np.linalg.matrix_rank(constraints) :]
    return (basis.T @ (basis @ grad.ravel())).reshape(grad.shape)

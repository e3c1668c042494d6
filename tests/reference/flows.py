"""Paths in small DAGs, all of them, and the best one in any DAG; edges are two lists, tails and heads."""

import numpy as np


def graphs(tail, head):
    """The kernels' form of a DAG with one sink, in which each edge is a part: graphs (1, 3, edges + 2), sinks (1,)."""
    assert sorted(zip(tail, head)) == list(zip(tail, head)) and all(u < v for u, v in zip(tail, head))
    edges = len(head)
    graph = np.full((3, edges + 2), -1)
    graph[0] = np.searchsorted(tail, np.arange(edges + 2))
    graph[1, :edges], graph[2, :edges], graph[1, -1] = head, range(edges), max(head)
    return graph[None], np.array([max(head)])


def paths(tail, head):
    """The indicators of all paths from node 0 to the last node, (paths, edges)."""
    found = []

    def go(node, chosen):
        if node == max(head):
            found.append(np.isin(np.arange(len(head)), chosen).astype(float))
        for e in np.flatnonzero(np.equal(tail, node)):
            go(head[e], [*chosen, e])

    go(0, [])
    return np.array(found)


def best_path(scores, tail, head):
    """The indicator of a path of highest score; edges are sorted by tail, so each is used when its tail is done."""
    best, arrival = np.full(max(head) + 1, -np.inf), np.zeros(max(head) + 1, int)
    best[0] = 0.0
    for e in range(len(head)):
        if best[tail[e]] + scores[e] > best[head[e]]:
            best[head[e]], arrival[head[e]] = best[tail[e]] + scores[e], e
    path, node = np.zeros(len(head)), max(head)
    while node > 0:
        path[arrival[node]] = 1.0
        node = tail[arrival[node]]
    return path


def imbalance(point, tail, head):
    """What leaves each node less what arrives, less the unit from source to sink."""
    total = np.zeros(max(head) + 1)
    np.add.at(total, tail, point)
    np.subtract.at(total, head, point)
    total[0] -= 1.0
    total[-1] += 1.0
    return total


def gap(scores, point, tail, head):
    """⟨s − μ, z − μ⟩ with z the best path for s − μ: zero if and only if the flow μ is nearest to s."""
    slope = scores - point
    better = best_path(slope, tail, head) - point
    return (np.where(np.isfinite(slope), slope, 0.0) * better).sum()


def face_projection(point, every, gradient):
    """Projection of `gradient` on the directions between the paths that use only edges in use."""
    inside = every[~every[:, point <= 1e-10].any(1)]
    span = inside - inside[0]
    return np.linalg.pinv(span) @ (span @ gradient)

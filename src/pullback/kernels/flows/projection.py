"""SparseMAP for paths in a DAG: the nearest mixture of the paths from source to sink, and its derivative.

The mixtures of paths are the flows of one unit, so this covers every structure that is a path through a lattice: tag
sequences, segmentations, alignments.
"""

import numpy as np

from pullback.kernels.flows.graph import Graph, collect, forbid_dead_ends
from pullback.kernels.flows.newton import nearest_flow, new_workspace, solve_at_nodes
from pullback.kernels.tools import inner, kernel

FACE = 1e-10  # flow that makes an edge part of the face


@kernel
def project(scores, first, head, edge, length, sink, point, lo, hi):
    """The flow of one unit nearest to the scores of each instance; all share one graph.

    scores, point (batch, edges); for the graph see `Graph`.  A forbidden edge has a score of −∞; edges in no run are
    not read and get 0.  O(steps · (edges + nodes · width²)), half a dozen steps; `width` is how far edges reach.
    Returns the first instance without a path or with a score of NaN or +∞, −2 − b if the search on instance b did not
    converge, else −1.
    """
    graph = Graph(first, head, edge, length, sink)
    w = _workspace_for(graph, scores.shape[1])
    score = np.empty(scores.shape[1])
    for b in range(lo, hi):
        point[b] = 0.0
        for r in range(first[sink]):
            for e in range(edge[r], edge[r] + length[r]):
                score[e] = scores[b, e]
                if not score[e] < np.inf:
                    return b
        if not forbid_dead_ends(score, graph, w.core, w.active.begin):
            return b
        if nearest_flow(score, graph, w, np.bool_(False)) < 0:
            return -2 - b
        for r in range(first[sink]):
            for e in range(edge[r], edge[r] + length[r]):
                point[b, e] = w.reduced[e]
    return -1


@kernel
def project_backward(first, head, edge, length, sink, point, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    point, gradient, product (batch, edges).
    """
    graph = Graph(first, head, edge, length, sink)
    w = _workspace_for(graph, point.shape[1])
    for b in range(lo, hi):
        for e in range(point.shape[1]):  # loops, because assignments between arrays take long to compile
            w.reduced[e], w.row[e] = point[b, e], gradient[b, e]
        project_on_face(graph, w)
        for e in range(point.shape[1]):
            product[b, e] = w.row[e]
    return -1


@inner
def _workspace_for(graph, edges):
    nodes = graph.sink + 1
    for r in range(graph.first[graph.sink]):
        nodes = max(nodes, graph.head[r] + graph.length[r])
    return new_workspace(graph, nodes, edges)


@inner
def project_on_face(graph, w):
    """Projects w.row on the directions of the smallest face that holds the flow w.reduced.

    A face of the polytope of flows is given by its edges without flow.  Its directions are the circulations of the
    others: as much arrives at each node as leaves it.  What is subtracted is a difference of potentials.
    """
    row, potential, imbalance = w.row, w.potential, w.imbalance
    begin, head, edge = w.active
    collect(graph, w.reduced, FACE, w.active)
    imbalance[: graph.sink + 1] = 0.0
    for u in range(graph.sink):
        for k in range(begin[u], begin[u + 1]):
            imbalance[u] += row[edge[k]]
            imbalance[head[k]] -= row[edge[k]]
    solve_at_nodes(graph.sink, w, potential)
    for u in range(graph.sink):
        for k in range(begin[u], begin[u + 1]):
            w.trial[k] = row[edge[k]] + (potential[u] - potential[head[k]])
    row[:] = 0.0
    for k in range(begin[graph.sink]):
        row[edge[k]] = w.trial[k]

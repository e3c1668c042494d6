"""SparseMAP over paths whose parts are their edges: the nearest mixture of paths is a flow of one unit (`flows`)."""

import numpy as np

from pullback.kernels.flows import Graph, forbid_dead_ends, nearest_flow, new_workspace, project_on_face
from pullback.kernels.paths.graph import last_node, lattice_of
from pullback.kernels.tools import inner, kernel


@inner
def _flows_through(lattice, length):
    return Graph(lattice.first, lattice.head, lattice.part, length, lattice.sink)


@inner
def _workspace_for(graphs, b, length, parts):
    """Arrays for the whole graph of instance b, of which it may use the beginning."""
    graph = graphs[b if len(graphs) > 1 else 0]
    last = graph[1, -1]
    return new_workspace(Graph(graph[0], graph[1], graph[2], length, last), last + 1, parts)


@kernel
def project(scores, graphs, sinks, point, lo, hi):
    """The nearest mixture of paths of each instance, where every edge takes a part of its own.

    scores, point (batch, parts); for graphs and sinks see `graph`.  About half a dozen steps, each of
    O(edges + nodes · width²); `width` is how far edges reach.
    Returns the first instance without a path, or with a score of NaN or +∞ or a sink out of range, −2 − b if the search
    on instance b did not converge, else −1.
    """
    last, length = last_node(graphs), np.ones(graphs.shape[2], np.int64)
    score = np.full(scores.shape[1], -np.inf)
    w = _workspace_for(graphs, lo, length, scores.shape[1])
    for b in range(lo, hi):
        if b > lo and len(graphs) > 1:
            w = _workspace_for(graphs, b, length, scores.shape[1])
        point[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        first, head, part, sink = lattice
        if sink < 0 or sink > last:
            return b
        if sink == 0:
            continue
        for e in range(first[sink]):
            score[part[e]] = scores[b, part[e]] if head[e] <= sink else -np.inf  # what lies behind is no sink
            if not score[part[e]] < np.inf:
                return b
        graph = _flows_through(lattice, length)
        if not forbid_dead_ends(score, graph, w.core, w.active.begin):
            return b
        if nearest_flow(score, graph, w, np.bool_(False)) < 0:
            return -2 - b
        for e in range(first[sink]):
            point[b, part[e]] = w.reduced[part[e]]
    return -1


@kernel
def project_backward(graphs, sinks, point, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    point, gradient, product (batch, parts).
    """
    length = np.ones(graphs.shape[2], np.int64)
    w = _workspace_for(graphs, lo, length, point.shape[1])
    for b in range(lo, hi):
        if b > lo and len(graphs) > 1:
            w = _workspace_for(graphs, b, length, point.shape[1])
        product[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        if lattice.sink == 0:
            continue
        for e in range(point.shape[1]):
            w.reduced[e], w.row[e] = point[b, e], gradient[b, e]
        project_on_face(_flows_through(lattice, length), w)
        for e in range(lattice.first[lattice.sink]):
            product[b, lattice.part[e]] = w.row[lattice.part[e]]
    return -1

"""SparseMAP over paths whose parts are their edges: the nearest mixture of paths is a flow of one unit (`flows`)."""

import numpy as np

from pullback.kernels.flows import Graph, forbid_dead_ends, in_runs, nearest_flow, new_workspace, project_on_face
from pullback.kernels.paths.graph import last_node, lattice_of
from pullback.kernels.tools import inner, kernel


@inner
def _flows_of(graphs, b, place):
    """The whole graph of instance b, in runs; it may use the beginning.  `place` becomes the number of each edge."""
    graph = graphs[b if len(graphs) > 1 else 0]
    return in_runs(graph[0], graph[1], graph[1, -1], place)


@inner
def _until(graph, sink):
    return Graph(graph.first, graph.head, graph.edge, graph.share, sink)


@kernel
def project(scores, graphs, sinks, point, lo, hi):
    """The nearest mixture of paths of each instance, where every edge takes a part of its own.

    scores, point (batch, parts); for graphs and sinks see `graph`.  About half a dozen steps, each of
    O(edges + nodes · width²); `width` is how far edges reach.
    Returns the first instance without a path, or with a score of NaN or +∞ or a sink out of range, −2 − b if the search
    on instance b did not converge, else −1.
    """
    last, place = last_node(graphs), np.empty(graphs.shape[2], np.int64)
    whole = _flows_of(graphs, lo, place)
    w, score = new_workspace(whole, whole.sink + 1), np.empty(whole.edge[-1])
    for b in range(lo, hi):
        if b > lo and len(graphs) > 1:
            whole = _flows_of(graphs, b, place)
            w, score = new_workspace(whole, whole.sink + 1), np.empty(whole.edge[-1])
        point[b] = 0.0
        first, head, part, sink = lattice_of(graphs, sinks, b)
        if sink < 0 or sink > last:
            return b
        if sink == 0:
            continue
        score[:] = -np.inf
        for e in range(first[sink]):
            if head[e] <= sink:  # what lies behind is no sink
                score[place[e]] = scores[b, part[e]]
                if not score[place[e]] < np.inf:
                    return b
        graph = _until(whole, sink)
        if not forbid_dead_ends(score, graph, w.core, w.potential):
            return b
        if nearest_flow(score, graph, w) < 0:
            return -2 - b
        for e in range(first[sink]):
            point[b, part[e]] = w.reduced[place[e]]
    return -1


@kernel
def project_backward(graphs, sinks, point, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    point, gradient, product (batch, parts).
    """
    place = np.empty(graphs.shape[2], np.int64)
    whole = _flows_of(graphs, lo, place)
    w = new_workspace(whole, whole.sink + 1)
    for b in range(lo, hi):
        if b > lo and len(graphs) > 1:
            whole = _flows_of(graphs, b, place)
            w = new_workspace(whole, whole.sink + 1)
        product[b] = 0.0
        first, _, part, sink = lattice_of(graphs, sinks, b)
        if sink == 0:
            continue
        w.reduced[:] = 0.0
        for e in range(first[sink]):
            w.reduced[place[e]], w.row[place[e]] = point[b, part[e]], gradient[b, part[e]]
        project_on_face(_until(whole, sink), w)
        for e in range(first[sink]):
            product[b, part[e]] = w.row[place[e]]
    return -1

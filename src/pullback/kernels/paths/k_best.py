"""The k best paths from node 0 to the sink: the recurrence of `best` over sorted lists, in O(edges · k).

Each node holds the scores of the k best paths from there to the sink.  It merges the lists of the nodes that its edges
lead to, each raised by the score of the edge.  Every path stands in the list once, so all are different.
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.tools import inner, kernel


@inner
def _merge(weight, lattice, u, values, sizes, edge, rank_behind, reached):
    """Writes the list of node u; reached[e], workspace, is how much of the list behind edge e has been used."""
    first, head = lattice.first, lattice.head
    k = values.shape[1]
    sizes[u] = 0
    for e in range(first[u], first[u + 1]):
        reached[e] = 0 if weight[e] > -np.inf else k
    for rank in range(k):
        best, best_edge = -np.inf, -1
        for e in range(first[u], first[u + 1]):
            if reached[e] < sizes[head[e]]:
                value = weight[e] + values[head[e], reached[e]]
                if value > best:
                    best, best_edge = value, e
        if best_edge < 0:
            return
        values[u, rank], edge[u, rank], rank_behind[u, rank] = best, best_edge, reached[best_edge]
        reached[best_edge] += 1
        sizes[u] += 1


@kernel
def topk(scores, graphs, sinks, k, vertices, size, lo, hi):
    """The k best paths of each instance, best first, all different: vertices (batch, k, parts).

    scores, graphs, sinks and the answer as in `argmax`; k ≥ 1.  size[b] says how many there are, fewer than k only if
    there are no more; vertices are zero beyond.
    """
    last = last_node(graphs)
    weight, reached = np.empty(graphs.shape[2]), np.empty(graphs.shape[2], np.int64)
    values, sizes = np.empty((last + 1, k)), np.empty(last + 1, np.int64)
    edge, rank_behind = np.empty((last + 1, k), np.int64), np.empty((last + 1, k), np.int64)
    for b in range(lo, hi):
        vertices[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        values[lattice.sink, 0], sizes[lattice.sink] = 0.0, 1
        for u in range(lattice.sink - 1, -1, -1):
            _merge(weight, lattice, u, values, sizes, edge, rank_behind, reached)
        size[b] = sizes[0]
        if size[b] == 0:
            return b
        for rank in range(size[b]):
            u, place = 0, rank
            while u < lattice.sink:
                e, place = edge[u, place], rank_behind[u, place]
                if lattice.part[e] >= 0:
                    vertices[b, rank, lattice.part[e]] = 1.0
                u = lattice.head[e]
    return -1

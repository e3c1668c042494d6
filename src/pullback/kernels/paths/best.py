"""The best path from node 0 to the sink, in one pass over the edges.

    chart[sink] = 0,    chart[u] = max over the edges u → v of score + chart[v]

Back-pointers are not kept: of the nodes on the best path, the edges are searched again.
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.tools import fmax, inner, kernel


@inner
def sweep(weight, lattice, chart):
    """Fills chart[u], the score of the best path from u to the sink; −∞ where there is none."""
    first, head, _, sink = lattice
    chart[:] = -np.inf
    chart[sink] = 0.0
    for u in range(sink - 1, -1, -1):
        best = -np.inf
        for e in range(first[u], first[u + 1]):
            best = fmax(weight[e] + chart[head[e]], best)
        chart[u] = best


@inner
def best_edge(weight, lattice, chart, u):
    """The edge by which the best path goes on from u."""
    first, head = lattice.first, lattice.head
    for e in range(first[u], first[u + 1]):
        if weight[e] + chart[head[e]] == chart[u]:
            return e
    return -1


@kernel
def argmax(scores, graphs, sinks, vertex, lo, hi):
    """The best path of each instance: 1 for its parts, 0 for others.

    scores, vertex (batch, parts); for graphs and sinks see `graph`.  O(edges).
    Returns the first instance without a path, or with a score of NaN or +∞ or a sink out of range, or −1.
    """
    last = last_node(graphs)
    weight, chart = np.empty(graphs.shape[2]), np.empty(last + 1)
    for b in range(lo, hi):
        vertex[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        sweep(weight, lattice, chart)
        if chart[0] == -np.inf:
            return b
        u = 0
        while u < lattice.sink:
            e = best_edge(weight, lattice, chart, u)
            if lattice.part[e] >= 0:
                vertex[b, lattice.part[e]] = 1.0
            u = lattice.head[e]
    return -1

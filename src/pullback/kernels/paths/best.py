"""The best path from node 0 to the sink, in one pass over the edges, and the best through each part, in two.

    chart[sink] = 0,    chart[u] = max over the edges u → v of score + chart[v]
    behind[0] = 0,      behind[v] = max over the edges u → v of behind[u] + score

Back-pointers are not kept: of the nodes on the best path, the edges are searched again.  The best path through an edge
has the score behind[tail] + score + chart[head].
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


@kernel
def max_marginals(scores, graphs, sinks, best, lo, hi):
    """The score of the best path through each part, best (batch, parts): −∞ where no path is, 0 where no edge takes it.

    The other arrays and the answer as in `argmax`.  O(edges).
    """
    last = last_node(graphs)
    weight, chart, behind = np.empty(graphs.shape[2]), np.empty(last + 1), np.empty(last + 1)
    for b in range(lo, hi):
        best[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        sweep(weight, lattice, chart)
        if chart[0] == -np.inf:
            return b
        _go_through(weight, lattice, chart, behind, best[b])
    return -1


@inner
def _go_through(weight, lattice, chart, behind, best):
    """Fills behind[u], the score of the best path from node 0 to u, and the best of the paths through each part."""
    first, head, part, sink = lattice
    for e in range(first[sink]):
        if part[e] >= 0 and head[e] <= sink:
            best[part[e]] = -np.inf
    behind[:] = -np.inf
    behind[0] = 0.0
    for u in range(sink):
        for e in range(first[u], first[u + 1]):
            if head[e] <= sink:
                reach = behind[u] + weight[e]
                behind[head[e]] = fmax(reach, behind[head[e]])
                if part[e] >= 0:
                    best[part[e]] = fmax(reach + chart[head[e]], best[part[e]])

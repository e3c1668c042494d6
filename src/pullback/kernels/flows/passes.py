"""Passes over all edges of a graph, from the source on: what potentials change, and what flows then.

An edge is active if its number r is above a limit, 0 unless it is given.
"""

import numpy as np

from pullback.kernels.flows.runs import move, move_and_reach, move_and_spread, spread
from pullback.kernels.tools import borrowing, inlined


@borrowing
def change(scores, graph, potential, reduced):
    """Writes r = s + π_tail − π_head."""
    first, head, edge, _, sink = graph
    for u in range(sink):
        for r in range(first[u], first[u + 1]):
            move(scores, edge[r], potential[u], potential, head[r], edge[r + 1] - edge[r], reduced)


@borrowing
def change_and_reach(scores, graph, potential, reduced, core):
    """`change`, which sets core[v] to 1 where a path of active edges leads from the source to v, else to 0."""
    first, head, edge, _, sink = graph
    core[:] = 0.0
    core[0] = 1.0
    for u in range(sink):
        for r in range(first[u], first[u + 1]):
            length = edge[r + 1] - edge[r]
            move_and_reach(scores, edge[r], potential[u], potential, head[r], length, reduced, core[u], core)


@borrowing
def change_and_tally(scores, graph, potential, reduced, imbalance, system):
    """`change`, then `tally` of r itself."""
    first, head, edge, _, sink = graph
    _clear(imbalance, system)
    for u in range(sink):
        last = np.int64(0)  # a literal would be compiled separately
        for r in range(first[u], first[u + 1]):
            e, h, length = edge[r], head[r], edge[r + 1] - edge[r]
            leaving, count = move_and_spread(
                scores, e, potential[u], potential, h, length, reduced, imbalance, system.degree
            )
            last = _note(u, leaving, count, min(h + length, sink) - 1, last, imbalance, system)
        system.furthest[u] = last
    _join_last(sink, imbalance, system)


@borrowing
def tally(graph, value, least, amount, imbalance, system):
    """What leaves each node less what arrives, by the edges whose value is above `least`; system.degree counts them.

    furthest[u] is a node below the sink, none before the last that they lead to from u, 0 if there is none.
    """
    first, head, edge, _, sink = graph
    _clear(imbalance, system)
    for u in range(sink):
        last = np.int64(0)
        for r in range(first[u], first[u + 1]):
            e, h, length = edge[r], head[r], edge[r + 1] - edge[r]
            leaving, count = spread(value, e, least, amount, h, length, imbalance, system.degree)
            last = _note(u, leaving, count, min(h + length, sink) - 1, last, imbalance, system)
        system.furthest[u] = last
    _join_last(sink, imbalance, system)


@inlined
def _clear(imbalance, system):
    imbalance[:] = 0.0
    system.degree[:] = 0.0


@inlined
def _note(u, leaving, count, end, last, imbalance, system):
    """Adds what leaves node u by one run; returns how far active edges lead by now."""
    imbalance[u] += leaving
    system.degree[u] += count
    return max(last, end) if count > 0.0 else last


@inlined
def _join_last(sink, imbalance, system):
    """The sink has the sums of all last nodes."""
    for v in range(sink + 1, len(imbalance)):
        imbalance[sink] += imbalance[v]
        system.degree[sink] += system.degree[v]

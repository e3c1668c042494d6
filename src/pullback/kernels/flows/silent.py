"""Potentials of the nodes that carry no flow.

Newton's method determines the potentials of the core alone, the nodes on a path of active edges from source to sink.
Those of the others are only bounded: from below by the best path that leads to the node from the core, from above by
the best path that leads back to the core.

    lower_v = max over edges u → v of lower_u + s,    upper_u = min over edges u → v of upper_v − s

If lower ≤ upper, any value in between keeps the node silent, and the middle is furthest from waking it by accident.  If
they cross, the two paths form a detour that ought to carry flow; the excess is spread evenly over its edges, so that
the whole detour becomes active at once.  Otherwise Newton would discover it by one edge in each step.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.flows.runs import lowest, raise_bounds
from pullback.kernels.tools import borrowing, inner


class Bounds(NamedTuple):
    """Workspace: bounds (nodes,) of the potentials, and the numbers of edges on the paths they come from.

    silent (nodes + 1,) counts the nodes with edges, but off the core, before each node.
    """

    lower: np.ndarray
    upper: np.ndarray
    edges_before: np.ndarray
    edges_behind: np.ndarray
    silent: np.ndarray


@inner
def new_bounds(nodes):
    return Bounds(np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes + 1, np.int64))


@borrowing
def settle(scores, graph, core, potential, bounds):
    """Sets the potentials of the nodes off the core, where core[v] is not 2."""
    bound_below(scores, graph, core, potential, bounds)
    place(scores, graph, core, potential, bounds)


@borrowing
def bound_below(scores, graph, core, potential, bounds):
    """The lower bounds of the nodes off the core; only edges to them are looked at, and often they are few."""
    first, head, edge, _, sink = graph
    lower, _, before, _, silent = bounds
    silent[0] = 0
    for v in range(sink):
        silent[v + 1] = silent[v] + (core[v] < 2.0 and first[v] < first[v + 1])
    silent[sink + 1 :] = silent[sink]
    lower[:] = -np.inf
    before[:] = 0.0
    for u in range(sink):
        if core[u] == 2.0:
            lower[u], before[u] = potential[u], 0.0
        if lower[u] > -np.inf:
            for r in range(first[u], first[u + 1]):
                length = edge[r + 1] - edge[r]
                if silent[head[r]] < silent[head[r] + length]:
                    raise_bounds(lower, before, head[r], lower[u], before[u] + 1.0, scores, edge[r], length)


@borrowing
def place(scores, graph, core, potential, bounds):
    """The upper bounds, and with them the potentials of the nodes off the core."""
    first, head, edge, _, sink = graph
    lower, upper, before, behind, _ = bounds
    upper[sink:] = potential[sink]
    behind[sink:] = 0.0
    for u in range(sink - 1, -1, -1):
        if core[u] == 2.0:
            upper[u], behind[u] = potential[u], 0.0
            continue
        upper[u] = np.inf
        for r in range(first[u], first[u + 1]):
            least, edges = lowest(upper, behind, head[r], scores, edge[r], edge[r + 1] - edge[r])
            if least < upper[u]:
                upper[u], behind[u] = least, edges + 1.0
        excess = lower[u] - upper[u]
        if lower[u] == -np.inf or upper[u] == np.inf:
            potential[u] = 0.0  # all its edges are forbidden
        elif excess > 0.0:
            potential[u] = lower[u] - excess * before[u] / (before[u] + behind[u])
        else:
            potential[u] = lower[u] - 0.5 * excess

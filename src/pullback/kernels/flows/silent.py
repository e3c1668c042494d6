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

from pullback.kernels.tools import fmax, inner


class Bounds(NamedTuple):
    """Workspace: bounds (nodes,) of the potentials, and the numbers of edges on the paths they come from."""

    lower: np.ndarray
    upper: np.ndarray
    edges_before: np.ndarray
    edges_behind: np.ndarray


@inner
def new_bounds(nodes):
    return Bounds(np.empty(nodes), np.empty(nodes), np.empty(nodes), np.empty(nodes))


@inner
def _raise(lower, before, score, start, edges):
    """lower = max(lower, start + score); `before` becomes `edges` where that is an increase."""
    for k in range(len(score)):
        x = start + score[k]
        is_better = x > lower[k]
        lower[k] = x if is_better else lower[k]
        before[k] = edges if is_better else before[k]


@inner
def _lowest(upper, score):
    """min of upper − score."""
    highest = -np.inf
    for k in range(len(score)):
        highest = fmax(score[k] - upper[k], highest)
    return -highest


@inner
def settle(scores, graph, core, potential, bounds):
    """Sets the potentials of the nodes off the core, where core[v] is not 2."""
    bound_below(scores, graph, core, potential, bounds)
    place(scores, graph, core, potential, bounds)


@inner
def bound_below(scores, graph, core, potential, bounds):
    """The lower bounds of all nodes; that of the sink is not from its own potential."""
    first, head, edge, length, sink = graph
    lower, before = bounds.lower, bounds.edges_before
    lower[:] = -np.inf
    for u in range(sink):
        if core[u] == 2:
            lower[u], before[u] = potential[u], 0.0
        if lower[u] > -np.inf:
            for r in range(first[u], first[u + 1]):
                h, e, n = head[r], edge[r], length[r]
                _raise(lower[h : h + n], before[h : h + n], scores[e : e + n], lower[u], before[u] + 1.0)


@inner
def place(scores, graph, core, potential, bounds):
    """The upper bounds, and with them the potentials of the nodes off the core."""
    first, head, edge, length, sink = graph
    lower, upper, before, behind = bounds
    upper[sink:] = potential[sink]
    behind[sink:] = 0.0
    for u in range(sink - 1, -1, -1):
        if core[u] == 2:
            upper[u], behind[u] = potential[u], 0.0
            continue
        upper[u] = np.inf
        for r in range(first[u], first[u + 1]):
            h, e, n = head[r], edge[r], length[r]
            least = _lowest(upper[h : h + n], scores[e : e + n])
            if least < upper[u]:
                upper[u] = least
                for k in range(n):
                    if upper[h + k] - scores[e + k] == least:
                        behind[u] = behind[h + k] + 1.0
        excess = lower[u] - upper[u]
        if lower[u] == -np.inf or upper[u] == np.inf:
            potential[u] = 0.0  # all its edges are forbidden
        elif excess > 0.0:
            potential[u] = lower[u] - excess * before[u] / (before[u] + behind[u])
        else:
            potential[u] = lower[u] - 0.5 * excess

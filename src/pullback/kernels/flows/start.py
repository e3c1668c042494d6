"""The potentials with which Newton's method begins."""

import numpy as np

from pullback.kernels.flows.runs import largest, leaving, move, move_and_spread, sum_above
from pullback.kernels.tools import borrowing

ROUNDS = 2  # of Newton's method for one node: more do not spare steps later
MEMORY = 0.3  # weight of the last node in the average
SWEEPS = 3  # over the nodes one by one, each half as long as a step of all; two or four take longer on chains, …
SHARED = 1.5, 0.6  # … and none are worth it unless a node uses more edges than this, and less than this part of them


@borrowing
def start(scores, graph, potential, row, arriving, degree):
    """From the sink backward, each potential such that its node sends out a share; returns their size.

    If the scores are small, a node's share is what flows through it where all nodes divide equally; if they are large,
    it is the root of that, between this and all of the flow.  The fewer edges the nodes behind it use, the larger they
    are.  Where nodes share the flow, but not equally, they are balanced then.  `row`, one number for each edge, and
    `arriving` and `degree`, one for each node, are workspace.
    """
    first, head, edge, share, sink = graph
    potential[sink:] = 0.0
    used, nodes, active = 1.0, 0, 0.0
    late = (used, used, used, used)  # the latest averages: a node reads the oldest, and waits for no other
    for u in range(sink - 1, -1, -1):
        begin, end = first[u], first[u + 1]
        for r in range(begin, end):
            move(scores, edge[r], 0.0, potential, head[r], edge[r + 1] - edge[r], row)
        least = share[u] * share[u]
        flow = least + (share[u] - least) / (late[0] * np.sqrt(late[0]))
        found, count = threshold(row, edge[begin], edge[end] - edge[begin], flow, ROUNDS)
        potential[u] = -found if found > -np.inf else 0.0
        if found > -np.inf:
            used += MEMORY * (count - used)
            late = (late[1], late[2], late[3], used)
            active += count
            nodes += 1
    if SHARED[0] * nodes < active < SHARED[1] * edge[first[sink]]:
        for _ in range(SWEEPS):
            _balance(scores, graph, potential, row, arriving, degree)
    return _round(potential, sink)


@borrowing
def _balance(scores, graph, potential, row, arriving, degree):
    """From the source on, gives each node the potential at which it sends on what arrives, by one step of Newton's."""
    first, head, edge, _, sink = graph
    arriving[:] = 0.0  # counted downward
    degree[:] = 0.0  # active edges that arrive
    for u in range(sink):
        if u > 0:
            excess, slope = arriving[u], degree[u]
            for r in range(first[u], first[u + 1]):
                flow, count = leaving(scores, edge[r], potential[u], potential, head[r], edge[r + 1] - edge[r])
                excess += flow
                slope += count
            potential[u] -= excess / max(slope, 1.0)
        for r in range(first[u], first[u + 1]):
            length = edge[r + 1] - edge[r]
            move_and_spread(scores, edge[r], potential[u], potential, head[r], length, row, arriving, degree)


@borrowing
def _round(potential, sink):
    """Rounds potentials to multiples of one power of two, so that their differences are exact; returns their size."""
    size = 1.0
    for v in range(sink + 1):
        size = max(size, abs(potential[v]))
    for v in range(len(potential)):
        potential[v] = (potential[v] + 4.0 * size) - 4.0 * size
    return size


@borrowing
def threshold(row, begin, length, flow, rounds):
    """τ with Σ max(0, xₖ − τ) = flow, by Newton's method from the left of a convex function; −∞ if no xₖ is finite.

    Returns the number of xₖ above it, too, at least 1, as of the last round.  Where `rounds` were not enough, the sum
    is larger than the flow.

    The xₖ are the numbers of `row` from `begin` on; `length` is a multiple of four.
    """
    best = largest(row, begin, length)
    found, count = best - flow, 1.0
    for _ in range(rounds):
        total, above = sum_above(row, begin, length, found)
        count = max(above, 1.0)
        found += max(total - flow, 0.0) / count
    return min(found, best - max(1e-3 * flow, 4e-16 * abs(best))), count  # at least a trickle

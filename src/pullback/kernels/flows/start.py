"""The potentials with which Newton's method begins."""

import numpy as np

from pullback.kernels.flows.runs import largest, move, sum_above
from pullback.kernels.tools import inner

ROUNDS = 2  # of Newton's method for one node: more do not spare steps later


@inner
def start(scores, graph, potential, row):
    """From the sink backward, each potential such that its node sends out its share; returns their size.

    A node sends all of the flow if the scores are large, a part that only depends on the graph if they are small; its
    share is the geometric mean.  `row`, one number for each edge, is workspace.
    """
    first, head, edge, share, sink = graph
    potential[sink:] = 0.0
    for u in range(sink - 1, -1, -1):
        begin, end = first[u], first[u + 1]
        for r in range(begin, end):
            move(scores, edge[r], 0.0, potential, head[r], edge[r + 1] - edge[r], row)
        found = threshold(row, edge[begin], edge[end] - edge[begin], share[u], ROUNDS)
        potential[u] = -found if found > -np.inf else 0.0
    return _round(potential, sink)


@inner
def _round(potential, sink):
    """Rounds potentials to multiples of one power of two, so that their differences are exact; returns their size."""
    size = 1.0
    for v in range(sink + 1):
        size = max(size, abs(potential[v]))
    for v in range(len(potential)):
        potential[v] = (potential[v] + 4.0 * size) - 4.0 * size
    return size


@inner
def threshold(row, begin, length, flow, rounds):
    """τ with Σ max(0, xₖ − τ) = flow, by Newton's method from the left of a convex function; −∞ if no xₖ is finite.

    Where `rounds` were not enough, the sum is larger than the flow.

    The xₖ are the numbers of `row` from `begin` on; `length` is a multiple of four.
    """
    best = largest(row, begin, length)
    found = best - flow
    for _ in range(rounds):
        total, count = sum_above(row, begin, length, found)
        found += max(total - flow, 0.0) / max(count, 1.0)
    return min(found, best - max(1e-3 * flow, 4e-16 * abs(best)))  # at least a trickle

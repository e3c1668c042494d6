"""The graphs that paths go through, as arrays.

Nodes are numbered in topological order: every edge leads from a lower number to a higher one, and a path leads from
node 0 to the node `sink`.  Edges are sorted by tail, then head.  A graph is an array of three rows:

    graph[0, u]    the first edge that leaves node u; those of u end where those of u + 1 begin
    graph[1, e]    the head of edge e; the last number of the row is the last node
    graph[2, e]    the part that edge e takes, an index into the scores; −1 for an edge without a score

Several edges may take the same part if all of them lead to the same node, for then no path takes it twice.  What lies
behind the sink is never read, so one graph serves instances of every length.  Kernels take `graphs` (batch, 3, width),
or (1, 3, width) if all instances share one, and `sinks` (batch,).
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import inner


class Lattice(NamedTuple):
    """The graph of one instance; first, head and part as in the rows above."""

    first: np.ndarray
    head: np.ndarray
    part: np.ndarray
    sink: int


@inner
def lattice_of(graphs, sinks, b):
    graph = graphs[b if len(graphs) > 1 else 0]
    return Lattice(graph[0], graph[1], graph[2], sinks[b])


@inner
def last_node(graphs):
    """The largest number of a node in any of the graphs."""
    last = 0
    for g in range(len(graphs)):
        last = max(last, graphs[g, 1, -1])
    return last


@inner
def load(scores, lattice, last, weight):
    """Writes the score of every edge before the sink, −∞ for those that lead behind it.

    Returns False if a score in use is NaN or +∞, or if there is no such sink.
    """
    first, head, part, sink = lattice
    if sink < 0 or sink > last:
        return False
    valid = True
    for e in range(first[sink]):
        if head[e] > sink:
            weight[e] = -np.inf
        elif part[e] < 0:
            weight[e] = 0.0
        else:
            weight[e] = scores[part[e]]
            valid &= weight[e] < np.inf
    return valid

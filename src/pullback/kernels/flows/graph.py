"""Directed acyclic graphs as arrays, their active edges, and which nodes a path from source to sink can visit."""

from typing import NamedTuple

import numpy as np

from pullback.kernels.flows.runs import leads_to, reach
from pullback.kernels.tools import borrowing, inner


class Graph(NamedTuple):
    """A DAG whose nodes are in topological order, node 0 the source; all nodes from `sink` on count as one, the sink.

    Edges come in runs, from one tail to neighboring heads, because loops over neighbors are fast: run r has the edges
    edge[r] + k to the nodes head[r] + k.  It ends where the next begins, padded to a multiple of four edges.  Those
    that pad it have a score of −∞ and lead anywhere: arrays over the nodes are longer by `SLACK`.

    first   (sink + 1,)   runs first[u] … first[u + 1] − 1 leave node u
    head    (runs,)
    edge    (runs + 1,)
    share   (sink,)       the square root of the flow through a node if each divided it equally among its edges
    sink                  a number; several last nodes let edges that arrive at the sink have neighboring heads, too
    """

    first: np.ndarray
    head: np.ndarray
    edge: np.ndarray
    share: np.ndarray
    sink: int


SLACK = 3


@inner
def in_runs(first, head, sink, place):
    """The graph of single edges, sorted by tail and head: those of node u are first[u] … first[u + 1] − 1.

    Writes the number that each edge has in the graph into `place`.
    """
    edges = first[sink]
    runs = np.empty(sink + 1, np.int64), np.empty(edges, np.int64), np.empty(edges + 1, np.int64)
    place[:edges] = -1
    count = end = 0
    for u in range(sink):
        runs[0][u] = count
        for begin in range(first[u], first[u + 1]):
            if place[begin] < 0:
                runs[1][count], runs[2][count] = head[begin], end
                length = 0
                for e in range(begin, first[u + 1]):  # of several edges to one node, a run has one
                    if place[e] < 0 and head[e] == head[begin] + length:
                        place[e] = end + length
                        length += 1
                    elif head[e] > head[begin] + length:
                        break
                end += (length + 3) // 4 * 4
                count += 1
    runs[0][sink], runs[2][count] = count, end
    return Graph(runs[0], runs[1], runs[2][: count + 1], _shares(first, head, sink), sink)


@inner
def _shares(first, head, sink):
    """See `Graph`; edges are those of `in_runs`."""
    share = np.zeros(sink)
    share[0] = 1.0
    for u in range(sink):
        for e in range(first[u], first[u + 1]):
            if head[e] < sink:
                share[head[e]] += share[u] / (first[u + 1] - first[u])
        share[u] = np.sqrt(share[u])
    return share


@borrowing
def mark_core(value, graph, core):
    """Changes core[v] from 1, reached from the source by edges above 0, to 2 where they lead on to the sink as well.

    Returns whether the sink is reached, and how many nodes with edges are not 2.
    """
    first, head, edge, _, sink = graph
    is_reached = False
    for v in range(sink, len(core)):
        is_reached |= core[v] > 0.0
        core[v] *= 2.0
    if not is_reached:
        return False, sink + 1
    others = 0
    for u in range(sink - 1, -1, -1):
        if core[u] > 0.0:
            for r in range(first[u], first[u + 1]):
                if leads_to(value, edge[r], 0.0, 2.0, core, head[r], edge[r + 1] - edge[r]):
                    core[u] = 2.0
                    break
        others += core[u] < 2.0 and first[u] < first[u + 1]
    core[sink:] = 2.0
    return True, others


@borrowing
def forbid_dead_ends(scores, graph, reached, leads_on):
    """Gives −∞ to every edge that is on no finite path from source to sink; returns whether there is such a path.

    `reached` and `leads_on`, one number for each node, are workspace.
    """
    first, head, edge, _, sink = graph
    reached[:] = 0.0
    leads_on[:] = 0.0
    reached[0] = 1.0
    leads_on[sink:] = 1.0
    for u in range(sink):
        if reached[u] > 0.0:
            for r in range(first[u], first[u + 1]):
                reach(scores, edge[r], reached, head[r], edge[r + 1] - edge[r])
    for u in range(sink - 1, -1, -1):
        for r in range(first[u], first[u + 1]):
            shift = head[r] - edge[r]
            for e in range(edge[r], edge[r + 1]):
                if reached[u] == 0.0 or leads_on[e + shift] == 0.0:
                    scores[e] = -np.inf
                elif scores[e] > -np.inf:
                    leads_on[u] = 1.0
    return leads_on[0] > 0.0

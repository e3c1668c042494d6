"""Directed acyclic graphs as arrays, their active edges, and which nodes a path from source to sink can visit."""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import inner


class Graph(NamedTuple):
    """A DAG whose nodes are in topological order, node 0 the source; all nodes from `sink` on count as one, the sink.

    Edges come in runs, from one tail to neighboring heads, because loops over neighbors are fast: run r has the edges
    edge[r] + k from its tail to the nodes head[r] + k, k < length[r].

    first   (sink + 1,)   runs first[u] … first[u + 1] − 1 leave node u
    head, edge, length    (runs,)
    sink                  a number; several last nodes let edges that arrive at the sink have neighboring heads, too
    """

    first: np.ndarray
    head: np.ndarray
    edge: np.ndarray
    length: np.ndarray
    sink: int


class Active(NamedTuple):
    """A list of edges by tail: places begin[u] … begin[u + 1] − 1 hold those that leave u, with head and number."""

    begin: np.ndarray
    head: np.ndarray
    edge: np.ndarray


@inner
def new_active(nodes, edges):
    return Active(np.empty(nodes + 1, np.int64), np.empty(edges + 1, np.int64), np.empty(edges + 1, np.int64))


@inner
def _append_run(value, least, first_head, first_edge, head, edge, count):
    """Appends the edges of one run whose value is above `least`; returns the new number of edges in the list."""
    for k in range(len(value)):
        head[count], edge[count] = first_head + k, first_edge + k  # stays only if `count` moves on
        count += value[k] > least
    return count


@inner
def collect(graph, value, least, active):
    """Lists the edges whose value is above `least`; all last nodes are called `sink` there."""
    begin, head, edge = active
    count = 0
    for u in range(graph.sink):
        begin[u] = count
        for r in range(graph.first[u], graph.first[u + 1]):
            h, e, n = graph.head[r], graph.edge[r], graph.length[r]
            count = _append_run(value[e : e + n], least, h, e, head, edge, count)
            if h + n > graph.sink:
                for k in range(begin[u], count):
                    head[k] = min(head[k], graph.sink)
    begin[graph.sink] = count


@inner
def mark_core(sink, active, core):
    """Sets core[v] to 2 on the paths of active edges from source to sink; returns (is there one, nodes off them)."""
    begin, head = active.begin, active.head
    core[: sink + 1] = 0
    core[0] = 1
    for u in range(sink):  # 1: reached from the source
        if core[u] == 1:
            for k in range(begin[u], begin[u + 1]):
                core[head[k]] = 1
    if core[sink] == 0:
        return False, sink + 1
    core[sink] = 2
    others = 0
    for u in range(sink - 1, -1, -1):  # 2: leads on to the sink as well
        if core[u] == 1:
            for k in range(begin[u], begin[u + 1]):
                if core[head[k]] == 2:
                    core[u] = 2
                    break
        others += core[u] != 2
    return True, others


@inner
def forbid_dead_ends(scores, graph, reached, leads_on):
    """Gives −∞ to every edge that is on no finite path from source to sink; returns whether there is such a path.

    `reached` and `leads_on`, one number for each node, are workspace.
    """
    first, head, edge, length, sink = graph
    reached[:] = 0
    leads_on[:] = 0
    reached[0] = 1
    leads_on[sink:] = 1
    for u in range(sink):
        if reached[u]:
            for r in range(first[u], first[u + 1]):
                for k in range(length[r]):
                    reached[head[r] + k] |= scores[edge[r] + k] > -np.inf
    for u in range(sink - 1, -1, -1):
        for r in range(first[u], first[u + 1]):
            for k in range(length[r]):
                if not (reached[u] and leads_on[head[r] + k]):
                    scores[edge[r] + k] = -np.inf
                leads_on[u] |= scores[edge[r] + k] > -np.inf
    return leads_on[0] == 1

"""Any DAG in the form that the other kernels read: its nodes in topological order, without dead ends."""

import numpy as np

from pullback.kernels.tools import inner, kernel


@inner
def _sort(tails, heads, begin, leaving, order):
    """Nodes in topological order; returns how many there are, fewer than all if there is a cycle.

    The edges that leave node u are leaving[begin[u] : begin[u + 1]].  Reference: Kahn (1962).
    """
    nodes = len(order)
    arriving = np.zeros(nodes, np.int64)
    begin[:] = 0
    for e in range(len(tails)):
        if tails[e] >= 0:
            begin[tails[e] + 1] += 1
            arriving[heads[e]] += 1
    for u in range(nodes):
        begin[u + 1] += begin[u]
    place = begin.copy()
    for e in range(len(tails)):
        if tails[e] >= 0:
            leaving[place[tails[e]]] = e
            place[tails[e]] += 1
    count = 0
    for u in range(nodes):
        if arriving[u] == 0:
            order[count] = u
            count += 1
    done = 0
    while done < count:
        u = order[done]
        done += 1
        for k in range(begin[u], begin[u + 1]):
            v = heads[leaving[k]]
            arriving[v] -= 1
            if arriving[v] == 0:
                order[count] = v
                count += 1
    return count


@inner
def _rank(heads, source, sink, begin, leaving, order, rank):
    """Numbers the nodes on paths from source to sink in topological order, others −1; returns how many there are."""
    nodes = len(order)
    reached, leads_on = np.zeros(nodes, np.bool_), np.zeros(nodes, np.bool_)
    reached[source] = leads_on[sink] = True
    for u in order:
        if reached[u]:
            for k in range(begin[u], begin[u + 1]):
                reached[heads[leaving[k]]] = True
    for u in order[::-1]:
        for k in range(begin[u], begin[u + 1]):
            leads_on[u] |= leads_on[heads[leaving[k]]]
    count = 0
    for u in order:
        rank[u] = count if reached[u] and leads_on[u] else -1
        count += reached[u] and leads_on[u]
    return count


@inner
def _write(heads, begin, leaving, order, rank, graph):
    """Writes the edges between numbered nodes, sorted by tail, then head; returns how many there are."""
    first, head, part = graph[0], graph[1], graph[2]
    count, last = 0, 0
    for u in order:
        if rank[u] < 0:
            continue
        last = rank[u]
        first[last] = count
        for k in range(begin[u], begin[u + 1]):
            e = leaving[k]
            if rank[heads[e]] >= 0:
                place = count  # by insertion: few edges leave a node, and most come in order
                while place > first[last] and head[place - 1] > rank[heads[e]]:
                    head[place], part[place] = head[place - 1], part[place - 1]
                    place -= 1
                head[place], part[place] = rank[heads[e]], e
                count += 1
    first[last + 1 :] = count
    head[-1] = last
    return count


@kernel
def number(edges, sources, sinks, nodes, graphs, used, lo, hi):
    """The graph of each instance as `graph` has it, and which edges are on a path from its source to its sink.

    edges (batch, m, 2) of tail and head, −1 for an edge that does not exist; sources, sinks (batch,); nodes have the
    numbers 0 … nodes − 1.  graphs (batch, 3, m + 2), used (batch, m).  O(nodes + m), and the square of the number of
    edges that leave a node if they are in descending order.
    Returns the first instance that has a cycle or no path, or −1.
    """
    m = edges.shape[1]
    begin, leaving = np.empty(nodes + 1, np.int64), np.empty(m, np.int64)
    order, rank = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    for b in range(lo, hi):
        tails, heads = edges[b, :, 0], edges[b, :, 1]
        graphs[b], used[b] = -1, False
        if _sort(tails, heads, begin, leaving, order) < nodes:
            return b
        if _rank(heads, sources[b], sinks[b], begin, leaving, order, rank) == 0:
            return b
        for k in range(_write(heads, begin, leaving, order, rank, graphs[b])):
            used[b, graphs[b, 2, k]] = True
    return -1

"""Flows from the root to one node of a network, by Dinic's method.

Settled nodes count as the root: what they send to a node is what it is `fed`.
"""

import numpy as np

from pullback.kernels.tools import inner

EMPTY = 1e-14  # a residual capacity below this is round-off


@inner
def flow_to(n, v, goal, nodes, edges, reached):
    """Flow from the settled words to v, up to `goal`; also the number of words that reach v when there is no more."""
    flow = nodes[v].fed
    for e in range(nodes[v].first, nodes[v + 1].first):
        nodes[edges[e].target].spare = nodes[edges[e].target].fed
    for e in range(nodes[v].first, nodes[v + 1].first):
        edge = edges[e]
        head = nodes[edge.target]
        if edge.mass > 0.0 and not head.settled:
            sent = min(edge.mass, head.spare)
            head.spare -= sent  # there may be another edge from this head
            flow += sent
    if flow >= goal:  # paths of two arcs are enough
        return flow, 0
    flow, filled = push(n, v, goal, nodes, edges, reached)
    restore(n, nodes, edges)
    return flow, filled


@inner
def push(n, v, goal, nodes, edges, reached):
    """The same, with the flow left in the residuals."""
    flow = nodes[v].fed
    for j in range(1, n + 1):
        nodes[j].spare = nodes[j].fed
    nodes[v].spare = 0.0
    nodes[v].low, nodes[v].high = nodes[v].first, nodes[v + 1].first
    for e in range(nodes[v].first, nodes[v + 1].first):
        edge = edges[e]
        head = nodes[edge.target]
        if edge.mass > 0.0 and not head.settled:
            sent = min(edge.mass, head.spare)
            flow += sent
            head.spare -= sent
            edge.residual -= sent
            edges[edge.twin].residual = sent
    at = np.int64(0)
    for e in range(nodes[v].first, nodes[v + 1].first):  # paths of three arcs
        if edges[e].residual > EMPTY and flow < goal and not nodes[edges[e].target].settled:
            sent, at = _pull(e, at, nodes, edges)
            flow += sent
    filled = 0
    while flow < goal:
        depth, filled = _levels(n, v, nodes, edges, reached)
        if depth < 0:
            break
        flow += _blocking_flow(v, depth, goal - flow, nodes, edges, reached)
    return flow, filled


@inner
def _pull(e, at, nodes, edges):
    """Send along an edge what the heads at its end have to spare, from the one in place `at` on; (how much, place)."""
    edge = edges[e]
    node = nodes[edge.target]
    before = edge.residual
    first, last = np.int64(node.first), np.int64(nodes[edge.target + 1].first)
    e = first + at if at < last - first else first
    for _ in range(first, last):
        further = edges[e]
        head = nodes[further.target]
        if further.residual > EMPTY and head.spare > EMPTY and not head.settled:
            sent = min(min(edge.residual, further.residual), head.spare)
            head.spare -= sent
            further.residual -= sent
            edges[further.twin].residual += sent
            edge.residual -= sent
            _touch(node, e)
            if edge.residual <= EMPTY:
                break
        e = e + 1 if e + 1 < last else first
    edges[edge.twin].residual += before - edge.residual
    return before - edge.residual, e - first


@inner
def _touch(node, e):
    """Note that the present flow goes through edge e of a node."""
    if node.high == 0:
        node.low, node.high = e, e + 1
    else:
        node.low, node.high = min(node.low, e), max(node.high, e + 1)


@inner
def restore(n, nodes, edges):
    """Takes the last flow out of the residuals."""
    for j in range(1, n + 1):
        for e in range(nodes[j].low, nodes[j].high):
            edge = edges[e]
            edge.residual = max(edge.mass, 0.0)
            edges[edge.twin].residual = max(-edge.mass, 0.0)
        nodes[j].low = nodes[j].high = 0


@inner
def _levels(n, v, nodes, edges, reached):
    """Distances to v in the residual graph, up to the nearest words with something to spare; -1 if there are none."""
    for j in range(1, n + 1):
        nodes[j].level = -1
    nodes[v].level = 0
    reached[0] = v
    filled = 1
    done = 0
    depth = -1
    while done < filled:
        j = reached[done]
        done += 1
        if nodes[j].level == depth:
            break
        nodes[j].current = nodes[j].first
        for e in range(nodes[j].first, nodes[j + 1].first):
            if edges[e].residual > EMPTY:
                node = nodes[edges[e].target]
                if node.level < 0 and not node.settled:
                    node.level = nodes[j].level + 1
                    reached[filled] = edges[e].target
                    filled += 1
                    if node.spare > EMPTY:
                        depth = node.level
    return depth, filled


@inner
def _blocking_flow(v, depth, wanted, nodes, edges, path):
    """Send along shortest paths until each has a full edge, or `wanted` has arrived; returns what has."""
    total = 0.0
    at = 0
    j = v
    while total < wanted:
        if at == depth:
            sent = nodes[j].spare
            for q in range(depth):
                sent = min(sent, edges[path[q]].residual)
            nodes[j].spare -= sent
            total += sent
            at = depth - 1
            for q in range(depth - 1, -1, -1):
                edge = edges[path[q]]
                twin = edges[edge.twin]
                edge.residual -= sent
                twin.residual += sent
                _touch(nodes[twin.target], path[q])
                if edge.residual <= EMPTY:
                    at = q
            j = edges[edges[path[at]].twin].target
            continue
        last = nodes[j + 1].first
        e = nodes[j].current
        while e < last:
            if edges[e].residual > EMPTY:
                node = nodes[edges[e].target]
                if node.level == at + 1 and (at + 1 < depth or node.spare > EMPTY):
                    break
            e += 1
        nodes[j].current = e
        if e < last:
            path[at] = e
            at += 1
            j = edges[e].target
        elif at == 0:
            break
        else:
            nodes[j].level = -1
            at -= 1
            j = edges[edges[path[at]].twin].target
    return total

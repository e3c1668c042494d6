"""The edges of a graph that some path takes, and what a change of flow over them does.

A flow has a number for every edge, and gives each part the sum of the edges that take it: μ = A f.  Of the linear
systems that least squares over flows lead to, with a weight w for each edge,

    df = W (t − A′ A df),    t[e] = pull[e] + potential[head] − potential[tail],    what arrives at nodes = wanted,

the first line is solved part by part, since A A′ is diagonal, and leaves one for the potentials, positive definite, in
which nodes are coupled that edges of the same part touch.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.paths import skyline
from pullback.kernels.tools import inner


class Network(NamedTuple):
    """Nodes that are on a path, 0 the source, the last one the sink; edges in the order of their heads.

    tail, head (edges,);  first (groups + 1,): the edges first[g], …, first[g + 1] − 1 take the same part;  part
    (groups,), −1 for an edge without a coordinate, which is a group of its own.
    """

    tail: np.ndarray
    head: np.ndarray
    first: np.ndarray
    part: np.ndarray
    nodes: int


@inner
def _number(lattice, weight):
    """(the new number of each node, how many there are): nodes on a path of edges above −∞; −1 for others."""
    first, head, _, sink = lattice
    number = np.full(sink + 1, -1, np.int64)
    number[0] = 0
    for u in range(sink):
        if number[u] == 0:
            for e in range(first[u], first[u + 1]):
                if weight[e] > -np.inf:
                    number[head[e]] = 0
    leads = np.zeros(sink + 1, np.bool_)
    leads[sink] = True
    for u in range(sink - 1, -1, -1):
        for e in range(first[u], first[u + 1]):
            leads[u] |= weight[e] > -np.inf and leads[head[e]]
    count = 0
    for u in range(sink + 1):
        number[u] = count if number[u] == 0 and leads[u] else -1
        count += number[u] >= 0
    return number, count


@inner
def network_of(lattice, weight):
    """The network of the edges whose weight is above −∞; without any path, it has less than two nodes."""
    number, nodes = _number(lattice, weight)
    start = np.zeros(nodes + 1, np.int64)
    for u in range(lattice.sink):
        for e in range(lattice.first[u], lattice.first[u + 1]):
            if weight[e] > -np.inf and number[u] >= 0 and number[lattice.head[e]] >= 0:
                start[number[lattice.head[e]] + 1] += 1
    for v in range(nodes):
        start[v + 1] += start[v]
    edges = start[nodes]
    end = start.copy()
    tail, head, part = np.empty(edges, np.int64), np.empty(edges, np.int64), np.empty(edges, np.int64)
    for u in range(lattice.sink):
        for e in range(lattice.first[u], lattice.first[u + 1]):
            if weight[e] > -np.inf and number[u] >= 0 and number[lattice.head[e]] >= 0:
                v = number[lattice.head[e]]
                place = end[v]
                while place > start[v] and part[place - 1] > lattice.part[e]:
                    tail[place], part[place] = tail[place - 1], part[place - 1]
                    place -= 1
                tail[place], part[place], head[end[v]] = number[u], lattice.part[e], v
                end[v] += 1
    return _grouped(tail, head, part, nodes)


@inner
def _grouped(tail, head, part, nodes):
    edges, groups = len(tail), 0
    first, taken = np.empty(edges + 1, np.int64), np.empty(edges, np.int64)
    for e in range(edges):
        if e == 0 or part[e] < 0 or part[e] != part[e - 1]:
            first[groups], taken[groups] = e, part[e]
            groups += 1
    first[groups] = edges
    return Network(tail, head, first[: groups + 1].copy(), taken[:groups].copy(), nodes)


@inner
def with_coordinates(network, parts):
    """The same network, whose parts from that number on have no coordinates; each of these is that of a single edge."""
    part = network.part.copy()
    for g in range(len(part)):
        part[g] = part[g] if part[g] < parts else -1
    return Network(network.tail, network.head, network.first, part, network.nodes)


@inner
def depths(network):
    """How many edges lead to each node at most."""
    depth = np.zeros(network.nodes, np.int64)
    for e in range(len(network.tail)):
        depth[network.head[e]] = max(depth[network.head[e]], depth[network.tail[e]] + 1)
    return depth


@inner
def skyline_of(network):
    """Room for the system of the potentials; that of the source is 0, so that of node v is number v − 1."""
    low = np.arange(network.nodes - 1)
    for g in range(len(network.part)):
        a, b = network.first[g], network.first[g + 1]
        lowest = network.head[a] - 1
        for e in range(a, b):
            if network.tail[e] > 0:
                lowest = min(lowest, network.tail[e] - 1)
        low[network.head[a] - 1] = min(low[network.head[a] - 1], lowest)
        for e in range(a, b):
            u = network.tail[e] - 1
            if u >= 0:
                low[u] = min(low[u], lowest)
    return skyline.empty(low)


@inner
def couple(network, weight, matrix):
    """Factors the system of the potentials, for weights of edges; those of 0 are as if they were not there."""
    matrix.values[:] = 0.0
    for g in range(len(network.part)):
        a, b = network.first[g], network.first[g + 1]
        v, total = network.head[a] - 1, 0.0
        for e in range(a, b):
            total += weight[e]
        share = 1.0 / (1.0 + total) if network.part[g] >= 0 else 1.0
        matrix.values[matrix.start[v] + v] += share * total
        for e in range(a, b):
            u = network.tail[e] - 1
            if u < 0 or weight[e] == 0.0:
                continue
            others = 0.0
            matrix.values[matrix.start[v] + u] -= share * weight[e]
            if network.part[g] >= 0:
                for k in range(a, b):
                    if k != e:
                        others += weight[k]
                        if k < e and network.tail[k] > 0:
                            lower, upper = min(u, network.tail[k] - 1), max(u, network.tail[k] - 1)
                            both = 2.0 if lower == upper else 1.0
                            matrix.values[matrix.start[upper] + lower] -= both * share * weight[e] * weight[k]
            matrix.values[matrix.start[u] + u] += share * weight[e] * (1.0 + others)
    skyline.factor(matrix)


@inner
def respond(network, weight, pull, potential, change):
    """The change of flow of each edge, given the potentials, one less than nodes."""
    for g in range(len(network.part)):
        a, b = network.first[g], network.first[g + 1]
        above, mean, total = potential[network.head[a] - 1], 0.0, 1.0
        for e in range(a, b):
            u = network.tail[e] - 1
            change[e] = pull[e] + above - (potential[u] if u >= 0 else 0.0)
            mean += weight[e] * change[e]
            total += weight[e]
        mean = mean / total if network.part[g] >= 0 else 0.0
        for e in range(a, b):
            change[e] = weight[e] * (change[e] - mean)


@inner
def arrive(network, flow, arrival):
    """What arrives at each node but the source, less what leaves it."""
    arrival[:] = 0.0
    for e in range(len(flow)):
        arrival[network.head[e] - 1] += flow[e]
        if network.tail[e] > 0:
            arrival[network.tail[e] - 1] -= flow[e]


@inner
def solve(network, weight, pull, wanted, matrix, potential, change):
    """The change of flow of which `wanted` arrives at the nodes, and the change of their potentials."""
    potential[:] = 0.0
    respond(network, weight, pull, potential, change)
    arrive(network, change, potential)
    for v in range(len(potential)):
        potential[v] = wanted[v] - potential[v]
    skyline.solve(matrix, potential)
    respond(network, weight, pull, potential, change)


@inner
def take(network, flow, taken):
    """taken[g] = the flow through the edges of each group."""
    for g in range(len(network.part)):
        taken[g] = 0.0
        for e in range(network.first[g], network.first[g + 1]):
            taken[g] += flow[e]


@inner
def slacks(network, score, slack):
    """How much the best path scores above the best through each edge, for scores of groups; returns its score."""
    best = np.full(network.nodes, -np.inf)
    best[0] = 0.0
    for g in range(len(network.part)):
        v = network.head[network.first[g]]
        for e in range(network.first[g], network.first[g + 1]):
            best[v] = max(best[v], best[network.tail[e]] + score[g])
    behind = np.full(network.nodes, -np.inf)
    behind[network.nodes - 1] = 0.0
    for g in range(len(network.part) - 1, -1, -1):
        v = network.head[network.first[g]]
        for e in range(network.first[g], network.first[g + 1]):
            slack[e] = best[network.nodes - 1] - (best[network.tail[e]] + score[g] + behind[v])
            behind[network.tail[e]] = max(behind[network.tail[e]], score[g] + behind[v])
    return best[network.nodes - 1]


@inner
def worth(network, flow):
    """What edges score beside the scores of groups: nothing here."""
    return 0.0

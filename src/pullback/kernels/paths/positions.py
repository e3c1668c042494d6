"""Positions of an interior search over the edges of a network: where it begins, and what is wrong with a position."""

import numpy as np

from pullback.kernels.paths.central import Position
from pullback.kernels.paths.network import arrive, depths, take
from pullback.kernels.tools import inner


@inner
def _spread_out(network, flow):
    """A flow of one unit: as much begins at each edge, and goes on to either side, by all its neighbors alike."""
    edges, nodes = len(flow), network.nodes
    entering, leaving = np.zeros(nodes), np.zeros(nodes)
    for e in range(edges):
        entering[network.head[e]] += 1.0
        leaving[network.tail[e]] += 1.0
    forth, back = np.zeros(nodes), np.zeros(nodes)
    flow[:] = 1.0 / edges
    for e in range(edges):
        u = network.tail[e]
        more = forth[u] / leaving[u] if u > 0 else 0.0
        flow[e] += more
        forth[network.head[e]] += 1.0 / edges + more
    for e in range(edges - 1, -1, -1):
        v = network.head[e]
        more = back[v] / entering[v] if v < nodes - 1 else 0.0
        flow[e] += more
        back[network.tail[e]] += 1.0 / edges + more


@inner
def begin(network, score):
    """A flow through all edges, and potentials that make all slacks positive."""
    edges = len(network.tail)
    at = Position(np.empty(edges), np.empty(edges), np.empty(network.nodes - 1))
    _spread_out(network, at.flow)
    away, depth = np.empty(len(network.part)), depths(network)
    _go_away(network, score, at.flow, away)
    rise = max(0.1 * (away.max() - away.min()) - away.min(), 0.0) + 1.0 / edges
    for v in range(1, network.nodes):
        at.potential[v - 1] = -rise * depth[v]
    for g in range(len(away)):
        for e in range(network.first[g], network.first[g + 1]):
            at.slack[e] = away[g] + rise * (depth[network.head[e]] - depth[network.tail[e]])
    return at


@inner
def _go_away(network, score, flow, away):
    """away = μ − s of groups; edges without a coordinate have a score alone."""
    take(network, flow, away)
    for g in range(len(away)):
        away[g] = (away[g] if network.part[g] >= 0 else 0.0) - score[g]


@inner
def residuals(network, score, unit, at, residual, lack):
    """residual = z − (μ − s + y[tail] − y[head]) of edges; lack = what has yet to arrive at nodes, of `unit` in all."""
    away = np.empty(len(network.part))
    _go_away(network, score, at.flow, away)
    for g in range(len(away)):
        for e in range(network.first[g], network.first[g + 1]):
            u = network.tail[e] - 1
            below = at.potential[u] if u >= 0 else 0.0
            residual[e] = at.slack[e] - (away[g] + below - at.potential[network.head[e] - 1])
    arrive(network, at.flow, lack)
    for v in range(len(lack)):
        lack[v] = -lack[v]
    lack[len(lack) - 1] += unit

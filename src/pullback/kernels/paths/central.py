"""The central path of SparseMAP over flows: from the middle of all paths to the nearest mixture of them.

    minimize  ½ ‖μ − s‖²    where  μ = A f,  f ≥ 0 a flow of one unit

With potentials y of nodes and slacks z of edges, both f and z are ≥ 0 at the optimum, f z = 0, and

    μ[part] − s[part] + y[tail] − y[head] = z

Along the path, f z is the same for all edges; as it falls to 0, steps of Newton's method follow, a dozen or two however
many paths mix.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.paths.network import arrive, couple, depths, solve, take
from pullback.kernels.tools import inner

_STEPS = 60
_STAY = 0.995  # how far towards the boundary a step may go
_SHORT = 1e-3  # a step after which none will be long, for rounding has the better of it


class Position(NamedTuple):
    """Flow and slack of edges, the potentials of all nodes but the source, which has 0."""

    flow: np.ndarray
    slack: np.ndarray
    potential: np.ndarray


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
    """away = μ − s of groups, 0 for edges without a score."""
    take(network, flow, away)
    for g in range(len(away)):
        away[g] = away[g] - score[g] if network.part[g] >= 0 else 0.0


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


@inner
def _room(x, change):
    """How many times the change may be added before a number of x is 0; at most 1 / _STAY."""
    most = 1.0 / _STAY
    for e in range(len(x)):
        if change[e] < 0.0:
            most = min(most, -x[e] / change[e])
    return most


@inner
def _level_ahead(at, total, change, turn):
    """The product f z to aim at: the less, the more of it a step straight to 0 would take away."""
    length, ahead = min(1.0, _room(at.flow, change), _room(at.slack, turn)), 0.0
    for e in range(len(change)):
        ahead += (at.flow[e] + length * change[e]) * (at.slack[e] + length * turn[e])
    return (ahead / total) ** 3 * total / len(change)


@inner
def follow(network, score, goal, matrix, at):
    """Follows the path until Σ f z, a bound on the gap, is at most `goal`: Mehrotra's predictor and corrector."""
    edges, nodes = len(at.flow), len(at.potential)
    residual, weight, pull = np.empty(edges), np.empty(edges), np.empty(edges)
    change, turn, rise, lack = np.empty(edges), np.empty(edges), np.empty(nodes), np.empty(nodes)
    for _ in range(_STEPS):
        residuals(network, score, 1.0, at, residual, lack)
        total = 0.0
        for e in range(edges):
            total += at.flow[e] * at.slack[e]
            weight[e] = at.flow[e] / at.slack[e]
            pull[e] = residual[e] - at.slack[e]
        if total <= goal:
            break
        couple(network, weight, matrix)
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            turn[e] = -at.slack[e] - change[e] / weight[e]
        level = _level_ahead(at, total, change, turn)
        for e in range(edges):
            turn[e] = (level - change[e] * turn[e]) / at.flow[e] - at.slack[e]
            pull[e] = residual[e] + turn[e]
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            turn[e] -= change[e] / weight[e]
        length = min(1.0, _STAY * min(_room(at.flow, change), _room(at.slack, turn)))
        for e in range(edges):
            at.flow[e] += length * change[e]
            at.slack[e] += length * turn[e]
        for v in range(nodes):
            at.potential[v] += length * rise[v]
        if length < _SHORT:
            break

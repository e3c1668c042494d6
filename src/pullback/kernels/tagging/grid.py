"""Sequences of tags as paths through a grid: what a network of `paths` is, for tables of transitions.

Layer i of the grid holds a flow for each pair of tags, flow[i, a, b] with a at position i − 1 and b at i; in layer 0,
row 0 comes from the source, and in layer n, column 0 goes to the sink.  Arrays over edges are flat, of (n + 1) t t
numbers, and so are those over nodes and groups: all edges to a node take the same part, its tag, and those to the sink
none.  Edges that do not exist, or are on no path, have the gain NONE, and never a flow.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.paths import Position
from pullback.kernels.tools import fmax, inner, summing

NONE = -1e30


class Grid(NamedTuple):
    """part: of each group, −1 for those of the sink;  gain: the score of each transition."""

    part: np.ndarray
    gain: np.ndarray
    layers: int
    tags: int


@inner
def over_edges(grid, numbers):
    return numbers.reshape(grid.layers, grid.tags, grid.tags)


@inner
def over_nodes(grid, numbers):
    return numbers.reshape(grid.layers, grid.tags)


@inner
def add_rows(rows, total):
    """total[b] += Σ_a rows[a, b]."""
    for a in range(len(rows)):
        row = rows[a]
        for b in range(len(total)):
            total[b] += row[b]


@summing
def _sum(row):
    total = 0.0
    for b in range(len(row)):
        total += row[b]
    return total


@inner
def take(grid, flow, taken):
    """The flow through each node, by what arrives."""
    taken[:] = 0.0
    flows, into = over_edges(grid, flow), over_nodes(grid, taken)
    for i in range(grid.layers):
        add_rows(flows[i], into[i])


@inner
def worth(grid, flow):
    total = 0.0
    for e in range(len(flow)):
        total += grid.gain[e] * flow[e]
    return total


@inner
def arrive(grid, flow, arrival):
    """What arrives at each node, less what leaves it."""
    take(grid, flow, arrival)
    flows, into = over_edges(grid, flow), over_nodes(grid, arrival)
    for i in range(1, grid.layers):
        for a in range(grid.tags):
            into[i - 1, a] -= _sum(flows[i, a])


@inner
def _go_away(grid, score, flow, away):
    """away = μ − s of groups, 0 at the sink."""
    take(grid, flow, away)
    for g in range(len(away)):
        away[g] = away[g] - score[g] if grid.part[g] >= 0 else 0.0


@inner
def begin(grid, score):
    """A flow of one unit through all edges, and potentials that make all slacks positive.

    As much begins at each edge, and goes on to either side, by all its neighbors alike.
    """
    edges, t = len(grid.gain), grid.tags
    at = Position(np.zeros(edges), np.ones(edges), np.empty(len(score)))
    exists = np.empty(edges)
    for e in range(edges):
        exists[e] = grid.gain[e] > NONE
    share = 1.0 / exists.sum()
    is_there, flows = over_edges(grid, exists), over_edges(grid, at.flow)
    entering, leaving = np.zeros((grid.layers, t)), np.zeros((grid.layers + 1, t))
    for i in range(grid.layers):
        add_rows(is_there[i], entering[i])
        for a in range(t):
            leaving[i, a] = _sum(is_there[i, a])
    on, ahead = np.zeros(t), np.zeros(t)
    for i in range(grid.layers):
        ahead[:] = 0.0
        for a in range(t):
            more = share + (on[a] / leaving[i, a] if leaving[i, a] > 0.0 else 0.0)
            for b in range(t):
                flows[i, a, b] = is_there[i, a, b] * more
                ahead[b] += flows[i, a, b]
        on[:] = ahead
    on[:] = 0.0
    for i in range(grid.layers - 1, -1, -1):
        ahead[:] = 0.0
        for b in range(t):
            more = on[b] / entering[i, b] if entering[i, b] > 0.0 else 0.0
            for a in range(t):
                flows[i, a, b] += is_there[i, a, b] * more
                ahead[a] += is_there[i, a, b] * (share + more)
        on[:] = ahead
    away = np.empty(len(score))
    _go_away(grid, score, at.flow, away)
    gains, slacks_of, aways = over_edges(grid, grid.gain), over_edges(grid, at.slack), over_nodes(grid, away)
    low, high = np.inf, -np.inf
    for i in range(grid.layers):
        for a in range(t):
            for b in range(t):
                if gains[i, a, b] > NONE:
                    low, high = min(low, aways[i, b] - gains[i, a, b]), max(high, aways[i, b] - gains[i, a, b])
    rise = max(0.1 * (high - low) - low, 0.0) + share
    potentials = over_nodes(grid, at.potential)
    for i in range(grid.layers):
        potentials[i] = -rise * (i + 1)
        for a in range(t):
            for b in range(t):
                if gains[i, a, b] > NONE:
                    slacks_of[i, a, b] = aways[i, b] - gains[i, a, b] + rise
    return at


@inner
def residuals(grid, score, unit, at, residual, lack):
    """residual = z − (μ − s − gain + y[tail] − y[head]) of edges; lack = what has yet to arrive, of `unit` in all."""
    _go_away(grid, score, at.flow, lack)
    missing, gains, slack = over_edges(grid, residual), over_edges(grid, grid.gain), over_edges(grid, at.slack)
    potentials, away = over_nodes(grid, at.potential), over_nodes(grid, lack)
    for i in range(grid.layers):
        for b in range(grid.tags):
            away[i, b] -= potentials[i, b]
        for a in range(grid.tags):
            row, gain, given, next_to, below = missing[i, a], gains[i, a], slack[i, a], away[i], 0.0
            if i > 0:
                below = potentials[i - 1, a]
            for b in range(grid.tags):
                row[b] = given[b] - (next_to[b] - gain[b] + below)
    arrive(grid, at.flow, lack)
    for v in range(len(lack)):
        lack[v] = -lack[v]
    lack[(grid.layers - 1) * grid.tags] += unit


@inner
def slacks(grid, score, slack):
    """How much the best path scores above the best through each edge, for scores of groups; returns its score."""
    t, layers = grid.tags, grid.layers
    gains, out, scores = over_edges(grid, grid.gain), over_edges(grid, slack), over_nodes(grid, score)
    best, behind = np.full((layers + 1, t), -np.inf), np.zeros(t)
    best[0, 0] = 0.0
    for i in range(layers):
        now, of = best[i + 1], scores[i]
        for a in range(t):
            before, gain = best[i, a], gains[i, a]
            for b in range(t):
                now[b] = fmax(before + (of[b] + gain[b]), now[b])
    top, ahead = best[layers, 0], np.empty(t)
    for i in range(layers - 1, -1, -1):
        of = scores[i]
        for b in range(t):
            ahead[b] = of[b] + behind[b]
        for a in range(t):
            row, gain, before, most = out[i, a], gains[i, a], top - best[i, a], -np.inf
            for b in range(t):
                row[b] = before - (gain[b] + ahead[b])
                most = fmax(gain[b] + ahead[b], most)
            behind[a] = most
    return top

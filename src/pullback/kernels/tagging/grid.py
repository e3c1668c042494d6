"""Sequences of tags as paths through a grid, and what a change of flow over it does: the same as a network of `paths`.

Layer i of the grid holds a flow for each pair of tags, flow[i, a, b] with a at position i − 1 and b at i; in layer 0,
row 0 comes from the source, and in layer n, column 0 goes to the sink.  Arrays over edges are flat, of (n + 1) t t
numbers, and so are those over nodes and groups: all edges to a node take the same part, its tag, and those to the sink
none.  Edges that do not exist, or are on no path, have the gain NONE, and never a flow.

The system of the potentials couples a node with those of its own layer and the next.  It is eliminated layer by layer,
in products of small matrices, O(n t³).
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.paths import Position
from pullback.kernels.tools import add_product, fmax, inner, summing

NONE = -1e30
_LOST = 1e-15  # of the diagonal: a pivot below has no digits left


class Grid(NamedTuple):
    """part: of each group, −1 for those of the sink;  gain: the score of each transition."""

    part: np.ndarray
    gain: np.ndarray
    layers: int
    tags: int


class Blocks(NamedTuple):
    """The factors of a layer, within[i] (t, t) above the diagonal and across[i] (t, t) to the next; 1 / pivots, shares.

    A share is 1 / (1 + the weights of all edges to a node), which each of them has in the node's part; 1 at the sink.
    """

    within: np.ndarray
    across: np.ndarray
    inverse: np.ndarray
    share: np.ndarray


@inner
def over_edges(grid, numbers):
    return numbers.reshape(grid.layers, grid.tags, grid.tags)


@inner
def over_nodes(grid, numbers):
    return numbers.reshape(grid.layers, grid.tags)


# ---- flows


@inner
def _add_rows(rows, total):
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
        _add_rows(flows[i], into[i])


@inner
def worth(grid, flow):
    total = 0.0
    for e in range(len(flow)):
        total += grid.gain[e] * flow[e]
    return total


@inner
def _arrive(grid, flow, arrival):
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
        _add_rows(is_there[i], entering[i])
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
    _arrive(grid, at.flow, lack)
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


# ---- the system of the potentials


@inner
def room_of(grid):
    layers, t = grid.layers, grid.tags
    return Blocks(np.zeros((layers, t, t)), np.zeros((layers, t, t)), np.empty((layers, t)), np.empty((layers, t)))


@inner
def _add_tails(weights, share, is_last, transposed, across, matrix, diagonal):
    """What the edges to the next layer do to the potentials of their tails; across = what couples them to the heads."""
    t = len(share)
    for a in range(t):
        for b in range(t):
            across[a, b] = -share[b] * weights[a, b]
            transposed[b, a] = weights[a, b]
    if not is_last:
        add_product(across, transposed, matrix)
    total = np.zeros(t)
    for a in range(t):
        row, grows = weights[a], 0.0
        for b in range(t):
            grows += share[b] * row[b] * (1.0 + total[b]) if not is_last else row[b]
            total[b] += row[b]
        diagonal[a] += grows
    total[:] = 0.0
    for a in range(t - 1, -1, -1):
        row, grows = weights[a], 0.0
        for b in range(t):
            grows += share[b] * row[b] * total[b] if not is_last else 0.0
            total[b] += row[b]
        diagonal[a] += grows


@inner
def _add_row(row, factor, into):
    for b in range(len(row)):
        into[b] += factor * row[b]


@inner
def _scale_row(row, factor, into):
    for b in range(len(row)):
        into[b] = factor * row[b]


@inner
def _eliminate(matrix, coupling, whole, within, across, inverse):
    """Gauß over a layer; an unknown that the others decide, up to rounding, is held at 0."""
    t = len(matrix)
    for first in range(0, t, 4):
        end = min(first + 4, t)
        if first > 0:
            add_product(within[:first, first:end].T, matrix[:first], matrix[first:end])
            add_product(within[:first, first:end].T, coupling[:first], coupling[first:end])
        for q in range(first, end):
            for p in range(first, q):
                _add_row(matrix[p], within[p, q], matrix[q])
                _add_row(coupling[p], within[p, q], coupling[q])
            inverse[q] = 1.0 / matrix[q, q] if matrix[q, q] > _LOST * whole[q] else 0.0
            _scale_row(matrix[q], -inverse[q], within[q])
            _scale_row(coupling[q], -inverse[q], across[q])


@inner
def couple(grid, weight, blocks):
    """Factors the system of the potentials, for weights of edges; those of 0 are as if they were not there."""
    layers, t = grid.layers, grid.tags
    weights = over_edges(grid, weight)
    matrix, coupling, transposed = np.empty((t, t)), np.zeros((t, t)), np.empty((t, t))
    ahead, whole, diagonal, total = np.zeros((t, t)), np.empty(t), np.empty(t), np.empty(t)
    for i in range(layers):
        total[:] = 0.0
        _add_rows(weights[i], total)
        for b in range(t):
            blocks.share[i, b] = 1.0 / (1.0 + total[b]) if i < layers - 1 else 1.0
    for i in range(layers):
        matrix[:] = ahead
        total[:] = 0.0
        _add_rows(weights[i], total)
        for b in range(t):
            diagonal[b] = blocks.share[i, b] * total[b]
            whole[b] = matrix[b, b]  # what the layer before has taken off
        if i < layers - 1:
            _add_tails(weights[i + 1], blocks.share[i + 1], i + 2 == layers, transposed, coupling, matrix, diagonal)
        for b in range(t):
            matrix[b, b], whole[b] = whole[b] + diagonal[b], diagonal[b]
        _eliminate(matrix, coupling, whole, blocks.within[i], blocks.across[i], blocks.inverse[i])
        ahead[:] = 0.0
        add_product(blocks.across[i].T, coupling, ahead)


@inner
def _respond(grid, weight, pull, potential, blocks, change):
    """The change of flow of each edge, given the potentials."""
    t, mean = grid.tags, np.empty(grid.tags)
    weights, pulls, out = over_edges(grid, weight), over_edges(grid, pull), over_edges(grid, change)
    potentials = over_nodes(grid, potential)
    for i in range(grid.layers):
        mean[:] = 0.0
        above = potentials[i]
        for a in range(t):
            below, row, w, to = 0.0, pulls[i, a], weights[i, a], out[i, a]
            if i > 0:
                below = potentials[i - 1, a]
            for b in range(t):
                to[b] = row[b] + (above[b] - below)
                mean[b] += w[b] * to[b]
        for b in range(t):
            mean[b] *= blocks.share[i, b] if i < grid.layers - 1 else 0.0
        for a in range(t):
            w, to = weights[i, a], out[i, a]
            for b in range(t):
                to[b] = w[b] * (to[b] - mean[b])


@summing
def _dot(row, x, first):
    total = 0.0
    for j in range(first, len(row)):
        total += row[j] * x[j]
    return total


@inner
def _substitute(grid, blocks, x):
    """x = the solution of the system whose right-hand side is x."""
    nodes = over_nodes(grid, x)
    for i in range(grid.layers):
        here = nodes[i]
        for k in range(grid.tags):
            within = blocks.within[i, k]
            for j in range(k + 1, grid.tags):
                here[j] += within[j] * here[k]
        if i < grid.layers - 1:
            for k in range(grid.tags):
                _add_row(blocks.across[i, k], here[k], nodes[i + 1])
    for i in range(grid.layers - 1, -1, -1):
        here = nodes[i]
        for k in range(grid.tags - 1, -1, -1):
            here[k] = here[k] * blocks.inverse[i, k] + _dot(blocks.within[i, k], here, k + 1)
            if i < grid.layers - 1:
                here[k] += _dot(blocks.across[i, k], nodes[i + 1], 0)


@inner
def solve(grid, weight, pull, wanted, blocks, potential, change):
    """The change of flow of which `wanted` arrives at the nodes, and the change of their potentials."""
    potential[:] = 0.0
    _respond(grid, weight, pull, potential, blocks, change)
    _arrive(grid, change, potential)
    for v in range(len(potential)):
        potential[v] = wanted[v] - potential[v]
    _substitute(grid, blocks, potential)
    _respond(grid, weight, pull, potential, blocks, change)

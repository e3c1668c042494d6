"""What a change of flow over a `grid` does: the system of the potentials of its nodes.

It couples a node with those of its own layer and the next, and is eliminated layer by layer, in products of small
matrices, O(n t³).
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tagging.grid import add_rows, arrive, over_edges, over_nodes
from pullback.kernels.tools import add_product, inner, summing

_LOST = 1e-15  # of the diagonal: a pivot below has no digits left


class Blocks(NamedTuple):
    """The factors of a layer, within[i] (t, t) above the diagonal and across[i] (t, t) to the next; 1 / pivots, shares.

    A share is 1 / (1 + the weights of all edges to a node), which each of them has in the node's part; 1 at the sink.
    """

    within: np.ndarray
    across: np.ndarray
    inverse: np.ndarray
    share: np.ndarray


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
        add_rows(weights[i], total)
        for b in range(t):
            blocks.share[i, b] = 1.0 / (1.0 + total[b]) if i < layers - 1 else 1.0
    for i in range(layers):
        matrix[:] = ahead
        total[:] = 0.0
        add_rows(weights[i], total)
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
    arrive(grid, change, potential)
    for v in range(len(potential)):
        potential[v] = wanted[v] - potential[v]
    _substitute(grid, blocks, potential)
    _respond(grid, weight, pull, potential, blocks, change)

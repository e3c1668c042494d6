"""SparseMAP over paths whose edges share parts, where very many paths mix, and its derivative; no path is listed.

The central path tells which edges are in use; least squares over these give the nearest point to the last digits.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.paths.central import Position, begin, follow, residuals
from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.paths.network import couple, depths, network_of, skyline_of, slacks, solve, take
from pullback.kernels.tools import inner, kernel

_GOALS = (1e-7, 1e-10, 1e-13)  # of Σ f z, after which edges in use are looked at
_SMALL = 1e-11  # a gap, relative to the largest score, and a flow below 0: those of rounding
TIED = 1e-8  # an edge belongs to the face if the best path through it is this close to the best
_STIFF = 1e10  # the weight of edges in use, for a flow of 1: the larger, the less of the residual a round leaves
_SLIGHT = 1e-3 * _STIFF  # of edges that have no flow yet
_ROUNDS, _EXCHANGES = 8, 8
_LOUD = (1e-4, 1e-6)  # sizes of scores, the first of which rounding leaves alone, the second mostly


@inner
def _settle(network, target, unit, weight, matrix, flow, potential):
    """Least squares over the edges that have a weight: the flow of `unit` whose parts are nearest to `target`.

    Each round leaves a small part of what the one before left.  Edges change the less, the smaller their weight is.
    """
    edges, nodes = len(flow), len(potential)
    pull, change, lack, rise = np.empty(edges), np.empty(edges), np.empty(nodes), np.empty(nodes)
    for e in range(edges):
        flow[e] = flow[e] if weight[e] > 0.0 else 0.0
    at = Position(flow, np.zeros(edges), potential)
    couple(network, weight, matrix)
    for _ in range(_ROUNDS):
        residuals(network, target, unit, at, pull, lack)
        largest = np.abs(lack).max()
        for e in range(edges):
            if weight[e] > 0.0:
                largest = max(largest, abs(pull[e]))
        if largest < 1e-15:
            break
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            flow[e] += change[e]
        for v in range(nodes):
            potential[v] += rise[v]


@inner
def _center(network, score):
    """Takes from the scores what all paths have in common, if all have as many edges: the means of their places."""
    depth = depths(network)
    sums = np.zeros((network.nodes, 2))
    for g in range(len(score)):
        for e in range(network.first[g], network.first[g + 1]):
            if network.part[g] < 0 or depth[network.head[e]] != depth[network.tail[e]] + 1:
                return
        place = depth[network.head[network.first[g]]]
        sums[place, 0] += score[g]
        sums[place, 1] += 1.0
    for g in range(len(score)):
        place = depth[network.head[network.first[g]]]
        score[g] -= sums[place, 0] / sums[place, 1]


@inner
def _gap(network, score, taken, rest, slack):
    """⟨s − μ, z − μ⟩ for the best path z; rest = s − μ of groups, slack how far each edge is from the best path."""
    along = 0.0
    for g in range(len(taken)):
        rest[g] = score[g] - taken[g] if network.part[g] >= 0 else 0.0
        along += rest[g] * taken[g]
    return slacks(network, rest, np.empty(network.nodes), slack) - along


class Face(NamedTuple):
    """The edges in use have a weight above 0; their flow, and the potentials, are those of the nearest point."""

    weight: np.ndarray
    flow: np.ndarray
    potential: np.ndarray


@inner
def _copy(face):
    return Face(face.weight.copy(), face.flow.copy(), face.potential.copy())


@inner
def _exchange(network, score, matrix, face, taken, rest):
    """Least squares over the edges in use, in rounds that let edges leave and enter; returns the gap.

    Those leave that would get a negative flow, those enter that beat the edges in use; ∞ if that does not end soon.
    """
    weight, flow, potential = face
    edges, unit = len(flow), max(1.0, np.abs(score).max())
    slack = np.empty(edges)
    for _ in range(_EXCHANGES):
        _settle(network, score, 1.0, weight, matrix, flow, potential)
        take(network, flow, taken)
        gap, least = _gap(network, score, taken, rest, slack), flow.min()
        if least >= -_SMALL and gap <= _SMALL * unit:
            return max(gap, 0.0)
        for e in range(edges):
            if flow[e] < -_SMALL:
                weight[e] = 0.0
            elif weight[e] == 0.0 and least >= -_SMALL and slack[e] < gap - _SMALL * unit:
                weight[e] = _SLIGHT
    return np.inf


@inner
def _search(network, score, matrix, face, taken, rest):
    """Finds the face by the central path, and μ and s − μ of groups; returns the gap, ∞ if it was not found."""
    at, gap = begin(network, score), np.inf
    for goal in _GOALS:
        follow(network, score, goal, matrix, at)
        for e in range(len(at.flow)):
            face.weight[e] = _STIFF * at.flow[e] if at.flow[e] > at.slack[e] else 0.0
        face.flow[:], face.potential[:] = at.flow, at.potential
        gap = _exchange(network, score, matrix, face, taken, rest)
        if gap < np.inf:
            break
    return gap


@inner
def _excess(network, rest, taken):
    """⟨rest, z − μ⟩ for the best path z."""
    best = slacks(network, rest, np.empty(network.nodes), np.empty(len(network.tail)))
    for g in range(len(taken)):
        best -= rest[g] * taken[g]
    return best


@inner
def _nearest(network, score, tolerance, taken, rest):
    """Writes μ and s − μ of groups, where the latter may be that of the scores made louder; returns the gap, or ∞.

    Tiny scores have slacks as tiny, which rounding hides.  But the nearest point to t times the scores moves along a
    line as t grows from 0, until an edge enters or leaves: so the edges in use are those of louder scores, or nearly,
    and exactly those if each of the two points is on the face of the other.
    """
    edges, groups, gap = len(network.tail), len(network.part), np.inf
    matrix, size = skyline_of(network), np.sqrt((score * score).mean())
    face = Face(np.empty(edges), np.empty(edges), np.empty(network.nodes - 1))
    loud, kept = np.empty(groups), np.empty(groups)
    for loudness in _LOUD:
        if 0.0 < size <= 0.5 * loudness:
            louder = loudness / size * score
            if gap < np.inf:
                found = _exchange(network, louder, matrix, face, loud, kept)
            else:
                found = _search(network, louder, matrix, face, loud, kept)
            if found == np.inf:
                break
            gap = _exchange(network, score, matrix, _copy(face), taken, rest)
            if max(_excess(network, kept, taken), _excess(network, rest, loud)) <= 0.1 * tolerance and gap < np.inf:
                rest[:] = kept
                return gap
    return gap if gap < np.inf else _search(network, score, matrix, face, taken, rest)


@inner
def _read(network, parts, numbers):
    """numbers[g] = that of the part of each group, 0 for edges without a score."""
    for g in range(len(numbers)):
        numbers[g] = parts[network.part[g]] if network.part[g] >= 0 else 0.0


@inner
def _write(network, numbers, parts):
    for g in range(len(numbers)):
        if network.part[g] >= 0:
            parts[network.part[g]] = numbers[g]


@kernel
def approach(scores, graphs, sinks, tolerance, point, rest, gap, lo, hi):
    """The nearest mixture of paths of each instance that has a sink above 0, and its gap.

    scores, point and rest are (batch, parts), float64; graphs and sinks as in `argmax`; gap (batch,).  `rest` becomes
    s − μ, all that the derivative needs, −∞ where there is no part.  Where the gap is above `tolerance` times the
    largest score (if that is above 1), it is ∞.  Some dozen steps, each of O(edges + nodes · width²); `width` is how
    far edges reach.
    """
    last, weight = last_node(graphs), np.empty(graphs.shape[2])
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if lattice.sink <= 0 or not load(scores[b], lattice, last, weight):
            continue
        network = network_of(lattice, weight)
        if network.nodes < 2:
            continue
        groups = len(network.part)
        score, taken, left = np.empty(groups), np.empty(groups), np.empty(groups)
        _read(network, scores[b], score)
        largest = max(1.0, np.abs(score).max())
        _center(network, score)
        found = _nearest(network, score, tolerance, taken, left)
        if found <= tolerance * largest:
            gap[b] = found
            point[b], rest[b] = 0.0, -np.inf
            _write(network, np.maximum(taken, 0.0), point[b])
            _write(network, left, rest[b])
    return -1


@kernel
def approach_backward(rest, graphs, sinks, gradient, product, lo, hi):
    """The Jacobian of `approach`, which is symmetric, times `gradient`: its projection onto the span of the face."""
    last, weight = last_node(graphs), np.empty(graphs.shape[2])
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if lattice.sink <= 0 or not load(rest[b], lattice, last, weight):
            continue
        network = network_of(lattice, weight)
        edges, groups = len(network.tail), len(network.part)
        score, target, slack = np.empty(groups), np.empty(groups), np.empty(edges)
        _read(network, rest[b], score)
        _read(network, gradient[b], target)
        slacks(network, score, np.empty(network.nodes), slack)
        flow, potential = np.zeros(edges), np.zeros(network.nodes - 1)
        _settle(network, target, 0.0, _SLIGHT * (slack <= TIED), skyline_of(network), flow, potential)
        take(network, flow, score)
        product[b] = 0.0
        _write(network, score, product[b])
    return -1

"""SparseMAP over paths where very many of them mix, and its derivative, by the interior.

Edges may share parts; and parts may have no coordinates, but scores alone, as transitions have.
"""

import numpy as np

from pullback.kernels.paths import network as edges_of
from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.paths.interior import NOTHING, Face, interior_over
from pullback.kernels.paths.network import depths, network_of, skyline_of, slacks, with_coordinates
from pullback.kernels.paths.positions import begin, residuals
from pullback.kernels.tools import inner, kernel

_GOALS = (1e-7, 1e-10, 1e-13)  # of Σ f z, after which edges in use are looked at
_TIED = 1e-8  # an edge belongs to the face if the best path through it is this close to the best
_ROUNDING = 1e-12  # with scores that have no coordinates, ties are relative to these, but not below rounding
_LOUD = (1e-4, 1e-6)  # sizes of scores, the first of which rounding leaves alone, the second mostly

_INTERIOR = interior_over(
    "paths",
    __name__,
    begin,
    residuals,
    edges_of.skyline_of,
    edges_of.couple,
    edges_of.solve,
    edges_of.take,
    edges_of.slacks,
    edges_of.worth,
)
_search, _exchange, _tangent = _INTERIOR.search, _INTERIOR.exchange, _INTERIOR.tangent


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
def _excess(network, rest, taken):
    """⟨rest, z − μ⟩ for the best path z."""
    best = slacks(network, rest, np.empty(len(network.tail)))
    for g in range(len(taken)):
        best -= rest[g] * taken[g]
    return best


@inner
def _largest_alone(network, score):
    """The largest absolute score of an edge without a coordinate."""
    largest = 0.0
    for g in range(len(score)):
        if network.part[g] < 0:
            largest = max(largest, abs(score[g]))
    return largest


@inner
def _nearest(network, score, tolerance, taken, rest):
    """Writes μ and s − μ of groups, where the latter may be that of the scores made louder; returns the gap, or ∞.

    Tiny scores have slacks as tiny, which rounding hides.  But the nearest point to t times the scores moves along a
    line as t grows from 0, until an edge enters or leaves: so the edges in use are those of louder scores, or nearly,
    and exactly those if each of the two points is on the face of the other.
    """
    edges, groups, gap = len(network.tail), len(network.part), np.inf
    is_mixed = _largest_alone(network, score) > 0.0  # then the derivative reads some scores as they are
    matrix, size, unit = skyline_of(network), np.sqrt((score * score).mean()), max(1.0, np.abs(score).max())
    face = Face(np.empty(edges), np.empty(edges), np.empty(network.nodes - 1))
    loud, kept = np.empty(groups), np.empty(groups)
    for loudness in _LOUD:
        if 0.0 < size <= 0.5 * loudness:
            louder = loudness / size * score
            if gap < np.inf:
                found = _exchange(network, louder, 1.0, matrix, face, loud, kept)
            else:
                found = _search(network, louder, 1.0, _GOALS, 0.0, matrix, begin(network, louder), face, loud, kept)
            if found == np.inf:
                break
            own = Face(face.weight.copy(), face.flow.copy(), face.potential.copy())
            gap = _exchange(network, score, 1.0, matrix, own, taken, rest)
            if gap < np.inf and is_mixed:
                return gap
            if max(_excess(network, kept, taken), _excess(network, rest, loud)) <= 0.01 * tolerance and gap < np.inf:
                rest[:] = kept
                return gap
    if gap == np.inf:
        at, enough = begin(network, score), tolerance * unit
        gap = _search(network, score, unit, _GOALS, enough, matrix, at, face, taken, rest)
    return gap


@inner
def _read(part, numbers, out):
    """out[g] = the number of the part of each group, 0 for edges without any."""
    for g in range(len(out)):
        out[g] = numbers[part[g]] if part[g] >= 0 else 0.0


@inner
def _write(part, numbers, out):
    for g in range(len(numbers)):
        if part[g] >= 0:
            out[part[g]] = numbers[g]


@kernel
def approach(scores, graphs, sinks, parts, tolerance, point, rest, gap, lo, hi):
    """The nearest mixture of paths of each instance that has a sink above 0, and its gap.

    scores, point and rest are (batch, all parts), float64, of which the first `parts` have coordinates; graphs and
    sinks as in `argmax`; gap (batch,).  `rest` becomes s − μ, and s of parts without a coordinate: all that the
    derivative needs, −∞ where there is no part.  Where the gap is above `tolerance` times the
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
        part, groups = network.part, len(network.part)
        network = with_coordinates(network, parts)
        score, taken, left = np.empty(groups), np.empty(groups), np.empty(groups)
        _read(part, scores[b], score)
        largest = max(1.0, np.abs(score).max())
        _center(network, score)
        found = _nearest(network, score, tolerance, taken, left)
        if found <= tolerance * largest:
            gap[b] = found
            point[b], rest[b] = 0.0, -np.inf
            _write(part, np.where(taken > NOTHING, taken, 0.0), point[b])
            _write(part, left, rest[b])
    return -1


@kernel
def approach_backward(rest, graphs, sinks, parts, gradient, product, lo, hi):
    """The Jacobian of `approach`, which is symmetric, times `gradient`: its projection onto the span of the face.

    The gradient is not read where parts have no coordinate; their product tells how often a change along the projection
    takes them, which is the gradient of their scores.  Where several flows have the same projection, it is the least.
    """
    last, weight = last_node(graphs), np.empty(graphs.shape[2])
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if lattice.sink <= 0 or not load(rest[b], lattice, last, weight):
            continue
        network = network_of(lattice, weight)
        part, edges, groups = network.part, len(network.tail), len(network.part)
        network = with_coordinates(network, parts)
        score, target, taken = np.empty(groups), np.empty(groups), np.empty(groups)
        _read(part, rest[b], score)
        _read(network.part, gradient[b], target)
        alone = _largest_alone(network, score)
        tied = max(_TIED * min(1.0, alone), _ROUNDING * max(1.0, np.abs(score).max())) if alone > 0.0 else _TIED
        _tangent(network, network, score, target, tied, np.zeros(network.nodes - 1), np.zeros(edges), taken)
        product[b] = 0.0
        _write(part, taken, product[b])
    return -1

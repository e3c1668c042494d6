"""SparseMAP over paths whose edges share parts, by an interior-point method: the nearest point of flat scores.

    minimize  ½ ‖μ − s‖²    where  μ = A f,  f ≥ 0 a flow of one unit

With potentials y of nodes and slacks z ≥ 0 of edges, the optimum has  μ[part] − s[part] + y[tail] − y[head] = z  and
f z = 0.  Newton's method on these, with f z = a number that falls to 0, takes a dozen steps or two, however many paths
mix; each factors one system for the potentials (`network`).  Then edges with f > z are those in use, and least squares
over them give the point to the last digits.
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.paths.network import arrive, couple, network_of, skyline_of, slacks, solve, take
from pullback.kernels.tools import inner, kernel

_STEPS, _SHORT = 60, 1e-3
_GOALS = (1e-7, 1e-10, 1e-13)  # of Σ f z, a bound on the gap, after which edges in use are looked at
_SMALL = 1e-11  # a gap, relative to the largest score, and a flow below 0: those of rounding
_STAY = 0.995  # how far towards the boundary a step may go
TIED = 1e-8  # an edge belongs to the face if the best path through it is this close to the best
_STIFF = 1e10  # the weight of edges in use, for a flow of 1: the larger, the less of the residual a round leaves
_ROUNDS, _EXCHANGES = 8, 8
_LOUD = (1e-4, 1e-6)  # sizes of scores, the first of which rounding leaves alone, the second mostly


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
    for k in range(edges):
        u, v = network.tail[k], network.head[k]
        if u > 0:
            flow[k] += forth[u] / leaving[u]
        forth[v] += 1.0 / edges + (forth[u] / leaving[u] if u > 0 else 0.0)
    for k in range(edges - 1, -1, -1):
        u, v = network.tail[k], network.head[k]
        more = back[v] / entering[v] if v < nodes - 1 else 0.0
        flow[k] += more
        back[u] += 1.0 / edges + more


@inner
def _begin(network, score, flow, slack, potential):
    """A flow through all edges, and potentials that make all slacks positive."""
    _spread_out(network, flow)
    depth = np.zeros(network.nodes)
    for e in range(len(flow)):
        depth[network.head[e]] = max(depth[network.head[e]], depth[network.tail[e]] + 1.0)
    taken = np.empty(len(network.part))
    take(network, flow, taken)
    least, most = np.inf, -np.inf
    for g in range(len(taken)):
        taken[g] = taken[g] - score[g] if network.part[g] >= 0 else 0.0
        least, most = min(least, taken[g]), max(most, taken[g])
    rise = max(0.1 * (most - least) - least, 0.0) + 1.0 / len(flow)
    for v in range(1, network.nodes):
        potential[v - 1] = -rise * depth[v]
    for g in range(len(taken)):
        for e in range(network.first[g], network.first[g + 1]):
            slack[e] = taken[g] + rise * (depth[network.head[e]] - depth[network.tail[e]])


@inner
def _residuals(network, score, flow, slack, potential, taken, residual, lack):
    """residual = z − (μ − s + y[tail] − y[head]) of edges; lack = what has yet to arrive at nodes."""
    take(network, flow, taken)
    for g in range(len(taken)):
        away = taken[g] - score[g] if network.part[g] >= 0 else 0.0
        for e in range(network.first[g], network.first[g + 1]):
            u = network.tail[e] - 1
            below = potential[u] if u >= 0 else 0.0
            residual[e] = slack[e] - (away + below - potential[network.head[e] - 1])
    arrive(network, flow, lack)
    for v in range(len(lack)):
        lack[v] = (v == len(lack) - 1) - lack[v]


@inner
def _room(x, change):
    """How many times the change may be added before a number of x is 0; at most 1 / _STAY."""
    most = 1.0 / _STAY
    for e in range(len(x)):
        if change[e] < 0.0:
            most = min(most, -x[e] / change[e])
    return most


@inner
def _approach(network, score, goal, matrix, flow, slack, potential):
    """Follows the central path to its end: flow, slack and potentials become those of SparseMAP, up to rounding.

    Mehrotra's predictor and corrector.
    """
    edges = len(flow)
    taken, residual, lack = np.empty(len(network.part)), np.empty(edges), np.empty(len(potential))
    weight, pull, change, turn = np.empty(edges), np.empty(edges), np.empty(edges), np.empty(edges)
    rise = np.empty(len(potential))
    for _ in range(_STEPS):
        _residuals(network, score, flow, slack, potential, taken, residual, lack)
        total = 0.0
        for e in range(edges):
            total += flow[e] * slack[e]
        if total <= goal:
            break
        for e in range(edges):
            weight[e] = flow[e] / slack[e]
            pull[e] = residual[e] - slack[e]
        couple(network, weight, matrix)
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            turn[e] = -slack[e] - change[e] / weight[e]
        length = min(1.0, _room(flow, change), _room(slack, turn))
        ahead = 0.0
        for e in range(edges):
            ahead += (flow[e] + length * change[e]) * (slack[e] + length * turn[e])
        level = (ahead / total) ** 3 * total / edges
        for e in range(edges):
            turn[e] = (level - change[e] * turn[e]) / flow[e] - slack[e]
            pull[e] = residual[e] + turn[e]
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            turn[e] -= change[e] / weight[e]
        length = min(1.0, _STAY * min(_room(flow, change), _room(slack, turn)))
        for e in range(edges):
            flow[e] += length * change[e]
            slack[e] += length * turn[e]
        for v in range(len(potential)):
            potential[v] += length * rise[v]
        if length < _SHORT:  # rounding has the better of it
            break


@inner
def _settle(network, target, unit, weight, matrix, flow, potential):
    """Least squares over the edges in use: the flow of `unit` whose parts are nearest to the target of groups.

    Each round leaves a small part of what the one before left; the flow that it starts from stays near.
    """
    edges = len(flow)
    pull, change = np.empty(edges), np.empty(edges)
    taken, lack, rise = np.empty(len(network.part)), np.empty(len(potential)), np.empty(len(potential))
    none = np.zeros(edges)
    for e in range(edges):
        flow[e] = flow[e] if weight[e] > 0.0 else 0.0
    couple(network, weight, matrix)
    for _ in range(_ROUNDS):
        _residuals(network, target, flow, none, potential, taken, pull, lack)
        lack[len(lack) - 1] += unit - 1.0
        largest = 0.0
        for e in range(edges):
            if weight[e] > 0.0:
                largest = max(largest, abs(pull[e]))
        for v in range(len(lack)):
            largest = max(largest, abs(lack[v]))
        if largest < 1e-15:
            break
        solve(network, weight, pull, lack, matrix, rise, change)
        for e in range(edges):
            flow[e] += change[e]
        for v in range(len(potential)):
            potential[v] += rise[v]


@inner
def _center(network, score):
    """Takes from the scores what all paths have in common, if all have as many edges: the means of their places."""
    depth = np.zeros(network.nodes, np.int64)
    for e in range(len(network.tail)):
        depth[network.head[e]] = max(depth[network.head[e]], depth[network.tail[e]] + 1)
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


@inner
def _find_face(network, score, weight, matrix, flow, potential, taken, rest):
    """Least squares over the edges that have a weight, in rounds that let edges leave and enter; returns the gap.

    Those leave that would get a negative flow, those enter that beat the edges in use; ∞ if that does not end soon.
    """
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
                weight[e] = 1e-3 * _STIFF
    return np.inf


@inner
def _nearest(network, score, taken, rest):
    """Writes μ and s − μ of groups; returns the gap, ∞ if the edges in use were not found."""
    edges, matrix = len(network.tail), skyline_of(network)
    flow, slack, potential = np.empty(edges), np.empty(edges), np.empty(network.nodes - 1)
    _begin(network, score, flow, slack, potential)
    gap = np.inf
    for goal in _GOALS:
        _approach(network, score, goal, matrix, flow, slack, potential)
        weight = np.zeros(edges)
        for e in range(edges):
            if flow[e] > slack[e]:
                weight[e] = _STIFF * flow[e]
        gap = _find_face(network, score, weight, matrix, flow.copy(), potential.copy(), taken, rest)
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
def _nearest_of_any(network, score, tolerance, taken, rest):
    """As `_nearest`, where `rest` may be that of the scores made louder.

    Tiny scores have slacks as tiny, which rounding hides.  But the nearest point to t times the scores moves along a
    line as t grows from 0, until an edge enters or leaves: so it is mixed from those of zeros and of louder scores, if
    each of these is on the face of the other.
    """
    size, groups = np.sqrt((score * score).mean()), len(score)
    if 0.0 < size <= 0.5 * _LOUD[0]:
        still, kept = np.empty(groups), np.empty(groups)
        if _nearest(network, 0.0 * score, still, kept) < np.inf:
            for loudness in _LOUD:
                louder = loudness / size
                if louder >= 2.0 and _nearest(network, louder * score, taken, rest) < np.inf:
                    if max(_excess(network, kept, taken), _excess(network, rest, still)) <= 0.1 * tolerance:
                        for g in range(groups):
                            taken[g] = still[g] + (taken[g] - still[g]) / louder
                        return max(_gap(network, score, taken, kept, np.empty(len(network.tail))), 0.0)
    return _nearest(network, score, taken, rest)


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
        groups, largest = len(network.part), 1.0
        score, taken, left = np.zeros(groups), np.empty(groups), np.empty(groups)
        for g in range(groups):
            if network.part[g] >= 0:
                score[g] = scores[b, network.part[g]]
                largest = max(largest, abs(score[g]))
        _center(network, score)
        found = _nearest_of_any(network, score, tolerance, taken, left)
        if found <= tolerance * largest:
            gap[b] = found
            point[b], rest[b] = 0.0, -np.inf
            for g in range(groups):
                if network.part[g] >= 0:
                    point[b, network.part[g]], rest[b, network.part[g]] = taken[g], left[g]
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
        score, target, taken, slack = np.zeros(groups), np.zeros(groups), np.empty(groups), np.empty(edges)
        for g in range(groups):
            if network.part[g] >= 0:
                score[g], target[g] = rest[b, network.part[g]], gradient[b, network.part[g]]
        slacks(network, score, np.empty(network.nodes), slack)
        flow, potential = np.zeros(edges), np.zeros(network.nodes - 1)
        _settle(network, target, 0.0, 1e-3 * _STIFF * (slack <= TIED), skyline_of(network), flow, potential)
        take(network, flow, taken)
        product[b] = 0.0
        for g in range(groups):
            if network.part[g] >= 0:
                product[b, network.part[g]] = taken[g]
    return -1

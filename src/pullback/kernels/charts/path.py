"""The entropic path: a smooth problem whose solution tends to SparseMAP, and tells which hyperedges are in use.

    μ(ν) + τ ν = s          μ(ν) the marginals of p(z) ∝ exp ⟨ν, z⟩

is the optimum of  A(ν) − ⟨s, ν⟩ + τ/2 ‖ν‖², with A the log-partition.  As τ falls, τ ν tends to s − μ of SparseMAP, and
the flow through hyperedges that are not tight falls like e^(−slack / τ).  Each τ takes a few Newton steps; their linear
systems, with τ plus the covariance of the parts, are solved by conjugate gradients, a pass up and down the chart each.
Hyperedges whose flow has become negligible leave the chart, which makes all that follows cheap.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.charts.chart import NO_PART, sub_chart
from pullback.kernels.charts.passes import covary, inside, outside
from pullback.kernels.tools import add_multiple, dot, inner

# How closely the path is followed: τ is multiplied by `factor`; the residual of a Newton system, relative; the error at
# the end of a stage; the flow below which a hyperedge leaves.
Care = namedtuple("Care", ["factor", "system", "stage", "negligible"])

_STEPS, _ITERATIONS = 25, 500
_ACCEPTED = 0.8  # of the decrease that the quadratic model promises
FINE = 1e-6  # the error of the last stage

# A point on the path: for items their scores, ν, the ν of the stage before, the flow; the shares of hyperedges.
Point = namedtuple("Point", ["score", "dual", "former", "flow", "share"])

# Numbers for items (the first nine), hyperedges, and groups.
Room = namedtuple(
    "Room",
    ["step", "trial", "residual", "conjugate", "product", "value", "scaled", "inverse", "tilt", "below", "sums"],
)


@inner
def point_for(chart, score):
    items, edges = len(chart.part), len(chart.left)
    taken = np.empty(items)
    for t in range(items):
        taken[t] = score[chart.item[t]]
    return Point(taken, np.zeros(items), np.zeros(items), np.empty(items), np.empty(edges))


@inner
def room_for(chart):
    items, groups = len(chart.part), 1
    for t in range(items):
        groups = max(groups, chart.group[t] + 1)
    vectors = np.empty((9, items))
    return Room(
        vectors[0], vectors[1], vectors[2], vectors[3], vectors[4], vectors[5], vectors[6], vectors[7], vectors[8],
        np.empty(len(chart.left)), np.empty(groups),
    )  # fmt: skip


@inner
def _precondition(chart, flow, temperature, room):
    """The preconditioner: the inverse of τ + what the covariance would be if the groups were independent of each other.

    It is diagonal, inverse[t], plus tilt · tiltᵀ within each group.
    """
    inverse, tilt, sums = room.inverse, room.tilt, room.sums
    sums[:] = 0.0
    for t in range(len(chart.part)):
        g, tilt[t] = chart.group[t], 0.0
        if g >= 0:
            inverse[t] = 1.0 / (temperature + flow[t])
            tilt[t] = flow[t] * inverse[t]
            sums[g] += temperature * tilt[t]
        elif g == NO_PART:
            inverse[t] = 0.0
        else:
            inverse[t] = 1.0 / (temperature + max(flow[t] * (1.0 - flow[t]), 0.0))
    for t in range(len(chart.part)):
        if chart.group[t] >= 0:
            tilt[t] /= np.sqrt(sums[chart.group[t]])


@inner
def _scale(chart, room):
    """scaled = the preconditioner times the residual; returns the square of the residual in that metric."""
    residual, sums = room.residual, room.sums
    sums[:] = 0.0
    items = len(chart.part)
    for t in range(items):
        if chart.group[t] >= 0:
            sums[chart.group[t]] += room.tilt[t] * residual[t]
    for t in range(items):
        room.scaled[t] = room.inverse[t] * residual[t]
        if chart.group[t] >= 0:
            room.scaled[t] += room.tilt[t] * sums[chart.group[t]]
    return dot(residual, room.scaled, items)


@inner
def _solve(chart, point, temperature, square, tolerance, room):
    """step = (τ + covariance)⁻¹ residual, by conjugate gradients; `residual` becomes what is left.

    Begins with room.scaled, the preconditioner times the residual, and `square`, their product.
    """
    items = len(chart.part)
    goal = tolerance * tolerance * square
    room.step[:items] = 0.0
    room.conjugate[:items] = 0.0
    last = np.inf
    for _ in range(_ITERATIONS):
        for t in range(items):
            room.conjugate[t] = room.scaled[t] + square / last * room.conjugate[t]
        covary(chart, point.share, point.flow, room.conjugate, room.value, room.below, room.product)
        add_multiple(room.product, temperature, room.conjugate, items)
        curvature = dot(room.conjugate, room.product, items)
        if not curvature > 0.0:
            return
        length = square / curvature
        add_multiple(room.step, length, room.conjugate, items)
        add_multiple(room.residual, -length, room.product, items)
        last, square = square, _scale(chart, room)
        if square <= goal:
            return


@inner
def _objective(chart, point, dual, temperature, room):
    """A(ν) − ⟨s, ν⟩ + τ/2 ‖ν‖²; the shares become those of ν."""
    items = len(chart.part)
    total = inside(chart, dual, room.value, point.share)
    return total - dot(point.score, dual, items) + 0.5 * temperature * dot(dual, dual, items)


@inner
def _residual(chart, point, temperature, room):
    """residual = s − μ(ν) − τ ν."""
    for t in range(len(chart.part)):
        if chart.group[t] == NO_PART:
            room.residual[t] = 0.0
        else:
            room.residual[t] = point.score[t] - point.flow[t] - temperature * point.dual[t]


@inner
def _predict(chart, point, temperature, last, before, objective, room):
    """Goes on along the path, where ν is nearly linear in 1 / τ, if that is a gain; returns the objective."""
    items = len(chart.part)
    ahead = (1.0 / temperature - 1.0 / last) / (1.0 / last - 1.0 / before)
    while ahead > 0.2:
        for t in range(items):
            room.trial[t] = point.dual[t] + ahead * (point.dual[t] - point.former[t])
        found = _objective(chart, point, room.trial, temperature, room)
        if found < objective:
            for t in range(items):
                point.former[t], point.dual[t] = point.dual[t], room.trial[t]
            outside(chart, point.share, point.flow)
            return found
        ahead *= 0.5
    for t in range(items):
        point.former[t] = point.dual[t]
    inside(chart, point.dual, room.value, point.share)
    return objective


@inner
def advance(chart, point, temperature, last, before, care, error, room):
    """Moves the point to temperature τ from the temperatures `last` and `before`; returns whether it got there.

    `before` is ∞ in the first two stages.
    """
    items = len(chart.part)
    objective = _objective(chart, point, point.dual, temperature, room)
    if before < np.inf:
        objective = _predict(chart, point, temperature, last, before, objective, room)
    else:
        for t in range(items):
            point.former[t] = point.dual[t]
        outside(chart, point.share, point.flow)
    for step in range(_STEPS):
        _residual(chart, point, temperature, room)
        _precondition(chart, point.flow, temperature, room)
        square = _scale(chart, room)
        if step > 0 and square < error:
            return True
        for t in range(items):
            room.trial[t] = room.residual[t]
        _solve(chart, point, temperature, square, care.system, room)
        promise = dot(room.trial, room.step, items)
        curvature = promise - dot(room.residual, room.step, items)
        objective = _search(chart, point, temperature, objective, promise, curvature, room)
    return False


@inner
def _search(chart, point, temperature, objective, promise, curvature, room):
    """Goes along the Newton step as far as the quadratic model holds; returns the objective there."""
    items, length = len(chart.part), 1.0
    while True:
        for t in range(items):
            room.trial[t] = point.dual[t] + length * room.step[t]
        found = _objective(chart, point, room.trial, temperature, room)
        promised = length * promise - 0.5 * length * length * curvature
        if objective - found >= _ACCEPTED * promised - 1e-13 * abs(objective) or length < 1e-4:
            break
        length *= 0.5
    for t in range(items):
        point.dual[t] = room.trial[t]
    outside(chart, point.share, point.flow)
    return found


@inner
def flow_of_edges(chart, point, flow):
    for t in range(1, len(chart.part)):
        for e in range(chart.first[t], chart.first[t + 1]):
            flow[e] = point.flow[t] * point.share[e]


@inner
def restricted(full, chart, point, keep):
    """The chart and the point on the hyperedges that are kept; the shares of each item sum to one again."""
    smaller = sub_chart(chart, keep)
    items = len(smaller.part)
    place = np.zeros(len(full.part), np.int64)
    for t in range(len(chart.part)):
        place[chart.item[t]] = t
    moved = Point(np.empty(items), np.empty(items), np.empty(items), np.empty(items), np.empty(len(smaller.left)))
    for t in range(items):
        old = place[smaller.item[t]]
        moved.score[t], moved.dual[t], moved.former[t] = point.score[old], point.dual[old], point.former[old]
    where = np.empty(len(full.left), np.int64)
    for e in range(len(chart.left)):
        where[chart.edge[e]] = e
    for e in range(len(smaller.left)):
        moved.share[e] = point.share[where[smaller.edge[e]]]
    normalize(smaller, moved.share)
    if items > 1:
        outside(smaller, moved.share, moved.flow)
    return smaller, moved


@inner
def normalize(chart, share):
    for t in range(1, len(chart.part)):
        total = 0.0
        for e in range(chart.first[t], chart.first[t + 1]):
            total += share[e]
        for e in range(chart.first[t], chart.first[t + 1]):
            share[e] /= total

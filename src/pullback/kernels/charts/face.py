"""From a point on the path to SparseMAP itself: the face it lies on, by rounds that let hyperedges leave and enter.

On the right chart H of tight hyperedges,

    1. θ, the part of s − μ that is orthogonal to the span of H, gives all vertices of H the same score,
    2. no vertex of the full chart scores more than these, and
    3. some flow f ≥ 0 over H has the parts μ* = s − θ.

Then ⟨s − μ*, z − μ*⟩ ≤ 0 for every vertex z, so μ* is the nearest point.  A round computes θ, lets the hyperedges
enter that contradict (2), and those leave that would get a negative flow in (3).  Nothing guarantees that rounds end;
if they do not within a few, the path goes on.
"""

import numpy as np

from pullback.kernels.charts import span
from pullback.kernels.charts.chart import NO_PART, sub_chart
from pullback.kernels.charts.passes import outside, push, slacks
from pullback.kernels.charts.path import flow_of_edges, normalize, point_for, restricted
from pullback.kernels.tools import inner

IN_USE = 1e-8  # a hyperedge with less flow is not on the face
_ROUNDS, _PATIENCE = 14, 4
_ROUGH, _FINE = 400, 10000  # iterations
_GAP = 1e-10  # relative to the largest score
_FLOW = 2e-11  # the error of the parts of a flow


@inner
def _rest(full, score, chart, point, theta):
    """theta = s − μ, for the parts of a group relative to the mean over those in use, which keeps digits.

    Items that are not in the chart have μ = 0.
    """
    groups = 1
    for t in range(len(full.part)):
        groups = max(groups, full.group[t] + 1)
    means = np.zeros((groups, 2))
    for t in range(len(full.part)):
        theta[t] = score[t]
    for t in range(len(chart.part)):
        if chart.group[t] != NO_PART:
            theta[chart.item[t]] -= point.flow[t]
            if chart.group[t] >= 0:
                means[chart.group[t], 0] += theta[chart.item[t]]
                means[chart.group[t], 1] += 1.0
    for t in range(len(full.part)):
        if full.group[t] >= 0:
            theta[t] -= means[full.group[t], 0] / means[full.group[t], 1]


@inner
def _fit_flow(chart, point, flow, wanted, is_clean, accuracy, change, room):
    """A change of flow whose parts are `wanted`; returns how many hyperedges it would make negative.

    Hyperedges with little flow change little: they are eased by their flow, and, if some get negative, once more with
    less ease.  Unless it may be the last change, a few digits do.
    """
    items, edges = len(chart.part), len(chart.left)
    ease, residual = np.empty(edges), np.empty(items)
    largest = span.largest_of(wanted, items)
    negative = 0
    for weight in (1.0, 10.0):
        for e in range(edges):
            ease[e] = min(1.0, flow[e] / (weight * largest + 1e-300))
        residual[:] = wanted[:items]
        span.fit(chart, point.share, ease, residual, max(accuracy, 0.03 * largest), 0.0, _ROUGH, room)
        push(chart, point.share, room.wish, change, room.product)
        negative = _count_negative(flow, change)
        if is_clean and negative == 0 and span.largest_of(residual, items) > accuracy:
            span.fit(chart, point.share, ease, residual, accuracy, 0.0, _FINE, room)
            push(chart, point.share, room.wish, room.step, room.product)
            for e in range(edges):
                change[e] += room.step[e]
            negative = _count_negative(flow, change)
        if negative == 0:
            break
    return negative


@inner
def _is_negative(flow, change):
    return change < -flow * (1.0 - 1e-12)


@inner
def _count_negative(flow, change):
    count = 0
    for e in range(len(flow)):
        count += _is_negative(flow[e], change[e])
    return count


@inner
def _tempered(share, flow, change):
    """The share of a hyperedge after the change, never less than a fraction of what it was."""
    relative = change / flow
    return share * (1.0 + relative) if relative > -0.5 else share * 0.25 / max(-relative, 0.25)


@inner
def _exchange(full, score, chart, point, flow, change, slack, gap):
    """The chart without the hyperedges that would get a negative flow, with those that beat the vertices of the chart.

    Also the point there, and how many entered.
    """
    keep, share = np.zeros(len(full.left), np.bool_), np.empty(len(full.left))
    inside = np.zeros(len(full.left), np.bool_)
    for e in range(len(chart.left)):
        inside[chart.edge[e]] = True
        keep[chart.edge[e]] = not _is_negative(flow[e], change[e])
        share[chart.edge[e]] = _tempered(point.share[e], flow[e], change[e])
    entered = 0
    for e in range(len(full.left)):
        if slack[e] < gap and not inside[e]:
            keep[e], share[e] = True, 1e-3
            entered += 1
    larger = sub_chart(full, keep)
    moved = point_for(larger, score)
    for e in range(len(larger.left)):
        moved.share[e] = share[larger.edge[e]]
    normalize(larger, moved.share)
    if len(larger.part) > 1:
        outside(larger, moved.share, moved.flow)
    return larger, moved, entered


@inner
def find_face(full, score, chart, point, in_use):
    """(whether it was found, its chart, the nearest point there), from the chart and the point that the path led to.

    The first guess at the face are the hyperedges with a flow above `in_use`.
    """
    flow = np.empty(len(chart.left))
    flow_of_edges(chart, point, flow)
    chart, point = restricted(full, chart, point, flow > in_use)
    items, edges = len(full.part), len(full.left)
    theta, best, rest, slack = np.empty(items), np.empty(items), np.empty(items), np.empty(edges)
    unit = max(1.0, span.largest_of(score, items))
    fewest, stale = np.inf, 0
    for _ in range(_ROUNDS):
        items, edges = len(chart.part), len(chart.left)
        if items <= 1:  # too much has left
            break
        room, flow, change = span.room_for(chart), np.empty(edges), np.empty(edges)
        flow_of_edges(chart, point, flow)
        _rest(full, score, chart, point, theta)
        across, wanted = np.zeros(items), np.zeros(items)
        for t in range(items):
            if chart.group[t] != NO_PART:
                across[t] = wanted[t] = theta[chart.item[t]]
        size = max(1.0, span.largest_of(across, items))
        span.leave_span(chart, across, span.rounding(chart, size), room)
        common = 0.0  # what every vertex of the chart scores
        for t in range(items):
            if chart.group[t] != NO_PART:
                wanted[t] -= across[t]
                theta[chart.item[t]] = across[t]
                common += across[t] * (point.flow[t] + wanted[t])
        gap = slacks(full, theta, best, rest, slack) - common
        is_clean = gap <= _GAP * unit
        accuracy = _FLOW * max(1.0, 1e-2 * size)
        negative = _fit_flow(chart, point, flow, wanted, is_clean, accuracy, change, room)
        if is_clean and negative == 0:
            for t in range(items):
                wanted[t] += point.flow[t]
            for e in range(edges):
                point.share[e] = flow[e] + change[e]
            normalize(chart, point.share)
            outside(chart, point.share, point.flow)
            error = 0.0
            for t in range(items):
                if chart.group[t] != NO_PART:
                    error = max(error, abs(point.flow[t] - wanted[t]))
            if error <= 5.0 * accuracy:
                return True, chart, point
            continue
        limit = gap - _GAP if not is_clean else -np.inf
        chart, point, entered = _exchange(full, score, chart, point, flow, change, slack, limit)
        stale = stale + 1 if negative + entered >= fewest else 0
        fewest = min(fewest, negative + entered)
        if stale >= _PATIENCE or entered > 0.3 * edges or len(chart.left) < edges - 3 * negative - 10:
            break
    return False, chart, point

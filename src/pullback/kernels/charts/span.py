"""Least squares over the changes of flow that a chart allows, by conjugate gradients: the span of a face.

The vertices made of tight hyperedges are a face, and the changes of flow over these hyperedges, seen at the parts, are
the span of the differences of its vertices.  So the projection of a direction onto that span takes no list of vertices,
only passes over a chart that has few hyperedges.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.charts.chart import sub_chart
from pullback.kernels.charts.passes import gains, push, slacks
from pullback.kernels.tools import add_multiple, dot, fmax, inner, summing

TIED = 1e-8  # a hyperedge belongs to the face if the best vertex through it is this close to the best
_ITERATIONS = 5000
_LOST = 1e8  # times the least square of the gains so far: rounding has the upper hand, and more steps do harm
_MANY, _FEW = 6, 4  # hyperedges for each item: in a chart that is worth thinning, and in a thinned one

# Numbers for each hyperedge, and for each item.
Room = namedtuple("Room", ["gain", "step", "wish", "change", "value", "product"])


@inner
def room_for(chart):
    edges, items = len(chart.left), len(chart.part)
    return Room(np.empty(edges), np.empty(edges), np.empty(edges), np.empty(edges), np.empty(items), np.empty(items))


@summing
def _advance(step, gain, ease, factor, count):
    """step = the direction of steepest descent, conjugate to the last one."""
    for e in range(count):
        step[e] = gain[e] * ease[e] + factor * step[e]


@summing
def largest_of(x, count):
    largest = 0.0
    for i in range(count):
        largest = fmax(abs(x[i]), largest)
    return largest


@inner
def rounding(chart, largest):
    """What rounding leaves of the gains of a direction whose numbers are at most `largest`."""
    return 2e-14 * largest * np.sqrt(len(chart.left))


@inner
def fit(chart, share, ease, residual, enough, flat, limit, room):
    """Takes from `residual` the parts of the change of flow that fits it best, with the least Σ wish² / ease.

    Ends when no residual is above `enough`, or no hyperedge promises more than `flat`, or nothing but rounding is left.
    The wishes are in room.wish, and `push` makes the change of them.  Returns the number of iterations.
    """
    edges, items = len(chart.left), len(chart.part)
    room.wish[:edges] = 0.0
    room.step[:edges] = 0.0
    gain = gains(chart, share, ease, residual, room.value, room.gain)
    last, least = np.inf, gain
    for iteration in range(limit):
        if not gain > flat * flat or gain > _LOST * least or largest_of(residual, items) <= enough:
            return iteration
        least = min(least, gain)
        _advance(room.step, room.gain, ease, gain / last, edges)
        push(chart, share, room.step, room.change, room.product)
        length = gain / dot(room.product, room.product, items)
        add_multiple(residual, -length, room.product, items)
        add_multiple(room.wish, length, room.step, edges)
        last, gain = gain, gains(chart, share, ease, residual, room.value, room.gain)
    return limit


@inner
def _thinned(chart):
    """A chart with a few hyperedges for each item, evenly spaced, and all those of the goal.

    Where items have many, its vertices have hardly ever a smaller span.
    """
    items = len(chart.part)
    keep = np.zeros(len(chart.left), np.bool_)
    for t in range(1, items):
        first, count = np.int64(chart.first[t]), np.int64(chart.first[t + 1] - chart.first[t])
        kept = count if t == items - 1 else min(count, _FEW)
        for k in range(kept):
            keep[first + (k * (count - 1) // (kept - 1) if kept > 1 else 0)] = True
    return sub_chart(chart, keep)


@inner
def _leave_thinned(chart, residual, flat):
    """As `leave_span`, for the span of a thinned chart."""
    thin = _thinned(chart)
    place = np.zeros(chart.item.max() + 1, np.int64)
    for t in range(len(chart.part)):
        place[chart.item[t]] = t
    part = np.zeros(len(thin.part))
    for t in range(1, len(thin.part)):
        part[t] = residual[place[thin.item[t]]]
    _leave(thin, part, flat, room_for(thin))
    for t in range(1, len(thin.part)):
        residual[place[thin.item[t]]] = part[t]


@inner
def leave_span(chart, residual, flat, room):
    """Takes from `residual` its projection onto the span of the differences of the chart's vertices.

    Ends when no hyperedge promises more than `flat`.  A chart of many hyperedges comes after a thinned one, which
    leaves it little or nothing to do.
    """
    if len(chart.left) > _MANY * len(chart.part):
        _leave_thinned(chart, residual, flat)
        flat *= 50.0  # what rounding has left by now
    return _leave(chart, residual, flat, room)


@inner
def _leave(chart, residual, flat, room):
    """With equal shares and equal ease, which takes the fewest iterations."""
    edges = len(chart.left)
    share, ease = np.empty(edges), np.ones(edges)
    for t in range(1, len(chart.part)):
        count = chart.first[t + 1] - chart.first[t]
        for e in range(chart.first[t], chart.first[t + 1]):
            share[e] = 1.0 / count
    return fit(chart, share, ease, residual, 0.0, flat, _ITERATIONS, room)


@inner
def exposed_face(chart, rest, tied):
    """The chart of the vertices on which `rest` = s − μ is largest."""
    items = len(chart.part)
    slack = np.empty(len(chart.left))
    slacks(chart, rest, np.empty(items), np.empty(items), slack)
    return sub_chart(chart, slack <= tied)

"""The nearest point of a hull: along the path until it is clear which hyperedges are in use, then on the face."""

import numpy as np

from pullback.kernels.charts import path
from pullback.kernels.charts.chart import NO_PART
from pullback.kernels.charts.face import IN_USE, find_face
from pullback.kernels.charts.passes import slacks
from pullback.kernels.charts.path import Care
from pullback.kernels.charts.scores import spread_of
from pullback.kernels.charts.span import largest_of
from pullback.kernels.tools import dot, inner

QUICK, CAREFUL = Care(0.5, 0.1, 2e-4, 1e-8), Care(0.7, 0.03, 2e-5, 1e-11)
_STAGES = 80
_BAND = 0.03  # of the hyperedges, those that may lie between in use and not in use when a face is looked for


@inner
def _follow(full, score, words, care):
    """(whether it was found, the chart of its face, the nearest point), for one way of following the path."""
    chart, point, room = full, path.point_for(full, score), path.room_for(full)
    spread = spread_of(full, score)
    temperature, last, before = max(0.1, 3.0 * spread), np.inf, np.inf
    is_close, wait, failures = False, 0, 0
    flow = np.empty(len(full.left))
    for _ in range(_STAGES):
        error = (path.FINE if is_close else care.stage) * words
        on_path = path.advance(chart, point, temperature, last, before, care, error, room)
        edges = len(chart.left)
        path.flow_of_edges(chart, point, flow)
        some, many = 0, 0
        keep = np.empty(edges, np.bool_)
        remaining = 0
        for e in range(edges):
            keep[e] = flow[e] > care.negligible
            remaining += keep[e]
            some += flow[e] > 1e-8
            many += flow[e] > 1e-6
        if on_path and remaining < 0.8 * edges:
            chart, point = path.restricted(full, chart, point, keep)
        wait -= 1
        if is_close or not on_path or temperature < 1e-9:
            found, face, nearest = find_face(full, score, chart, point, IN_USE)
            if found or not on_path:
                return found, face, nearest
            failures += 1
            wait, is_close = 2, False
            if failures >= 4 or temperature < 1e-11:
                break
        elif some - many <= _BAND * many and temperature <= 1e-2 * max(spread, 1e-4) and wait <= 0:
            is_close = True
        before, last = last, temperature
        temperature *= care.factor
    return False, chart, point


@inner
def excess(full, rest, mu):
    """⟨rest, z − μ⟩ for the best vertex z."""
    items = len(full.part)
    return slacks(full, rest, np.empty(items), np.empty(items), np.empty(len(full.left))) - dot(rest, mu, items)


@inner
def settle(full, score, face, point, tolerance, mu, rest):
    """μ from a point on a face, and rest = s − μ; returns the gap, ∞ if it is above `tolerance`.

    The tolerance is relative to the largest score, if that is above 1.
    """
    items = len(full.part)
    mu[:items] = 0.0
    for t in range(len(face.part)):
        if face.group[t] != NO_PART:
            mu[face.item[t]] = point.flow[t]
    for t in range(items):
        rest[t] = score[t] - mu[t]
    gap = max(excess(full, rest, mu), 0.0)
    return gap if gap <= tolerance * max(1.0, largest_of(score, items)) else np.inf


@inner
def nearest(full, score, words, tolerance, mu, rest):
    """Writes μ and s − μ, numbers for each item; returns the gap, ∞ if no face is found whose gap is small enough."""
    for care in (QUICK, CAREFUL):
        found, face, point = _follow(full, score, words, care)
        if found:
            gap = settle(full, score, face, point, tolerance, mu, rest)
            if gap < np.inf:
                return gap
    return np.inf

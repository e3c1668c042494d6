"""SparseMAP over the vertices of a chart when very many of them mix, and its derivative; no vertex is ever listed.

The path tells which hyperedges are in use, the face where the nearest point is.  At flat scores thousands of vertices
mix, of which only some thousand hyperedges are made.
"""

import numpy as np

from pullback.kernels.charts import path, span
from pullback.kernels.charts.chart import NO_PART, sub_chart
from pullback.kernels.charts.face import find_face
from pullback.kernels.charts.passes import expect, slacks
from pullback.kernels.charts.path import Care
from pullback.kernels.charts.structures import chart_of
from pullback.kernels.tools import inner, kernel

_STAGES = 80
_BAND = 0.03  # of the hyperedges, those that may lie between in use and not in use when a face is looked for


@inner
def _allowed(chart, score):
    """The chart without parts at −∞."""
    keep = np.ones(len(chart.left), np.bool_)
    for t in range(len(chart.part)):
        if chart.part[t] >= 0 and not score[chart.part[t]] > -np.inf:
            for e in range(chart.first[t], chart.first[t + 1]):
                keep[e] = False
    sub = sub_chart(chart, keep)
    for t in range(len(sub.part)):
        sub.item[t] = t
    for e in range(len(sub.left)):
        sub.edge[e] = e
    return sub


@inner
def _centered(chart, score):
    """The scores of items, moved by what all vertices have in common: the nearest point stays where it is.

    The parts of a group sum to one, as they do in every vertex; the parts without a group sum to how many there are.
    """
    items, goal = len(chart.part), len(chart.part) - 1
    centered = np.zeros(items)
    groups = 1
    for t in range(items):
        groups = max(groups, chart.group[t] + 1)
    sums = np.zeros((groups + 1, 2))
    ones, share = np.zeros(items), np.zeros(len(chart.left))
    for t in range(1, items):
        share[chart.first[t]] = 1.0
        if chart.group[t] != NO_PART and t != goal:
            ones[t] = chart.group[t] < 0
            centered[t] = score[chart.part[t]]
            sums[chart.group[t], 0] += centered[t]
            sums[chart.group[t], 1] += 1.0
    value = np.zeros(items)
    expect(chart, share, ones, value, np.empty(len(chart.left)))
    for t in range(1, items):
        if chart.group[t] != NO_PART and t != goal:
            total = value[goal] if chart.group[t] < 0 else 1.0
            centered[t] += (total - sums[chart.group[t], 0]) / sums[chart.group[t], 1]
    if chart.group[goal] != NO_PART:
        centered[goal] = 1.0  # it is in every vertex
    return centered


@inner
def _spread(chart, score):
    """The standard deviation of the scores of the parts."""
    count, total, square = 0, 0.0, 0.0
    for t in range(len(chart.part)):
        if chart.group[t] != NO_PART:
            count += 1
            total += score[t]
            square += score[t] * score[t]
    return np.sqrt(max(square / count - (total / count) ** 2, 0.0))


@inner
def _nearest(full, score, words, care):
    """(whether it was found, the chart of its face, the nearest point), for one way of following the path."""
    chart, point, room = full, path.point_for(full, score), path.room_for(full)
    spread = _spread(full, score)
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
            found, face, nearest = find_face(full, score, chart, point)
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
def _gap(full, score, chart, point, rest):
    """rest = s − μ; returns ⟨s − μ, z − μ⟩ for the best vertex z."""
    items = len(full.part)
    common = 0.0
    for t in range(items):
        rest[t] = score[t]
    for t in range(len(chart.part)):
        if chart.group[t] != NO_PART:
            rest[chart.item[t]] -= point.flow[t]
            common += rest[chart.item[t]] * point.flow[t]
    return slacks(full, rest, np.empty(items), np.empty(items), np.empty(len(full.left))) - common


@kernel
def project(scores, lengths, structure, tolerance, point, rest, gap, lo, hi):
    """The nearest point of the hull of each instance that has a length above 0, and the gap of it.

    scores, point and rest are (batch, size, size), float64; gap is (batch,).  `rest` becomes s − μ, up to what all
    vertices have in common, and −∞ where there is no part: all that the derivative needs.  Where no face is found whose
    gap is at most `tolerance` times the largest score (if that is above 1), the gap is ∞ and the rest is undefined.
    """
    size = scores.shape[1]
    for b in range(lo, hi):
        n = lengths[b]
        if n <= 0:
            continue
        gap[b] = np.inf
        flat = scores[b].reshape(-1)
        full = _allowed(chart_of(structure, n, size), flat)
        score = _centered(full, flat)
        theta = np.empty(len(score))
        for care in (Care(0.5, 0.1, 2e-4, 1e-8), Care(0.7, 0.03, 2e-5, 1e-11)):
            found, face, nearest = _nearest(full, score, n, care)
            if found:
                gap[b] = max(_gap(full, score, face, nearest, theta), 0.0)
                if gap[b] <= tolerance * max(1.0, span.largest_of(score, len(score))):
                    _write(full, face, nearest, theta, point[b].reshape(-1), rest[b].reshape(-1))
                    break
                gap[b] = np.inf
    return -1


@inner
def _write(full, face, nearest, theta, point, rest):
    for part in range(len(point)):
        point[part], rest[part] = 0.0, -np.inf
    for t in range(len(full.part)):
        if full.part[t] >= 0:
            rest[full.part[t]] = theta[t]
    for t in range(len(face.part)):
        if face.part[t] >= 0:
            point[face.part[t]] = nearest.flow[t]


@kernel
def project_backward(rest, lengths, structure, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its projection onto the span of the face."""
    size = rest.shape[1]
    for b in range(lo, hi):
        n = lengths[b]
        if n <= 0:
            continue
        flat, out = rest[b].reshape(-1), product[b].reshape(-1)
        full = _allowed(chart_of(structure, n, size), flat)
        theta = np.zeros(len(full.part))
        for t in range(len(full.part)):
            if full.part[t] >= 0:
                theta[t] = flat[full.part[t]]
        face = span.exposed_face(full, theta, span.TIED)
        _project_onto(face, gradient[b].reshape(-1), out)
    return -1


@inner
def _project_onto(face, gradient, product):
    """product = the projection of `gradient` onto the span of the face."""
    items = len(face.part)
    across, largest = np.zeros(items), 0.0
    for t in range(items):
        if face.part[t] >= 0:
            across[t] = gradient[face.part[t]]
            largest = max(largest, abs(across[t]))
    rounding = 2e-14 * largest * np.sqrt(len(face.left))  # what it leaves of a gain, summed over the hyperedges
    span.leave_span(face, across, rounding, span.room_for(face))
    for part in range(len(product)):
        product[part] = 0.0
    for t in range(items):
        if face.part[t] >= 0:
            product[face.part[t]] = gradient[face.part[t]] - across[t]

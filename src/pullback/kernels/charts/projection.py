"""SparseMAP over the vertices of a chart when very many of them mix, and its derivative; no vertex is ever listed.

The path tells which hyperedges are in use, the face where the nearest point is.  At flat scores thousands of vertices
mix, of which only some thousand hyperedges are made.
"""

import numpy as np

from pullback.kernels.charts import span
from pullback.kernels.charts.level import nearest_of_any
from pullback.kernels.charts.scores import allowed
from pullback.kernels.charts.structures import chart_of
from pullback.kernels.tools import inner, kernel


@kernel
def project(scores, lengths, structure, tolerance, point, rest, gap, lo, hi):
    """The nearest point of the hull of each instance that has a length above 0, and the gap of it.

    scores, point and rest are (batch, size, size, labels), float64; gap is (batch,).  `rest` becomes a direction that
    is largest on the face of the point, all that the derivative needs: s − μ, up to what all vertices have in common,
    or for tiny scores that of louder ones; −∞ where there is no part.  Where no face is found whose gap is at most
    `tolerance` times the largest score (if that is above 1), the gap is ∞ and the rest is undefined.
    """
    size, labels = scores.shape[1], scores.shape[3]
    for b in range(lo, hi):
        n = lengths[b]
        if n <= 0:
            continue
        flat = scores[b].reshape(-1)
        chart = chart_of(structure, n, size, labels)
        full = allowed(chart, flat)
        is_whole = len(full.left) == len(chart.left)
        mu, theta = np.empty(len(full.part)), np.empty(len(full.part))
        gap[b] = nearest_of_any(full, is_whole, flat, n, tolerance, mu, theta)
        if gap[b] < np.inf:
            _write(full, mu, theta, point[b].reshape(-1), rest[b].reshape(-1))
    return -1


@inner
def _write(full, mu, theta, point, rest):
    for part in range(len(point)):
        point[part], rest[part] = 0.0, -np.inf
    for t in range(len(full.part)):
        if full.part[t] >= 0:
            point[full.part[t]], rest[full.part[t]] = mu[t], theta[t]


@kernel
def project_backward(rest, lengths, structure, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its projection onto the span of the face."""
    size, labels = rest.shape[1], rest.shape[3]
    for b in range(lo, hi):
        n = lengths[b]
        if n <= 0:
            continue
        flat, out = rest[b].reshape(-1), product[b].reshape(-1)
        full = allowed(chart_of(structure, n, size, labels), flat)
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
    span.leave_span(face, across, span.rounding(face, largest), span.room_for(face))
    for part in range(len(product)):
        product[part] = 0.0
    for t in range(items):
        if face.part[t] >= 0:
            product[face.part[t]] = gradient[face.part[t]] - across[t]

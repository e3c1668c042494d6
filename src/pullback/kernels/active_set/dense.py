"""The active-set method for a batch of dense vertices, whose argmax happens elsewhere.

`grow` takes one vertex into each active set, `seed` begins with given ones; `leave_span` and `widen` look for vertices
that the face of μ has beyond the active ones.  `core` has the method itself.
"""

import numpy as np

from pullback.kernels.active_set.core import add, append, copy_row, tangent
from pullback.kernels.tools import dot, inner, kernel, summing

RUNNING, CONVERGED, STALLED = 0, 1, 2


@summing
def _gap(scores, vertex, point):
    """⟨s − μ, z − μ⟩.  A forbidden part has score −∞, and is in neither."""
    gap = 0.0
    for j in range(len(scores)):
        away = vertex[j] - point[j]
        gap += (scores[j] - point[j]) * away if away != 0.0 else 0.0
    return gap


@inner
def _place(vertex, vertices, factor, count):
    """A dense vertex in place `count`, and its inner products where `append` expects them."""
    copy_row(vertex, vertices[count], len(vertex))
    for i in range(count + 1):
        factor[count, i] = dot(vertices[i], vertex, len(vertex))


@inner
def _advance(scores, vertex, tolerance, vertices, factor, weights, kept, trial, count, point):
    """One round of one instance with dense vertices: (new count, gap, status)."""
    gap = _gap(scores, vertex, point) if count > 0 else np.inf
    if gap <= tolerance:
        return count, gap, CONVERGED
    _place(vertex, vertices, factor, count)
    value = factor[0, 0] * factor[-2, 0] if count > 0 else 0.0  # what the vertex in place 0 was counted as
    for j in range(len(scores)):
        if vertex[j] != vertices[0, j]:
            value += scores[j] * (np.float64(vertex[j]) - vertices[0, j])
    count, useful = add(factor, weights, kept, trial, count, value, 0.5 * tolerance)
    for i in range(count):
        if kept[i] != i:
            copy_row(vertices[kept[i]], vertices[i], len(scores))
    for j in range(len(scores)):
        point[j] = 0.0
    for i in range(count):
        for j in range(len(scores)):
            point[j] += weights[i] * vertices[i, j]
    return count, gap, RUNNING if useful else STALLED


@kernel
def grow(scores, vertex, tolerance, vertices, factor, weights, count, point, gap, status, lo, hi):
    """One round for every instance that is RUNNING, given the oracle's answer for it.

    scores, vertex, point (batch, d); tolerance, gap, count, status (batch,); vertices (batch, capacity, d); factor
    (batch, capacity + 3, capacity); weights (batch, capacity).  Instances start with count 0 and status RUNNING, the
    rest uninitialized; `vertex` is the argmax of `scores` at first, of `scores − point` later.  Writes the gap of the
    point that was asked about, and either the status CONVERGED (gap ≤ tolerance; nothing else changes), or the new
    active set and its point; STALLED if the answer was of no use.  A running instance needs count < capacity.
    O(count · d + count²) each.  Returns the first instance whose answer has a score that is not finite, or −1.
    """
    kept, trial = np.empty(weights.shape[1], np.int64), np.empty(weights.shape[1])
    for b in range(lo, hi):
        if status[b] == RUNNING:
            s, z, v, f, w, m = scores[b], vertex[b], vertices[b], factor[b], weights[b], point[b]
            for j in range(len(s)):
                if z[j] != 0.0 and not np.isfinite(s[j]):
                    return b
            count[b], gap[b], status[b] = _advance(s, z, tolerance[b], v, f, w, kept, trial, count[b], m)
    return -1


@kernel
def seed(scores, pool, tolerance, vertices, factor, weights, count, point, lo, hi):
    """A warm start: the projection onto the hull of the vertices of `pool` (batch, k, d), by the same rounds.

    The arrays are those of `grow`, before its first call; the capacity must be above min(k, d + 1).  Vertices whose
    score is not finite are ignored (NaN marks padding); an instance without any other is left with count 0.
    """
    kept, trial = np.empty(weights.shape[1], np.int64), np.empty(weights.shape[1])
    for b in range(lo, hi):
        s, v, f, w, m = scores[b], vertices[b], factor[b], weights[b], point[b]
        for j in range(len(m)):
            m[j] = 0.0
        count[b], status, rounds = 0, RUNNING, 0
        best = _best_of(pool[b], s, m)
        while best >= 0 and status == RUNNING and rounds < 10 * pool.shape[1]:
            count[b], _, status = _advance(s, pool[b, best], tolerance[b], v, f, w, kept, trial, count[b], m)
            best = _best_of(pool[b], s, m)
            rounds += 1
    return -1


@inner
def _best_of(pool, scores, point):
    """The vertex of the pool with the best finite ⟨s − μ, z⟩, or −1."""
    best, top = -1, -np.inf
    for k in range(len(pool)):
        total = 0.0
        for j in range(len(scores)):
            if pool[k, j] != 0.0:
                total += (scores[j] - point[j]) * pool[k, j]
        if np.isfinite(total) and total > top:
            best, top = k, total
    return best


@kernel
def leave_span(direction, vertices, factor, count, lo, hi):
    """Each direction (batch, d) without its part in the span of the active vertices, in place."""
    inner = np.empty(factor.shape[2])
    for b in range(lo, hi):
        for i in range(count[b]):
            inner[i] = dot(vertices[b, i], direction[b], direction.shape[1])
        tangent(factor[b], count[b], inner)
        for i in range(count[b]):
            for j in range(direction.shape[1]):
                direction[b, j] -= inner[i] * vertices[b, i, j]
    return -1


@kernel
def widen(scores, vertex, slack, vertices, factor, weights, count, point, grown, lo, hi):
    """The active set with one more vertex of weight 0, where it is tied and independent; `grown` (batch,) tells where.

    Tied: within `slack` (batch,) of the best for s − μ, hence on the face that μ lies on.  The other arrays are those
    of `grow`.
    """
    for b in range(lo, hi):
        grown[b] = False
        if _gap(scores[b], vertex[b], point[b]) >= -slack[b]:
            _place(vertex[b], vertices[b], factor[b], count[b])
            grown[b] = append(factor[b], count[b], 0.0)
            if grown[b]:
                weights[b, count[b]] = 0.0
                count[b] += 1
    return -1

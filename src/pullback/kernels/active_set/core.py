"""Projection onto the hull of vertices that only an argmax can name: the active-set, or min-norm-point, method.

    min ½‖μ − s‖²   over   μ = Σ pᵢ zᵢ,  p ≥ 0,  Σ p = 1

A few vertices are active.  Each round asks for z = argmax ⟨s − μ, z⟩.  The Frank–Wolfe gap ⟨s − μ, z − μ⟩ bounds the
distance to the optimum, so a small one ends the search; otherwise z becomes active and `add` moves μ to the best point
of the active vertices' hull, where weights that vanish leave.  No active set comes twice, so the search is finite.

The core (`add`, and below it `append`, `settle`, `drop`; `tangent`) knows a vertex by its inner products alone, so that
a kernel may keep vertices in whatever form suits it.  Its state is one array and two vectors, sized by the caller:

    factor  (capacity + 2, capacity)   row i < count: row i of L, lower triangular, L Lᵀ = [⟨zᵢ, zⱼ⟩ + 1]
                                       row −2: L⁻¹ v with vᵢ = ⟨s, zᵢ⟩;  row −1: L⁻¹ 1
    weights (capacity,)                p, positive
    kept    (capacity,) int64          after `add`: place i holds what was in place kept[i] ≥ i before

The matrix is positive definite exactly when the active vertices are affinely independent, and they always are.  A round
costs O(count²), a vertex that leaves as much.  References: Wolfe (1976); Niculae et al. (2018).

`grow` and `seed` are the same rounds for a batch of dense vertices, whose argmax happens elsewhere; `leave_span` and
`widen` look for vertices that the face of μ has beyond the active ones.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel, summing
from pullback.kernels.tools.rows import multiply, subtract_multiples

RUNNING, CONVERGED, STALLED = 0, 1, 2

# Squared distance from the others' affine hull, relative to the vertex's own square, below which a vertex counts as
# dependent: rounding leaves 1e-13, vertices of zeros and ones are seldom nearer than 1e-4, but 5e-11 has been seen.
_DEPENDENT = 1e-12
_NEGLIGIBLE = 1e-13  # a weight this small is rounding


@inner
def add(factor, weights, kept, trial, count, value, tolerance):
    """The active set with one more vertex z, and the best weights: (new count, whether z was of use).

    Before the call the caller writes ⟨z, zᵢ⟩, i < count, and ⟨z, z⟩ into factor[count, : count + 1] and keeps z itself
    in place `count` of its own storage; `count` must be below the capacity.  `value` is ⟨s, z⟩, up to one constant for
    all vertices; taking it relative to the first vertex keeps digits.  After the call the caller moves place kept[i] of
    its storage to place i for i < new count, in this order, and takes μ from the weights.  The first call has count 0
    and sets up the state: nothing needs to be initialized.  `trial` (capacity,) is workspace.

    If z is not of use (it is active already, or an affine combination that gains no more than `tolerance`, or its
    weight vanishes in rounding), the search has stalled: asking again would give the same answer.
    """
    for i in range(count + 1):
        kept[i] = i
    weights[count] = 0.0
    fresh = count
    independent = append(factor, count, value)
    if not independent and value - _dot(factor[count], factor[-2], count) <= tolerance:
        return count, False
    while not independent:
        _exchange(factor, weights, kept, trial, count)
        count -= 1
        independent = _close(factor, count, value)
    count = settle(factor, weights, kept, trial, count + 1)
    return count, kept[count - 1] == fresh


@inner
def append(factor, count, value):
    """Row `count` of the factor, in place of the Gram row found there; False if the vertex depends on the others."""
    row = factor[count]
    square = row[count] + 1.0
    flat, width, whole = factor.reshape(-1), factor.shape[1], count - count % 4
    for first in range(0, whole, 4):
        products = multiply(flat, first * width, width, first, count * width)
        for j in range(4):
            i = first + j
            rest = row[i] + 1.0 - products[j]
            for k in range(first, i):
                rest -= factor[i, k] * row[k]
            row[i] = rest / factor[i, i]
    for i in range(whole, count):
        row[i] = (row[i] + 1.0 - _dot(factor[i], row, i)) / factor[i, i]
    row[count] = np.sqrt(max(square - _dot(row, row, count), 0.0))
    return _close(factor, count, value)


@inner
def _close(factor, count, value):
    """The last entries of L⁻¹ v and L⁻¹ 1, unless the last vertex is dependent."""
    row = factor[count]
    distance = row[count] ** 2
    if distance <= _DEPENDENT * (distance + _dot(row, row, count)):
        return False
    factor[-2, count] = (value - _dot(row, factor[-2], count)) / row[count]
    factor[-1, count] = (1.0 - _dot(row, factor[-1], count)) / row[count]
    return True


@inner
def _exchange(factor, weights, kept, trial, count):
    """An active vertex makes room for the dependent one in place `count`.

    z = Σ qᵢ zᵢ with Σ q = 1, so weight may move from q to z without moving μ, until the first weight vanishes.  It is a
    gain where values hold more than ⟨s, z⟩, as for sequences whose transitions have scores but no coordinates.
    """
    _copy(factor[count], trial, count)
    _solve_transposed(factor, trial, count)
    step, leaving = np.inf, np.int64(0)  # no literals: Numba would compile the callees for each
    for i in range(count):
        if trial[i] > 1e-12 and weights[i] < step * trial[i]:
            step, leaving = weights[i] / trial[i], i
    for i in range(count):
        weights[i] = max(weights[i] - step * trial[i], 0.0)
    weights[count] += step
    drop(factor, weights, kept, count + 1, leaving)


@inner
def settle(factor, weights, kept, trial, count):
    """The minor cycle: the best weights, and the new count, once the vertices that hold the point back have left.

    The best point of the affine hull has p = L⁻ᵀ(L⁻¹v + τ L⁻¹1), with τ such that Σ p = 1.  If weights would become
    negative, go as far as the first of them allows, drop it, and solve again.
    """
    values, ones = factor[-2], factor[-1]
    while True:
        tilt = (1.0 - _dot(values, ones, count)) / _dot(ones, ones, count)
        for i in range(count):
            trial[i] = values[i] + tilt * ones[i]
        _solve_transposed(factor, trial, count)
        step, leaving = 1.0, np.int64(-1)
        for i in range(count):
            if trial[i] <= _NEGLIGIBLE:
                ratio = weights[i] / (weights[i] - trial[i]) if weights[i] > trial[i] else 0.0
                if leaving < 0 or ratio < step:
                    step, leaving = min(ratio, 1.0), i
        for i in range(count):
            weights[i] = max(weights[i] + step * (trial[i] - weights[i]), 0.0)
        if leaving < 0:
            return count
        drop(factor, weights, kept, count, leaving)
        count -= 1


@inner
def drop(factor, weights, kept, count, leaving):
    """The state without the vertex in place `leaving`: its row goes, Givens rotations make L triangular again.

    L⁻¹v and L⁻¹1 rotate along, as if they were two more rows.  A rotation turns two neighboring columns; each row takes
    all of them in turn, four rows at a time.
    """
    for i in range(leaving, count - 1):
        weights[i], kept[i] = weights[i + 1], kept[i + 1]
        _copy(factor[i + 1], factor[i], i + 2)
    turns = np.empty((count, 2))
    for first in range(leaving, count - 1, 4):
        if first + 4 <= count - 1:
            _rotate_four(factor[first : first + 4], turns, leaving, first)
        else:
            for i in range(first, count - 1):
                _rotate(factor[i], turns, leaving, first)
        for i in range(first, min(first + 4, count - 1)):
            _rotate(factor[i], turns, first, i)
            radius = np.sqrt(factor[i, i] ** 2 + factor[i, i + 1] ** 2)
            turns[i, 0], turns[i, 1] = factor[i, i] / radius, factor[i, i + 1] / radius
            factor[i, i] = radius
    _rotate(factor[-2], turns, leaving, count - 1)
    _rotate(factor[-1], turns, leaving, count - 1)


@inner
def _rotate(row, turns, first, end):
    """The rotations first, …, end − 1 of a row, (cosine, sine) each."""
    x = row[first]
    for k in range(first, end):
        y = row[k + 1]
        row[k] = turns[k, 0] * x + turns[k, 1] * y
        x = turns[k, 0] * y - turns[k, 1] * x
    row[end] = x


@inner
def _rotate_four(rows, turns, first, end):
    """The same of four rows, which do not wait for each other."""
    p, q, r, s = rows[0, first], rows[1, first], rows[2, first], rows[3, first]
    for k in range(first, end):
        cosine, sine = turns[k, 0], turns[k, 1]
        a, b, c, d = rows[0, k + 1], rows[1, k + 1], rows[2, k + 1], rows[3, k + 1]
        rows[0, k], rows[1, k] = cosine * p + sine * a, cosine * q + sine * b
        rows[2, k], rows[3, k] = cosine * r + sine * c, cosine * s + sine * d
        p, q = cosine * a - sine * p, cosine * b - sine * q
        r, s = cosine * c - sine * r, cosine * d - sine * s
    rows[0, end], rows[1, end], rows[2, end], rows[3, end] = p, q, r, s


@inner
def tangent(factor, count, inner):
    """Coefficients w of the projection Σ wᵢ zᵢ of a direction g onto the active vertices' span, in place of ⟨g, zᵢ⟩.

    The span is that of the differences zᵢ − zⱼ, so Σ w = 0: w = L⁻ᵀ(c − β L⁻¹1) with c = L⁻¹⟨g, z⟩.  This applies the
    Jacobian of the projection, which is symmetric, where the active vertices span the face that μ lies on.
    """
    ones = factor[-1]
    for i in range(count):
        inner[i] = (inner[i] - _dot(factor[i], inner, i)) / factor[i, i]
    tilt = _dot(inner, ones, count) / _dot(ones, ones, count)
    for i in range(count):
        inner[i] -= tilt * ones[i]
    _solve_transposed(factor, inner, count)


@summing
def _dot(a, b, count):
    total = 0.0
    for i in range(count):
        total += a[i] * b[i]
    return total


@inner
def _copy(source, target, count):
    for i in range(count):
        target[i] = source[i]


@inner
def _solve_transposed(factor, x, count):
    """x ← L⁻ᵀ x; four rows at a time, each number in the order that row by row would give."""
    whole = count - count % 4
    for i in range(count - 1, whole - 1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]
    flat, width = factor.reshape(-1), factor.shape[1]
    for first in range(whole - 4, -1, -4):
        for i in range(first + 3, first - 1, -1):
            x[i] /= factor[i, i]
            for k in range(first, i):
                x[k] -= factor[i, k] * x[i]
        subtract_multiples(flat, first * width, width, first, x)


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
    _copy(vertex, vertices[count], len(vertex))
    for i in range(count + 1):
        factor[count, i] = _dot(vertices[i], vertex, len(vertex))


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
            _copy(vertices[kept[i]], vertices[i], len(scores))
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
    (batch, capacity + 2, capacity); weights (batch, capacity).  Instances start with count 0 and status RUNNING, the
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
            inner[i] = _dot(vertices[b, i], direction[b], direction.shape[1])
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

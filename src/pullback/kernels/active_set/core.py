"""Projection onto the hull of vertices that only an argmax can name: the active-set, or min-norm-point, method.

    min ½‖μ − s‖²   over   μ = Σ pᵢ zᵢ,  p ≥ 0,  Σ p = 1

A few vertices are active.  Each round asks for z = argmax ⟨s − μ, z⟩.  The Frank–Wolfe gap ⟨s − μ, z − μ⟩ bounds the
distance to the optimum, so a small one ends the search; otherwise z becomes active and `add` moves μ to the best point
of the active vertices' hull, where weights that vanish leave.  No active set comes twice, so the search is finite.

The core (`add`, and below it `append`, `settle`, `drop`; `tangent`) knows a vertex by its inner products alone, so that
a kernel may keep vertices in whatever form suits it.  Its state is one array and two vectors, sized by the caller:

    factor  (capacity + 3, capacity)   row i < count: row i of L, lower triangular, L Lᵀ = [⟨zᵢ, zⱼ⟩ + 1]
                                       row −3: 1 / Lᵢᵢ;  row −2: L⁻¹ v with vᵢ = ⟨s, zᵢ⟩;  row −1: L⁻¹ 1
    weights (capacity,)                p, positive
    kept    (capacity,) int64          after `add`: place i holds what was in place kept[i] ≥ i before

The matrix is positive definite exactly when the active vertices are affinely independent, and they always are.  A round
costs O(count²), a vertex that leaves as much.  References: Wolfe (1976); Niculae et al. (2018).
"""

import numpy as np

from pullback.kernels.tools import dot, inner
from pullback.kernels.tools.rows import multiply, subtract_multiples

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
    if not independent and value - dot(factor[count], factor[-2], count) <= tolerance:
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
    row, inverse = factor[count], factor[-3]
    square = row[count] + 1.0
    flat, width, whole = factor.reshape(-1), factor.shape[1], count - count % 4
    for first in range(0, whole, 4):
        products = multiply(flat, first * width, width, first, count * width)
        for j in range(4):
            i = first + j
            rest = row[i] + 1.0 - products[j]
            for k in range(first, i):
                rest -= factor[i, k] * row[k]
            row[i] = rest * inverse[i]
    for i in range(whole, count):
        row[i] = (row[i] + 1.0 - dot(factor[i], row, i)) * inverse[i]
    row[count] = np.sqrt(max(square - dot(row, row, count), 0.0))
    return _close(factor, count, value)


@inner
def _close(factor, count, value):
    """The last entries of 1 / Lᵢᵢ, L⁻¹ v and L⁻¹ 1, unless the last vertex is dependent."""
    row = factor[count]
    distance = row[count] ** 2
    if distance <= _DEPENDENT * (distance + dot(row, row, count)):
        return False
    inverse = 1.0 / row[count]
    factor[-3, count] = inverse
    factor[-2, count] = (value - dot(row, factor[-2], count)) * inverse
    factor[-1, count] = (1.0 - dot(row, factor[-1], count)) * inverse
    return True


@inner
def _exchange(factor, weights, kept, trial, count):
    """An active vertex makes room for the dependent one in place `count`.

    z = Σ qᵢ zᵢ with Σ q = 1, so weight may move from q to z without moving μ, until the first weight vanishes.  It is a
    gain where values hold more than ⟨s, z⟩, as for sequences whose transitions have scores but no coordinates.
    """
    copy_row(factor[count], trial, count)
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
        tilt = (1.0 - dot(values, ones, count)) / dot(ones, ones, count)
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
        copy_row(factor[i + 1], factor[i], i + 2)
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
            inverse = 1.0 / radius
            turns[i, 0], turns[i, 1] = factor[i, i] * inverse, factor[i, i + 1] * inverse
            factor[i, i], factor[-3, i] = radius, inverse
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
        inner[i] = (inner[i] - dot(factor[i], inner, i)) * factor[-3, i]
    tilt = dot(inner, ones, count) / dot(ones, ones, count)
    for i in range(count):
        inner[i] -= tilt * ones[i]
    _solve_transposed(factor, inner, count)


@inner
def copy_row(source, target, count):
    for i in range(count):
        target[i] = source[i]


@inner
def _solve_transposed(factor, x, count):
    """x ← L⁻ᵀ x; four rows at a time, each number in the order that row by row would give."""
    whole, inverse = count - count % 4, factor[-3]
    for i in range(count - 1, whole - 1, -1):
        x[i] *= inverse[i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]
    flat, width = factor.reshape(-1), factor.shape[1]
    for first in range(whole - 4, -1, -4):
        for i in range(first + 3, first - 1, -1):
            x[i] *= inverse[i]
            for k in range(first, i):
                x[k] -= factor[i, k] * x[i]
        subtract_multiples(flat, first * width, width, first, x)

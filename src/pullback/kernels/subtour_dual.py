"""The dual of projecting onto columns that are distributions and to few linear constraints.

With a multiplier λ_k for each constraint k, Σ_{i,j} u_k[i] μ[i, j] ≤ b_k over the columns j that belong to k, the
projection of s falls apart into columns,

    μ_j = sparsemax(s_j − Σ_{k∋j} λ_k u_k),

and the dual is a convex, once differentiable, piecewise quadratic function of λ with

    gradient   b_k − Σ_{j∈k} ⟨u_k, μ_j⟩     and Hessian     Σ_{j∈k∩l} Σ_{i∈A_j} ũ_k[i] ũ_l[i],

A_j the support of μ_j and ũ the indicator centered on A_j.  Semi-smooth Newton steps, cut short where a multiplier
would become negative, with a line search on the slope, which is increasing and piecewise linear.

Each column keeps a list of candidate heads: those that can enter its support as long as its penalties change by less
than its `slack`.  Values are relative to the column's largest, since sparsemax ignores a common shift.
"""

import numpy as np

from pullback.kernels._vector import fmax, kernel, summing

COLUMN = np.dtype(
    [
        ("count", np.int64),  # candidates
        ("sets", np.int64),  # constraints[j, :sets] are the constraints it belongs to
        ("slack", np.float64),
        ("spread", np.float64),  # how fast the present step uses up the slack
        ("threshold", np.float64),
        ("moves", np.int64),  # whether the present step changes its candidates by different amounts
    ],
    align=True,
)
CONSTRAINT = np.dtype(
    [
        ("bound", np.float64),
        ("multiplier", np.float64),
        ("gradient", np.float64),
        ("step", np.float64),
        ("half", np.float64),  # the forward substitution
        ("signed", np.int64),  # an equality: the multiplier may be negative
        ("free", np.int64),
    ],
    align=True,
)

MARGIN = 0.1


@summing
def _maximum(row, m):
    best = row[0]
    for c in range(1, m):
        best = fmax(row[c], best)
    return best


@summing
def _excess(row, m, t):
    """Σ max(x − t, 0) and the number of entries above t."""
    total = 0.0
    above = 0.0
    for c in range(m):
        total += fmax(row[c] - t, 0.0)
        above += 1.0 if row[c] > t else 0.0
    return total, above


@summing
def _lower(row, m, t):
    """Replace x by max(x − t, 0); returns the sum and the number of positive entries."""
    total = 0.0
    above = 0.0
    for c in range(m):
        x = fmax(row[c] - t, 0.0)
        row[c] = x
        total += x
        above += 1.0 if x > 0.0 else 0.0
    return total, above


@kernel
def _sparsemax(row, m, t):
    """Replace row[:m] by its sparsemax and return the threshold, starting from any guess t.

    Newton on a convex decreasing piecewise linear function: the first step lands at or below the root, later ones
    increase, so that entries only ever drop out and an unchanged number of them means the end.
    """
    total, above = _excess(row, m, t)
    if above == 0.0:
        t = _maximum(row, m) - 1.0
        total, above = _excess(row, m, t)
    shift = t + (total - 1.0) / above
    t = shift
    while True:
        total, left = _lower(row, m, shift)
        shift = (total - 1.0) / left
        if left == above or shift <= 0.0:  # a negative shift is round-off and would bring entries back
            return t
        above = left
        t += shift


@kernel
def refresh(j, n, margin, score, columns, constraints, member, belongs, heads, value, mass, row):
    """Column j at the present multipliers, from scratch: its candidates, their values and masses.

    Returns False when no head is allowed or a score is NaN or +∞.  O(n) for each constraint it belongs to.
    """
    row[: n + 1] = score[j, : n + 1]
    for p in range(columns[j].sets):
        k = belongs[j, p]
        multiplier = constraints[k].multiplier
        if multiplier != 0.0:
            for i in range(n + 1):
                row[i] -= multiplier * member[k, i]
    top = _maximum(row, n + 1)
    if not (top > -np.inf and top < np.inf):
        return False
    for i in range(n + 1):
        row[i] -= top
    t = -1.0
    before = np.inf
    while True:
        total, above = _excess(row, n + 1, t)
        t += (total - 1.0) / above
        if above < 16.0 or above > 0.7 * before:
            break
        before = above
    c = 0
    for i in range(n + 1):
        heads[j, c] = i
        value[j, c] = row[i]
        c += 1 if row[i] > t - margin else 0
    mass[j, :c] = value[j, :c]
    columns[j].count = c
    columns[j].slack = margin
    columns[j].threshold = _sparsemax(mass[j], c, t)
    return t == t


@kernel
def assemble(n, number, columns, constraints, member, belongs, heads, mass, weight, hessian, centered):
    """Gradient (with `weight` in the place of the masses) and Hessian (its lower half) from the supports, mass > 0."""
    for k in range(number):
        constraints[k].gradient = constraints[k].bound
        hessian[k, : k + 1] = 0.0
    support = np.empty(n + 1, np.int64)
    for j in range(1, n + 1):
        if columns[j].sets == 0:
            continue
        a = 0
        for c in range(columns[j].count):
            support[a] = c
            a += 1 if mass[j, c] > 0.0 else 0
        for p in range(columns[j].sets):
            k = belongs[j, p]
            inside = 0.0
            total = 0.0
            for q in range(a):
                u = member[k, heads[j, support[q]]]
                centered[p, q] = u
                total += u
                inside += u * weight[j, support[q]]
            constraints[k].gradient -= inside
            if a > 1:
                for q in range(a):
                    centered[p, q] -= total / a
                for o in range(p + 1):
                    hessian[k, belongs[j, o]] += _dot(centered[p], centered[o], a)


@summing
def _dot(x, y, m):
    total = 0.0
    for c in range(m):
        total += x[c] * y[c]
    return total


@kernel
def newton(number, constraints, hessian, factor):
    """The step −H⁻¹ gradient over the free constraints, 0 elsewhere, by Cholesky.

    A zero pivot becomes 1: a flat direction is still descended, and a constraint that depends on earlier ones keeps
    its multiplier if it agrees with them.  It is marked by free = 2.
    """
    for k in range(number):
        if not constraints[k].free:
            continue
        constraints[k].free = 1
        half = -constraints[k].gradient
        for l in range(k + 1):
            if not constraints[l].free:
                continue
            x = hessian[k, l]
            for m in range(l):
                if constraints[m].free:
                    x -= factor[k, m] * factor[l, m]
            if l < k:
                factor[k, l] = x / factor[l, l]
                half -= factor[k, l] * constraints[l].half
            elif x < 1e-9 * (1.0 + hessian[k, k]):
                constraints[k].free = 2
                factor[k, k] = 1.0
            else:
                factor[k, k] = np.sqrt(x)
        constraints[k].half = half / factor[k, k]
    for k in range(number - 1, -1, -1):
        constraints[k].step = 0.0
        if constraints[k].free:
            constraints[k].step = constraints[k].half / factor[k, k]
            for l in range(k):
                if constraints[l].free:
                    constraints[l].half -= factor[k, l] * constraints[k].step


@kernel
def tilt(j, columns, constraints, member, belongs, heads, slope):
    """How the values of column j change along the step, −Σ_k step_k u_k on its candidates."""
    count = columns[j].count
    slope[j, :count] = 0.0
    for p in range(columns[j].sets):
        k = belongs[j, p]
        step = constraints[k].step
        if step != 0.0:
            for c in range(count):
                slope[j, c] -= step * member[k, heads[j, c]]
    columns[j].moves = 0
    for c in range(1, count):
        if slope[j, c] != slope[j, 0]:
            columns[j].moves = 1


@kernel
def minimize(n, number, tolerance, score, columns, constraints, member, belongs, heads, value, slope, mass, work):
    """Minimize the dual over the multipliers; every |gradient| (violation, at λ = 0) ends below `tolerance`.

    Returns whether it did.
    """
    hessian, factor, centered, row = work
    for _ in range(500):
        assemble(n, number, columns, constraints, member, belongs, heads, mass, mass, hessian, centered)
        worst = _choose_free(number, tolerance, constraints)
        if worst <= tolerance:
            return True
        _direction(number, constraints, hessian, factor)
        if not _line_search(n, number, score, columns, constraints, member, belongs, heads, value, slope, mass, row):
            return worst <= 50.0 * tolerance
    return False


@kernel
def _choose_free(number, tolerance, constraints):
    """Free the constraints that are violated or have a multiplier; returns the largest residual."""
    worst = 0.0
    for k in range(number):
        constraints[k].free = 0
        residual = -constraints[k].gradient
        if constraints[k].signed or constraints[k].multiplier > 0.0:
            residual = abs(residual)
            constraints[k].free = 1
        elif residual > tolerance:
            constraints[k].free = 1
        worst = max(worst, residual)
    return worst


@kernel
def _direction(number, constraints, hessian, factor):
    """Newton's step; a multiplier at 0 that it would make negative is taken out and the step computed again."""
    while True:
        newton(number, constraints, hessian, factor)
        worst = -1
        blocked = 0
        free = 0
        for k in range(number):
            if constraints[k].free:
                free += 1
                if worst < 0 or constraints[k].gradient < constraints[worst].gradient:
                    worst = k
                if constraints[k].multiplier == 0.0 and constraints[k].step < 0.0 and not constraints[k].signed:
                    constraints[k].free = 0
                    blocked += 1
        if blocked == 0:
            return
        if blocked == free:
            constraints[worst].free = 1


@kernel
def _line_search(n, number, score, columns, constraints, member, belongs, heads, value, slope, mass, row):
    """Move along the step to where its slope has fallen to a fifth; False if it does not lead down."""
    limit = np.inf
    blocking = -1
    start = 0.0
    for k in range(number):
        start += constraints[k].step * constraints[k].gradient
        if constraints[k].step < 0.0 and not constraints[k].signed:
            t = -constraints[k].multiplier / constraints[k].step
            if t < limit:
                limit = t
                blocking = k
    if not start < 0.0:
        return False
    base = 0.0
    for k in range(number):
        base += constraints[k].step * constraints[k].bound
    for j in range(1, n + 1):
        columns[j].spread = 0.0
        for p in range(columns[j].sets):
            columns[j].spread += abs(constraints[belongs[j, p]].step)
        if columns[j].spread > 0.0:
            tilt(j, columns, constraints, member, belongs, heads, slope)
    t = min(1.0, limit)
    low, low_slope = 0.0, start
    high, high_slope = np.inf, 0.0
    for _ in range(100):
        now = base
        for j in range(1, n + 1):
            if columns[j].spread == 0.0:
                continue
            if t * columns[j].spread > columns[j].slack:
                margin = 2.0 * t * columns[j].spread + MARGIN
                refresh(j, n, margin, score, columns, constraints, member, belongs, heads, value, mass, row)
                tilt(j, columns, constraints, member, belongs, heads, slope)
            if columns[j].moves:
                count = columns[j].count
                for c in range(count):
                    mass[j, c] = value[j, c] + t * slope[j, c]
                columns[j].threshold = _sparsemax(mass[j], count, columns[j].threshold)
                now += _dot(mass[j], slope[j], count)
            else:
                now += slope[j, 0]
        if abs(now) <= 0.2 * abs(start) or (now <= 0.0 and t >= limit):
            break
        if now < 0.0 and high == np.inf:
            further = 4.0 * t
            if now > low_slope:
                further = min(further, t + 1.1 * (t - low) * now / (low_slope - now))
            low, low_slope = t, now
            t = min(max(further, 1.2 * t), limit)
            continue
        if now < 0.0:
            low, low_slope = t, now
        else:
            high, high_slope = t, now
        width = high - low
        if width <= 1e-15 * high:
            break
        t = low + width * low_slope / (low_slope - high_slope)
        t = min(max(t, low + 0.1 * width), high - 0.1 * width)
    for k in range(number):
        constraints[k].multiplier += t * constraints[k].step
        if constraints[k].multiplier < 0.0 and not constraints[k].signed:
            constraints[k].multiplier = 0.0
    if t >= limit:
        constraints[blocking].multiplier = 0.0
    for j in range(1, n + 1):
        if columns[j].spread > 0.0:
            columns[j].slack -= t * columns[j].spread
            if columns[j].moves:
                for c in range(columns[j].count):
                    value[j, c] += t * slope[j, c]
    return True

"""The dual of projecting onto mixtures of trees, over the multipliers of a laminar family of sets.

With a multiplier λ_S for each set of words S, the nearest point to s with Σ_{i,j∈S} μ[i, j] ≤ |S| − 1 for these sets and
distributions as its columns falls apart into columns,

    μ_j = sparsemax(s_j − penalty_j),     penalty_j[i] = Σ_{S∋i,j} λ_S,

and the dual is a convex, once differentiable, piecewise quadratic function of λ ≥ 0 with

    gradient   |S| − 1 − Σ_{i,j∈S} μ[i, j]     and Hessian     Σ_j Σ_{i∈A_j} ũ_S[i] ũ_T[i],

A_j the support of μ_j and ũ_S the indicator of S (0 if j ∉ S) centered on A_j.  As the family is laminar, the penalty
of an arc is a number of the one set it belongs to, and sums over the arcs in a set are sums over a subtree.

Semi-smooth Newton steps, cut short where a multiplier would become negative, with a line search on the slope, which
is increasing and piecewise linear.
"""

import numpy as np

from pullback.kernels.laminar import contains, meet
from pullback.kernels._vector import fmax, kernel, summing

ACCURACY = 0.1  # how far a line search goes: the part of the slope that may be left
MARGIN = 1.0  # the least slack of a new list of candidates, divided by the size of the support


@summing
def _maximum(row):
    best = row[0]
    for i in range(1, row.shape[0]):
        best = fmax(row[i], best)
    return best


@summing
def _excess(row, t):
    """Σ max(x − t, 0) and the number of entries above t."""
    total = 0.0
    above = 0.0
    for i in range(row.shape[0]):
        total += fmax(row[i] - t, 0.0)
        above += 1.0 if row[i] > t else 0.0
    return total, above


@kernel
def candidates(j, row, margin, words, sets, arcs):
    """List the arcs into word j that have mass or come within `margin` of it, given the values of all in `row`.

    Also sets their masses; `row` becomes relative to its largest.  False if there is no candidate.
    """
    top = _maximum(row)
    if not (top > -np.inf and top < np.inf):
        return False
    for i in range(row.shape[0]):
        row[i] -= top
    t = -1.0  # Michelot: a lower bound of the threshold that rises
    before = np.inf
    while True:
        total, above = _excess(row, t)
        t += (total - 1.0) / above
        if above < 16.0 or above > 0.7 * before:
            break
        before = above
    margin += MARGIN / above
    c = 0
    for i in range(row.shape[0]):
        if row[i] > t - margin:
            arcs[c].head = i
            arcs[c].set = sets[words[i].home].meet
            arcs[c].value = row[i]
            arcs[c].mass = row[i]
            c += 1
    words[j].count = c
    words[j].slack = margin
    words[j].threshold = _sparsemax(arcs, words[j].count, t)
    return c > 0


@kernel
def _sparsemax(arcs, count, t):
    """Replace the masses by their sparsemax and return the threshold, starting from any guess t.

    Newton on a convex decreasing piecewise linear function: the first step lands at or below the root, later ones
    increase, so that arcs only ever drop out and an unchanged number of them means the end.
    """
    total, above = 0.0, 0
    for c in range(count):
        if arcs[c].mass > t:
            total += arcs[c].mass - t
            above += 1
    if above == 0:
        t = arcs[0].mass
        for c in range(1, count):
            t = max(t, arcs[c].mass)
        total, above = 0.0, 1
    shift = t + (total - 1.0) / above
    t = shift
    while True:
        total, left = 0.0, 0
        for c in range(count):
            x = max(arcs[c].mass - shift, 0.0)
            arcs[c].mass = x
            total += x
            left += x > 0.0
        shift = (total - 1.0) / left
        if left == above or shift <= 0.0:  # a negative shift is round-off and would bring arcs back
            return t
        above = left
        t += shift


@kernel
def refresh(j, n, number, margin, score, words, sets, arcs, row):
    """The candidates of word j at the present multipliers.  O(n)."""
    meet(j, number, words, sets)
    for i in range(n + 1):
        row[i] = score[j, i] - sets[sets[words[i].home].meet].penalty
    candidates(j, row[: n + 1], margin, words, sets, arcs[j])


@kernel
def gradient(n, number, words, sets, arcs):
    """What each set receives from outside, less 1.

    Each word brings 1 to the sets around it, and an arc takes its mass from the sets that contain both its ends.
    Summed by words, so that small differences are not taken from large sums.
    """
    for k in range(number):
        sets[k].gradient = 0.0
    for j in range(1, n + 1):
        k = words[j].home
        total = 1.0
        for c in range(words[j].count):
            if arcs[j, c].set != k:
                sets[k].gradient += total
                k = arcs[j, c].set
                total = 0.0
            total -= arcs[j, c].mass
        sets[k].gradient += total
    for k in range(number - 1, 0, -1):
        sets[sets[k].parent].gradient += sets[k].gradient
        sets[k].gradient -= 1.0


@kernel
def curvature(n, number, words, sets, arcs, hessian):
    """The Hessian: first by the sets that arcs belong to, then summed over subtrees.  O(arcs + sets²)."""
    for k in range(number):
        sets[k].shared = 0
        hessian[k, :number] = 0.0
    for j in range(1, n + 1):
        support = 0
        different = 0
        for c in range(words[j].count):
            if arcs[j, c].mass > 0.0:
                k = arcs[j, c].set
                if sets[k].shared == 0:
                    sets[different].listed = k
                    different += 1
                sets[k].shared += 1
                support += 1
        for p in range(different if different > 1 else 0):
            k = sets[p].listed
            hessian[k, k] += sets[k].shared
            for q in range(different):
                l = sets[q].listed
                hessian[k, l] -= sets[k].shared * sets[l].shared / support
        for p in range(different):
            sets[sets[p].listed].shared = 0
    for k in range(number - 1, 1, -1):
        for l in range(1, number):
            hessian[sets[k].parent, l] += hessian[k, l]
    for k in range(number - 1, 1, -1):
        for l in range(1, number):
            hessian[l, sets[k].parent] += hessian[l, k]


@kernel
def newton(number, sets, hessian):
    """The step −H⁻¹ gradient over the free sets, 0 elsewhere, by Cholesky in the lower half of `hessian`.

    A zero pivot becomes 1: a flat direction is still descended, and a set that depends on others keeps its multiplier
    if it agrees with them.  Such sets are marked by free = 2.
    """
    for k in range(1, number):
        if not sets[k].free:
            continue
        half = -sets[k].gradient
        pivot = hessian[k, k]
        for l in range(1, k):
            if sets[l].free:
                x = hessian[l, k]
                for m in range(1, l):
                    if sets[m].free:
                        x -= hessian[k, m] * hessian[l, m]
                x /= sets[l].pivot
                hessian[k, l] = x
                half -= x * sets[l].half
                pivot -= x * x
        sets[k].free = 1
        if pivot < 1e-9 * (1.0 + hessian[k, k]):
            sets[k].free = 2
            pivot = 1.0
        sets[k].pivot = np.sqrt(pivot)
        sets[k].half = half / sets[k].pivot
    for k in range(number - 1, 0, -1):
        sets[k].step = 0.0
        if sets[k].free:
            sets[k].step = sets[k].half / sets[k].pivot
            for l in range(1, k):
                if sets[l].free:
                    sets[l].half -= hessian[k, l] * sets[k].step


@kernel
def penalize(number, sets):
    """Penalties and their tilts from the multipliers and their steps."""
    sets[0].penalty = sets[0].tilt = sets[0].least = sets[0].most = 0.0
    for k in range(1, number):
        parent = sets[k].parent
        sets[k].penalty = sets[parent].penalty + sets[k].multiplier
        sets[k].tilt = sets[parent].tilt + sets[k].step
        sets[k].least = min(sets[parent].least, sets[k].tilt)
        sets[k].most = max(sets[parent].most, sets[k].tilt)


@kernel
def minimize(n, number, steps, tolerance, score, words, sets, arcs, hessian, row):
    """Minimize the dual; returns the largest residual: |gradient| where λ > 0, the violation where λ = 0.

    Stops below `tolerance`, or after `steps` steps if the residual is below ¼.  ∞ means that it is stuck.
    """
    for step in range(500):
        gradient(n, number, words, sets, arcs)
        residual = _choose_free(number, tolerance, sets)
        if residual <= tolerance or (step >= steps and residual < 0.25):
            return residual
        curvature(n, number, words, sets, arcs, hessian)
        _direction(number, sets, hessian)
        if not _line_search(n, number, score, words, sets, arcs, row):
            return tolerance if residual <= 50.0 * tolerance else np.inf
    return np.inf


@kernel
def _choose_free(number, tolerance, sets):
    """Free the sets that are violated or have a multiplier; returns the largest residual."""
    largest = 0.0
    for k in range(1, number):
        residual = -sets[k].gradient
        if sets[k].equality or sets[k].multiplier > 0.0:
            residual = abs(residual)
            sets[k].free = 1
        else:
            sets[k].free = residual > tolerance
        largest = max(largest, residual)
    return largest


@kernel
def _direction(number, sets, hessian):
    """Newton's step; a multiplier at 0 that it would make negative is taken out and the step computed again."""
    while True:
        newton(number, sets, hessian)
        free = blocked = worst = 0
        for k in range(1, number):
            if sets[k].free:
                free += 1
                if worst == 0 or sets[k].gradient < sets[worst].gradient:
                    worst = k
                if sets[k].step < 0.0 and sets[k].multiplier == 0.0 and not sets[k].equality:
                    sets[k].free = 0
                    blocked += 1
        if blocked == 0:
            return
        if blocked == free:
            sets[worst].free = 1


@kernel
def _line_search(n, number, score, words, sets, arcs, row):
    """Move along the step to where its slope has almost vanished; False if it does not lead down.

    One-dimensional Newton steps inside a bracket.
    """
    first = 0.0
    limit = np.inf
    blocking = 0
    for k in range(1, number):
        first += sets[k].step * sets[k].gradient
        if sets[k].step < 0.0 and not sets[k].equality and -sets[k].multiplier > limit * sets[k].step:
            limit = -sets[k].multiplier / sets[k].step
            blocking = k
    if not first < 0.0:
        return False
    penalize(number, sets)
    for j in range(1, n + 1):
        home = words[j].home
        words[j].spread = sets[home].most - sets[home].least
        tilt(words[j], sets, arcs[j])
    low, high = 0.0, np.inf
    t = min(1.0, limit)
    for _ in range(100):
        slope, bend = _try(t, n, number, score, words, sets, arcs, row)
        if abs(slope) <= ACCURACY * -first or (slope < 0.0 and t == limit):
            break
        if slope < 0.0:
            low = t
        else:
            high = t
        if high < np.inf and high - low <= 1e-15 * high:
            break
        t = t - slope / bend if bend > 0.0 else np.inf
        furthest = min(4.0 * low, limit) if high == np.inf else high
        if not low < t < furthest:
            t = furthest if high == np.inf else 0.5 * (low + high)
    for k in range(1, number):
        sets[k].multiplier += t * sets[k].step
        if sets[k].multiplier < 0.0 and not sets[k].equality:
            sets[k].multiplier = 0.0
    if t == limit:
        sets[blocking].multiplier = 0.0
    for j in range(1, n + 1):
        words[j].slack -= t * words[j].spread
        for c in range(words[j].count if words[j].moves else 0):
            arcs[j, c].value += t * arcs[j, c].slope
    penalize(number, sets)
    return True


@kernel
def tilt(word, sets, arcs):
    """The slopes of a column's candidates, relative to an arc of its home; it moves unless they are all the same."""
    word.moves = 0
    for c in range(word.count):
        arcs[c].slope = sets[word.home].tilt - sets[arcs[c].set].tilt
        word.moves |= arcs[c].slope != arcs[0].slope


@kernel
def _try(t, n, number, score, words, sets, arcs, row):
    """The masses at t steps; returns the slope and the curvature of the dual there."""
    slope = 0.0
    bend = 0.0
    for k in range(1, number):
        slope -= sets[k].step
    for j in range(1, n + 1):
        if t * words[j].spread > words[j].slack:
            refresh(j, n, number, 2.0 * t * words[j].spread, score, words, sets, arcs, row)
            tilt(words[j], sets, arcs[j])
        if not words[j].moves:
            slope += arcs[j, 0].slope
            continue
        for c in range(words[j].count):
            arcs[j, c].mass = arcs[j, c].value + t * arcs[j, c].slope
        words[j].threshold = _sparsemax(arcs[j], words[j].count, words[j].threshold)
        support = 0
        total = 0.0
        squares = 0.0
        for c in range(words[j].count):
            if arcs[j, c].mass > 0.0:
                slope += arcs[j, c].mass * arcs[j, c].slope
                support += 1
                total += arcs[j, c].slope
                squares += arcs[j, c].slope * arcs[j, c].slope
        bend += squares - total * total / support
    return slope, bend


@kernel
def lift(n, number, place, score, words, sets, arcs, row):
    """Start a new set that receives nothing at the multiplier where an arc from outside has entered.

    Below that the dual falls with slope 1 and Newton's method is blind.  The arc into word j enters where the penalty
    reaches the distance from the threshold to the best arc from outside.
    """
    entry = np.inf
    for j in range(1, n + 1):
        if contains(place, j, words, sets):
            refresh(j, n, number, 0.0, score, words, sets, arcs, row)
            best = -np.inf
            for i in range(n + 1):
                if sets[words[i].home].meet < place:
                    best = max(best, row[i])
            words[j].spread = words[j].threshold - best
            entry = min(entry, words[j].spread)
    sets[place].multiplier = entry + 1.0
    sets[place].step = 0.0
    penalize(number, sets)
    for j in range(1, n + 1):
        if contains(place, j, words, sets):
            beyond = words[j].spread - sets[place].multiplier
            if beyond < words[j].slack:
                refresh(j, n, number, 0.0, score, words, sets, arcs, row)

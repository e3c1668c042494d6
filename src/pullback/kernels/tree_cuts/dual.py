"""The dual of projecting onto mixtures of trees, over the multipliers of a laminar family of sets.

With a multiplier λ_S for each set S, projecting s onto distributions over heads with Σ_{i,j∈S} μ[i, j] ≤ |S| − 1 falls
apart into columns,

    μ_j = sparsemax(s_j − penalty_j),     penalty_j[i] = Σ_{S∋i,j} λ_S,

and the dual is a convex, once differentiable, piecewise quadratic function of λ ≥ 0 with

    gradient   |S| − 1 − Σ_{i,j∈S} μ[i, j]     and Hessian     Σ_j Σ_{i∈A_j} ũ_S[i] ũ_T[i],

A_j the support of μ_j and ũ_S the indicator of S (0 if j ∉ S) centered on A_j.  As the family is laminar, the penalty
of an arc is a number of the one set it belongs to, and sums over the arcs in a set are sums over a subtree.

Semi-smooth Newton steps, cut short where a multiplier would become negative, with a line search on the slope, which
is increasing and piecewise linear.
"""

import numpy as np

from pullback.kernels.tools import inner
from pullback.kernels.tree_cuts.columns import MARGIN, advance, shorten, tilt
from pullback.kernels.tree_cuts.laminar import penalize

SOLVED = 1e-11  # the residual at which the dual counts as solved
ACCURACY = 0.1  # the part of its slope that a line search may leave
FAR = 1e10  # a penalty beside which masses are hardly told from rounding
LIMIT = 20_000  # steps; four will do unless scores are far apart
TRIALS = 20  # of which multipliers a step brings to 0; five will do
PERIOD = 8  # steps, of which one changes a single multiplier
DAMPING = 0.95  # a step exactly onto a kink would leave the next Hessian with one of its sides


@inner
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
            arc = arcs[j, c]
            if arc.set != k:
                sets[k].gradient += total
                k = arc.set
                total = 0.0
            total -= arc.mass
        sets[k].gradient += total
    for k in range(number - 1, 0, -1):
        one = sets[k]
        sets[one.parent].gradient += one.gradient
        one.gradient -= 1.0


@inner
def curvature(n, number, words, sets, arcs, hessian):
    """The Hessian: for S inside T, H[S, T] = Σ_j |A_j ∩ S| |A_j ∖ T| / |A_j|; 0 for disjoint sets.

    O(arcs + sets depth).  Row k of hessian belongs to set k, its columns to the sets around it by their level, k
    itself at the end.  Arcs into the same word belong to nested sets.  Each pair of them counts first where S is the
    inner set and T the one just inside the outer set; then sums are taken outwards, over T and over S.
    """
    counts = hessian[0]  # the row of no set: arcs by what they add to, those of no set first
    for q in range(number + 1):
        counts[q] = 0.0
    for k in range(1, number):
        sets[k].level = sets[sets[k].parent].level + 1 if k > 1 else 0
        sets[k].support = 0
        for q in range(sets[k].level + 1):
            hessian[k, q] = 0.0
    sets[0].support = 0
    for j in range(1, n + 1):
        support = 0
        different = 0
        for c in range(words[j].count):
            arc = arcs[j, c]
            if arc.mass > 0.0:
                if sets[arc.set].support == 0:
                    sets[different].listed = arc.set
                    different += 1
                sets[arc.set].support += 1
                support += 1
        if different > 1:
            for p in range(different):
                k = sets[p].listed
                counts[sets[k].level + 1 if k > 0 else 0] = sets[k].support
            for p in range(different):
                k = sets[p].listed
                if k > 0:
                    outside = np.int64(sets[k].level) + 1
                    _subtract(-np.float64(sets[k].support) / support, counts[:outside], hessian[k])
            for p in range(different):
                k = sets[p].listed
                counts[sets[k].level + 1 if k > 0 else 0] = 0.0
        for p in range(different):
            sets[sets[p].listed].support = 0
    for k in range(1, number):
        for q in range(sets[k].level):
            hessian[k, q + 1] += hessian[k, q]
    for k in range(number - 1, 1, -1):
        parent = sets[k].parent
        for q in range(sets[k].level):
            hessian[parent, q] += hessian[k, q]


@inner
def newton(number, sets, hessian):
    """The step −H⁻¹ gradient over the free sets; the others have steps already.  O(sets depth + sets reach²).

    Sets are eliminated from the inside.  As disjoint sets have nothing in common, that changes only rows of the sets
    around, up to its `reach`: the outermost set from which arcs lead to words inside it.  A zero pivot becomes 1: a
    flat direction is still descended, and a set that depends on others keeps its multiplier if it agrees with them.
    Such sets are marked as dependent.
    """
    for k in range(1, number):
        one = sets[k]
        row = _working_row(k, hessian)
        one.dependent = 0
        one.half = -one.gradient
        one.reach = one.level
        for q in range(one.level, -1, -1):
            row[q] = hessian[k, q]
            if hessian[k, q] != 0.0:
                one.reach = q
    for k in range(number - 1, 0, -1):
        one = sets[k]
        row = _working_row(k, hessian)
        if one.free:
            one.pivot = row[one.level]
            if one.pivot < 1e-9 * (1.0 + hessian[k, one.level]):
                one.dependent = 1
                one.pivot = 1.0
        around = one.parent
        while around > 0 and sets[around].level >= one.reach:
            level = sets[around].level
            if one.free:
                share = row[level] / one.pivot
                sets[around].half -= share * one.half
                sets[around].reach = min(sets[around].reach, one.reach)
                _subtract(share, row[one.reach : level + 1], _working_row(around, hessian)[one.reach :])
            else:
                sets[around].half -= row[level] * one.step
            around = sets[around].parent
    for k in range(1, number):
        one = sets[k]
        if one.free:
            row = _working_row(k, hessian)
            around = one.parent
            while around > 0 and sets[around].level >= one.reach:
                one.half -= row[sets[around].level] * sets[around].step
                around = sets[around].parent
            one.step = one.half / one.pivot


@inner
def _working_row(k, hessian):
    """Where `newton` works on row k: the rows fill less than half of their matrix, and their copies the other half."""
    last = len(hessian) - 1
    return hessian[last - k, last - k + 1 :]


@inner
def _subtract(share, row, other):
    """other −= share · row, as far as the row goes."""
    for q in range(len(row)):
        other[q] -= share * row[q]


@inner
def minimize(n, number, steps, score, family, hessian, row):
    """Minimize the dual; returns the largest residual: |gradient| where λ > 0, the violation where λ = 0.

    0 means solved to the precision that the penalties allow.  Stops after `steps` steps if the residual is below ¼.
    A Newton step that round-off keeps from leading down is replaced by one that changes the worst multiplier alone,
    which always does; so is every 8th step, since flat directions may hold each other up.  ∞ means that no end was
    found, or none before penalties are so large that rounding decides.
    """
    words, sets, arcs = family
    for step in range(LIMIT):
        gradient(n, number, words, sets, arcs)
        largest = largest_penalty(number, sets)
        if largest > FAR:
            return np.inf
        tolerance = SOLVED + 4e-15 * largest
        residual, worst = _choose_free(number, tolerance, sets)
        if residual <= tolerance:
            return 0.0
        if step >= steps and residual < 0.25:
            return residual
        curvature(n, number, words, sets, arcs, hessian)
        _direction(number, tolerance, sets, hessian)
        if step % PERIOD == PERIOD - 1 or not _slope(number, sets) < 0.0:
            for k in range(1, number):
                sets[k].step = -sets[k].gradient if k == worst else 0.0
        _line_search(n, number, score, words, sets, arcs, row)
    return np.inf


@inner
def _slope(number, sets):
    """The slope of the dual along the step."""
    slope = 0.0
    for k in range(1, number):
        slope += sets[k].step * sets[k].gradient
    return slope


@inner
def largest_penalty(number, sets):
    """The largest penalty, at least 1 as the masses: the unit of round-off."""
    largest = 1.0
    for k in range(1, number):
        largest = max(largest, abs(sets[k].penalty))
    return largest


@inner
def _choose_free(number, tolerance, sets):
    """Free the sets that are violated or have a multiplier; returns the largest residual and its set."""
    largest = 0.0
    worst = 1
    for k in range(1, number):
        one = sets[k]
        residual = -one.gradient
        if one.equality or one.multiplier > 0.0:
            residual = abs(residual)
            one.free = 1
        else:
            one.free = residual > tolerance
        if residual > largest:
            largest, worst = residual, k
    return largest, worst


@inner
def _direction(number, tolerance, sets, hessian):
    """The step to the minimum of the quadratic model over multipliers that are not negative.

    By a primal-dual active set, which ends after a few trials: multipliers that would become negative go to 0, and
    those that would go to 0 while their slope is negative are free again.  If it does not end, the line search stops
    where a multiplier is 0.  Reference: Hintermüller, Ito and Kunisch (2003).

    Where the model is flat its minimum tells nothing, and the line search has to go far.  There only multipliers that
    are 0 and would become negative are taken out.
    """
    for k in range(1, number):
        sets[k].step = 0.0
    newton(number, sets, hessian)
    is_flat = False
    for k in range(1, number):
        is_flat |= sets[k].dependent > 0
    for _ in range(TRIALS):
        changed = False
        if not is_flat:
            _slopes_of_model(number, sets, hessian)
        for k in range(1, number):
            one = sets[k]
            if one.free:
                least = -one.multiplier if not is_flat or one.multiplier == 0.0 else -np.inf
                if one.step < least and not one.equality:
                    one.free = 0
                    one.step = least
                    changed = True
            elif not is_flat and one.slope < -tolerance:
                one.free = 1
                changed = True
        if not changed:
            return
        newton(number, sets, hessian)


@inner
def _slopes_of_model(number, sets, hessian):
    """The gradient at the end of the step if the Hessian stayed as it is."""
    for k in range(1, number):
        sets[k].slope = sets[k].gradient + hessian[k, sets[k].level] * sets[k].step
    for k in range(1, number):
        around = sets[k].parent
        while around > 0:
            x = hessian[k, sets[around].level]
            sets[k].slope += x * sets[around].step
            sets[around].slope += x * sets[k].step
            around = sets[around].parent


@inner
def _line_search(n, number, score, words, sets, arcs, row):
    """Move along the step, which leads down, to where its slope has almost vanished.

    One-dimensional Newton steps inside a bracket.
    """
    first = _slope(number, sets)
    limit = np.inf
    blocking = 0
    for k in range(1, number):
        one = sets[k]
        if one.step < 0.0 and not one.equality and -one.multiplier > limit * one.step:
            limit = -one.multiplier / one.step
            blocking = k
    penalize(number, sets)
    for j in range(1, n + 1):
        home = sets[words[j].home]
        words[j].spread = home.most - home.least
        tilt(words[j], sets, arcs[j])
    low, high = 0.0, np.inf
    t = min(1.0, limit)
    for _ in range(100):
        slope, bend = advance(t, n, number, score, words, sets, arcs, row)
        small = abs(slope) <= ACCURACY * -first and (bend > 0.0 or t <= 1.0)  # a plateau far away tells nothing
        if small or (slope < 0.0 and t == limit):
            break
        if slope < 0.0:
            low = t
        else:
            high = t
        if high < np.inf and high - low <= 1e-15 * high:
            break
        t = t - DAMPING * slope / bend if bend > 0.0 else np.inf
        furthest = min(4.0 * low, limit) if high == np.inf else high
        if not low < t < furthest:
            t = furthest if high == np.inf else 0.5 * (low + high)
    for k in range(1, number):
        one = sets[k]
        one.multiplier += t * one.step
        if one.multiplier < 0.0 and not one.equality:
            one.multiplier = 0.0
    if t == limit:
        sets[blocking].multiplier = 0.0
    for j in range(1, n + 1):
        word = words[j]
        word.slack -= t * word.spread
        if word.moves:
            support = 0
            for c in range(word.count):
                arcs[j, c].value += t * arcs[j, c].slope
                support += arcs[j, c].mass > 0.0
            enough = MARGIN / support + 2.0 * t * word.spread  # the next step is likely to be shorter
            if word.slack > 2.0 * enough:
                shorten(word, arcs[j], enough)
    penalize(number, sets)

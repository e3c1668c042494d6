"""SparseMAP over dependency trees, projective or not: the point of their hull nearest to the scores, and its trees.

    min ½‖μ − s‖²   over   μ = Σ p_t t,  p ≥ 0,  Σ p = 1

by the active-set method, with Eisner's chart or contraction for the argmax of s − μ.  A tree is kept as its heads; the
inner product of two trees is the number of words with the same head.

Backward.  The Jacobian is the orthogonal projection onto the span of the face that s − μ exposes: the differences of
all trees optimal for s − μ.  The active trees alone may fall short of it, because the gap vanishes as soon as μ is in
their hull, whether or not they span the face.  So take a random direction r orthogonal to their differences and ask
for the best tree under s − μ + δ r, with δ so small that only ties are broken.  Since μ lies inside the face, a face
not yet spanned has trees on either side of r = const, so the answer is a new one; when none comes, it is spanned.

A derivative asks more of the forward pass than a point does: at a relative gap of 1e-6 the trees may still be those of
a neighboring face, and the Jacobian wrong by O(1).  The last digits are cheap for projective trees, 3 % more iterations
for a gap of 1e-12.  Others mix by the hundreds where scores are flat, and there the rounding is not much below 1e-12.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels import active_set
from pullback.kernels.projective_trees import inside_max, load, read_best
from pullback.kernels.tools import inner, kernel, summing, uniform
from pullback.kernels.trees.arborescence import arborescence, transpose
from pullback.kernels.trees.arborescence import workspace as contraction

# The active trees, trees[t, word], and the state of the active-set method.
_Active = namedtuple("_Active", ["trees", "factor", "weights", "kept", "trial"])

# What one instance needs besides: its scores, a mixture of trees, what is left of the scores; what the argmax needs,
# Eisner's chart and stack or what is contracted.
_Workspace = namedtuple("_Workspace", ["scores", "mixture", "rest", "chart", "stack", "contraction"])

_TIE = 1e-8  # trees whose score under s − μ is this close to the best belong to the face
_ROUNDING = 1e-15  # of a score, relative to the largest in any tree that was met


@inner
def _active(capacity, size):
    return _Active(
        np.empty((capacity, size), np.int32),
        np.empty((capacity + 2, capacity)),
        np.empty(capacity),
        np.empty(capacity, np.int64),
        np.empty(capacity),
    )


@inner
def _enlarged(active):
    capacity, size = active.trees.shape
    larger = _active(2 * capacity, size)
    for t in range(capacity):
        larger.weights[t] = active.weights[t]
        for m in range(size):
            larger.trees[t, m] = active.trees[t, m]
    for row in range(-2, capacity):
        for t in range(capacity):
            larger.factor[row, t] = active.factor[row, t]
    return larger


@inner
def _workspace(size):
    return _Workspace(
        np.empty((size, size)),
        np.empty((size, size)),
        np.empty((size, size)),
        np.empty((3, size, size)),
        np.empty((3 * size, 2), np.int64),
        contraction(size),
    )


@summing
def _common(a, b):
    """How many words have the same head in two trees."""
    total = 0
    for m in range(a.shape[0]):
        total += a[m] == b[m]
    return total


@inner
def _introduce(scores, n, trees, factor, count):
    """Writes the inner products of tree `count` with those before it and itself; its score, relative to the first's."""
    for t in range(count + 1):
        factor[count, t] = _common(trees[t, 1 : n + 1], trees[count, 1 : n + 1])
    value = factor[0, 0] * factor[-2, 0] if count > 0 else 0.0  # what the first was counted as
    for m in range(1, n + 1):
        if trees[count, m] != trees[0, m]:
            value += scores[trees[count, m], m] - scores[trees[0, m], m]
    return value


@inner
def _compacted(active, count):
    """Moves the trees that stayed to their new places; returns their number."""
    for t in range(count):
        if active.kept[t] != t:
            for m in range(active.trees.shape[1]):
                active.trees[t, m] = active.trees[active.kept[t], m]
    return count


@inner
def _mix(trees, weights, count, n, mixture):
    """mixture = Σ weights[t] · trees[t], as arcs."""
    for head in range(n + 1):
        for m in range(n + 1):
            mixture[head, m] = 0.0
    for t in range(count):
        for m in range(1, n + 1):
            mixture[trees[t, m], m] += weights[t]


@inner
def _best_of_the_rest(work, n, projective, single_root, heads):
    """The best tree for scores − mixture, and whether there is one."""
    for head in range(n + 1):
        for m in range(n + 1):
            work.rest[head, m] = work.scores[head, m] - work.mixture[head, m]
    if not projective:
        transpose(work.rest, n, work.contraction.enter)
        return n == 0 or arborescence(work.contraction, n, single_root, heads)
    if inside_max(work.rest, n, single_root, work.chart) == -np.inf:
        return False
    read_best(n, work.chart, work.stack, work.stack, heads)
    return True


@inner
def _advantage(rest, n, tree, other):
    """How much more `tree` scores than `other`."""
    total = 0.0
    for m in range(1, n + 1):
        if tree[m] != other[m]:
            total += rest[tree[m], m] - rest[other[m], m]
    return total


@inner
def _load(scores, n, out):
    """Copies the scores of the words, each relative to the best arc into its word; False if one is NaN or +∞.

    As every tree has one arc into each word, that changes no comparison, and the digits of a large score are not lost.
    """
    if not load(scores, n, out):
        return False
    for m in range(1, n + 1):
        out[m, m] = best = -np.inf
        for head in range(n + 1):
            best = max(best, out[head, m])
        if best > -np.inf:
            for head in range(n + 1):
                out[head, m] -= best
    return True


@inner
def _magnitude(scores, n, tree, unit):
    """The largest absolute score in a tree, at least `unit`: the unit of rounding.

    Arcs that no tree wants do not count, however low their scores are.
    """
    for m in range(1, n + 1):
        unit = max(unit, abs(scores[tree[m], m]))
    return unit


@inner
def _allowed(scores, n, tree):
    """Whether there is a tree, marked by heads of −1 if not, and all its arcs have scores."""
    for m in range(n, -1, -1):
        if tree[m] < 0 or (m > 0 and scores[tree[m], m] == -np.inf):
            return False
    return True


@inner
def _begin(work, n, heads, active):
    """Loads the given trees, except those forbidden or dependent, and mixes them: (active trees, count)."""
    count = np.int64(0)  # not a literal, for which Numba would compile the callees a second time
    for given in range(len(heads)):
        if _allowed(work.scores, n, heads[given]):
            if count == len(active.weights):
                active = _enlarged(active)
            for m in range(n + 1):
                active.trees[count, m] = heads[given, m]
            value = _introduce(work.scores, n, active.trees, active.factor, count)
            count += active_set.append(active.factor, count, value)
    for t in range(count):
        active.weights[t], active.kept[t] = 1.0 / count, t
    if count > 0:
        count = _compacted(active, active_set.settle(active.factor, active.weights, active.kept, active.trial, count))
    return active, count


@inner
def _project(work, n, projective, single_root, tolerance, max_iterations, active, count):
    """(active trees, count, gap, iterations) of one instance from its first active trees; count 0 if it has no tree.

    All active trees score the same under s − μ, hence the gap is what the best tree scores above any of them.
    """
    gap = np.inf
    unit = 1.0
    for iteration in range(max_iterations + 1):
        if count == len(active.weights):
            active = _enlarged(active)
        trees = active.trees
        _mix(trees, active.weights, count, n, work.mixture)
        if not _best_of_the_rest(work, n, projective, single_root, trees[count]):
            return active, 0, gap, iteration
        unit = _magnitude(work.scores, n, trees[count], unit)
        if count > 0:
            gap = _advantage(work.rest, n, trees[count], trees[0])
            if gap <= tolerance + _ROUNDING * n * unit or iteration == max_iterations:
                break
        value = _introduce(work.scores, n, trees, active.factor, count)
        count, useful = active_set.add(
            active.factor,
            active.weights,
            active.kept,
            active.trial,
            count,
            value,
            0.5 * (tolerance + _ROUNDING * n * unit),
        )
        _compacted(active, count)
        if not useful:
            break
    return active, count, gap, iteration


@kernel
def sparsemap(
    scores,
    lengths,
    projective,
    single_root,
    start,
    tolerance,
    max_iterations,
    point,
    heads,
    probabilities,
    count,
    gap,
    iterations,
    lo,
    hi,
):
    """The nearest point of the hull, the trees it mixes, and how the search ended.

    Instances whose length is below 0 are passed over.  start (batch, k, N): heads of trees to begin with, passed over
    where they are −1; k may be 0.  point (batch, N, N); heads (batch, capacity, N) and probabilities (batch, capacity),
    zero from count[b] on.  There are never more than
    n² − n + 1 trees; those beyond the capacity are counted but not written.  Stops when the gap, which is
    ⟨s − μ, argmax(s − μ) − μ⟩, is at most `tolerance` and what rounding adds to it.  An iteration costs O(count² +
    count · n) and an argmax, O(n²) or projective O(n³).
    """
    size = scores.shape[1]
    work = _workspace(size)
    active = _active(np.int64(64), size)
    for b in range(lo, hi):
        n = lengths[b]
        if n < 0:
            continue
        point[b], heads[b], probabilities[b] = 0.0, 0, 0.0
        if not _load(scores[b], n, work.scores):
            return b
        active, number = _begin(work, n, start[b], active)
        active, count[b], gap[b], iterations[b] = _project(
            work, n, projective, single_root, tolerance, max_iterations, active, number
        )
        if count[b] == 0:
            return b
        _mix(active.trees, active.weights, count[b], n, work.mixture)
        for head in range(n + 1):
            for m in range(1, n + 1):
                point[b, head, m] = work.mixture[head, m]
        for t in range(min(count[b], heads.shape[1])):
            probabilities[b, t] = active.weights[t]
            for m in range(1, n + 1):
                heads[b, t, m] = active.trees[t, m]
    return -1


@inner
def _tangent(direction, active, count, n, mixture):
    """mixture = the projection of `direction` onto the span of the differences of the trees."""
    for t in range(count):
        active.trial[t] = 0.0
        for m in range(1, n + 1):
            active.trial[t] += direction[active.trees[t, m], m]
    active_set.tangent(active.factor, count, active.trial)
    _mix(active.trees, active.trial, count, n, mixture)


@inner
def _expose(work, n, heads, active):
    """Loads the trees and takes the point they determine from the scores: (active trees, count)."""
    active, count = _begin(work, n, heads, active)
    _mix(active.trees, active.weights, count, n, work.mixture)
    for head in range(n + 1):
        for m in range(n + 1):
            work.scores[head, m] -= work.mixture[head, m]
    return active, count


@inner
def _arcs(mixture, n):
    total = 0
    for head in range(n + 1):
        for m in range(1, n + 1):
            total += mixture[head, m] > 0.0
    return total


@inner
def _span(work, n, projective, single_root, tie, active, count):
    """Adds trees until they span the face on which the scores, now s − μ, are largest: (active trees, count)."""
    if count - 1 == _arcs(work.mixture, n) - n:  # a face has no more dimensions than it has arcs to choose from
        return active, count
    direction = np.empty((n + 1, n + 1))
    state = np.zeros(1, np.uint64)
    while True:
        if count == len(active.weights):
            active = _enlarged(active)
        for head in range(n + 1):
            for m in range(1, n + 1):
                direction[head, m] = 2.0 * uniform(state) - 1.0
        _tangent(direction, active, count, n, work.mixture)
        largest = 1.0
        for head in range(n + 1):
            for m in range(1, n + 1):
                direction[head, m] -= work.mixture[head, m]
                largest = max(largest, abs(direction[head, m]))
        for head in range(n + 1):
            for m in range(1, n + 1):
                work.mixture[head, m] = -tie / (2 * n * largest) * direction[head, m]
        _best_of_the_rest(work, n, projective, single_root, active.trees[count])
        if _advantage(direction, n, active.trees[count], active.trees[0]) < 1e-6 * largest:
            return active, count
        _introduce(work.scores, n, active.trees, active.factor, count)
        if not active_set.append(active.factor, count, 0.0):
            return active, count
        count += 1


@kernel
def sparsemap_backward(scores, lengths, projective, single_root, heads, count, gradient, product, lo, hi):
    """The Jacobian of `sparsemap`, which is symmetric, times `gradient`: its projection onto the span of the face.

    heads and count are those `sparsemap` wrote.  Costs O(count³), and an argmax for each tree that is missing plus one.
    Returns the first instance whose trees did not all fit into heads, or −1.
    """
    size = scores.shape[1]
    work = _workspace(size)
    active = _active(np.int64(64), size)
    for b in range(lo, hi):
        n = lengths[b]
        if n < 0:
            continue
        product[b] = 0.0
        if count[b] > heads.shape[1]:
            return b
        _load(scores[b], n, work.scores)
        unit = 1.0
        for t in range(count[b]):
            unit = _magnitude(work.scores, n, heads[b, t], unit)
        active, trees = _expose(work, n, heads[b, : count[b]], active)
        active, trees = _span(work, n, projective, single_root, _TIE + 10.0 * _ROUNDING * n * unit, active, trees)
        _tangent(gradient[b], active, trees, n, work.mixture)
        for head in range(n + 1):
            for m in range(1, n + 1):
                product[b, head, m] = work.mixture[head, m]
    return -1

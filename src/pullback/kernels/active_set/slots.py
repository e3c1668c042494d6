"""SparseMAP over structures that choose a part for every slot: the nearest point of their hull, and its vertices.

    min ½‖μ − s‖²   over   μ = Σ p_t z_t,  p ≥ 0,  Σ p = 1

by the active-set method.  A tree chooses a head for every word, a chain a pair of tags for every position.  A vertex is
kept as its parts, one index into the flattened scores per slot, −1 for a slot that stays empty, so the inner product of
two vertices is the number of slots where they have the same part.  `mixture_over` makes the kernels of a structure from
its argmax.  From one round to the next only the parts of active vertices change, hence no step but the argmax looks at
all the parts.

Backward.  The Jacobian is the orthogonal projection onto the span of the face that s − μ exposes: the differences of
all vertices optimal for s − μ.  The active ones alone may fall short of it, because the gap vanishes as soon as μ is in
their hull, whether or not they span the face.  So take a random direction r orthogonal to their differences and ask
for the best vertex under s − μ + δ r, with δ so small that only ties are broken.  Since μ lies inside the face, a face
not yet spanned has vertices on either side of r = const, so the answer is a new one; when none comes, it is spanned.

A derivative asks more of the forward pass than a point does: at a relative gap of 1e-6 the vertices may still be those
of a neighboring face, and the Jacobian wrong by O(1).  The last digits are cheap for projective trees, 3 % more
iterations for a gap of 1e-12.  Where hundreds of vertices mix, the rounding is not much below 1e-12.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.active_set import core
from pullback.kernels.tools import inner, kernel, semirings, summing, uniform

# The active vertices, vertices[t, slot], their scores beside those of their parts, and the state of the active set.
_Active = namedtuple("_Active", ["vertices", "worths", "factor", "weights", "kept", "trial"])

# Numbers for each part: the scores, a mixture of vertices, what is left of the scores, a direction.  `used` lists the
# parts in the mixture, then −1.
_Parts = namedtuple("_Parts", ["scores", "mixture", "rest", "direction", "used"])

_TIE = 1e-8  # vertices whose score under s − μ is this close to the best belong to the face
_NEARLY = 1e-9  # a gap that rounding may leave
_ENDLESS = 10**9
_ROUNDING = 1e-15  # of a score, relative to the largest in any vertex that was met


@inner
def _actives(capacity, slots):
    return _Active(
        np.empty((capacity, slots), np.int32),
        np.empty(capacity),
        np.empty((capacity + 2, capacity)),
        np.empty(capacity),
        np.empty(capacity, np.int64),
        np.empty(capacity),
    )


@inner
def _enlarged(active):
    """The same with twice the room, copied in loops: to compile an assignment between arrays takes Numba seconds."""
    capacity, slots = active.vertices.shape
    larger = _actives(2 * capacity, slots)
    for t in range(capacity):
        larger.worths[t], larger.weights[t] = active.worths[t], active.weights[t]
        for i in range(slots):
            larger.vertices[t, i] = active.vertices[t, i]
        for k in range(capacity):
            larger.factor[t, k] = active.factor[t, k]
        larger.factor[-2, t], larger.factor[-1, t] = active.factor[-2, t], active.factor[-1, t]
    return larger


@inner
def _numbers(scores):
    """Room for the parts of one instance, all in one row, with nothing in the mixture."""
    count = 1
    for extent in scores.shape[1:]:
        count *= extent
    used = np.empty(count + 1, np.int32)
    used[0] = -1
    return _Parts(np.empty(count), np.zeros(count), np.empty(count), np.empty(count), used)


@inner
def _begin_rest(parts):
    """rest = scores, as it is while nothing is in the mixture."""
    for part in range(len(parts.rest)):
        parts.rest[part] = parts.scores[part]


@summing
def _common(a, b):
    """How many slots have the same part in two vertices."""
    total = 0
    for i in range(a.shape[0]):
        total += (a[i] == b[i]) & (a[i] >= 0)
    return total


@inner
def _at(numbers, part):
    return numbers[part] if part >= 0 else 0.0


@inner
def _advantage(numbers, vertex, other):
    """Σ numbers over the parts of `vertex`, less that of `other`."""
    total = 0.0
    for i in range(vertex.shape[0]):
        if vertex[i] != other[i]:
            total += _at(numbers, vertex[i]) - _at(numbers, other[i])
    return total


@inner
def _introduce(scores, slots, active, count):
    """Writes the inner products of vertex `count` with those before it and itself; returns its score.

    The score is relative to the first's, which keeps digits.
    """
    vertices, factor = active.vertices, active.factor
    for t in range(count + 1):
        factor[count, t] = _common(vertices[t, :slots], vertices[count, :slots])
    if count == 0:
        return 0.0
    value = factor[0, 0] * factor[-2, 0]  # what the first was counted as
    value += _advantage(scores, vertices[count, :slots], vertices[0, :slots])
    return value + (active.worths[count] - active.worths[0])


@inner
def _compacted(active, slots, count):
    """Moves the vertices that stayed to their new places; returns their number."""
    for t in range(count):
        if active.kept[t] != t:
            active.worths[t] = active.worths[active.kept[t]]
            for i in range(slots):
                active.vertices[t, i] = active.vertices[active.kept[t], i]
    return count


@inner
def _mix(parts, slots, active, count):
    """mixture = Σ weights[t] · vertices[t] and rest = scores − mixture; returns how many parts are in the mixture.

    Touches only the parts in the last mixture and in the new one.
    """
    scores, mixture, rest, used = parts.scores, parts.mixture, parts.rest, parts.used
    k = 0
    while used[k] >= 0:
        mixture[used[k]] = 0.0
        rest[used[k]] = scores[used[k]]
        k += 1
    k = 0
    for t in range(count):
        for i in range(slots):
            part = active.vertices[t, i]
            if part >= 0:
                if mixture[part] == 0.0:  # weights are positive
                    used[k] = part
                    k += 1
                mixture[part] += active.weights[t]
    used[k] = -1
    for j in range(k):
        rest[used[j]] = scores[used[j]] - mixture[used[j]]
    return k


@inner
def _write_mixture(parts, used, point):
    """Writes the mixture, whose first `used` parts are listed, and zeros elsewhere."""
    flat = point.reshape(-1)
    for part in range(len(flat)):
        flat[part] = 0.0
    for k in range(used):
        flat[parts.used[k]] = parts.mixture[parts.used[k]]


@inner
def _is_checkpoint(iteration):
    """Whether this is iteration 4, 8, 16, …"""
    return iteration >= 4 and iteration & (iteration - 1) == 0


@inner
def _magnitude(scores, vertex, unit):
    """The largest absolute score in a vertex, at least `unit`: the unit of rounding.

    Parts that no vertex wants do not count, however low their scores are.
    """
    for i in range(vertex.shape[0]):
        unit = max(unit, abs(_at(scores, vertex[i])))
    return unit


@inner
def _allowed(scores, vertex, may_be_empty):
    """Whether all parts of a vertex have scores, and it has parts at all."""
    empty = True
    for i in range(vertex.shape[0]):
        empty &= vertex[i] < 0
        if _at(scores, vertex[i]) == -np.inf:
            return False
    return may_be_empty or not empty


@inner
def _tangent(direction, slots, active, count):
    """trial = the coefficients of the projection of `direction` onto the span of the differences of the vertices."""
    for t in range(count):
        active.trial[t] = 0.0
        for i in range(slots):
            active.trial[t] += _at(direction, active.vertices[t, i])
    core.tangent(active.factor, count, active.trial)


@inner
def _subtract(slots, active, count, direction):
    """direction −= Σ trial[t] · vertices[t]."""
    for t in range(count):
        for i in range(slots):
            if active.vertices[t, i] >= 0:
                direction[active.vertices[t, i]] -= active.trial[t]


@inner
def _choices(active, slots, count, used):
    """The dimensions of a face where every slot may choose any of its parts in the mixture, whatever others choose."""
    for i in range(slots):
        filled = True
        for t in range(count):
            filled &= active.vertices[t, i] >= 0
        used -= filled
    return used


@inner
def _leave_span(parts, slots, active, count, state):
    """Writes a random direction orthogonal to the span of the vertices; returns its largest number, at least 1."""
    direction = parts.direction
    for part in range(direction.shape[0]):
        direction[part] = 2.0 * uniform(state) - 1.0 if parts.scores[part] > -np.inf else 0.0
    _tangent(direction, slots, active, count)
    _subtract(slots, active, count, direction)
    largest = 1.0
    for part in range(direction.shape[0]):
        largest = max(largest, abs(direction[part]))
    return largest


@inner
def nothing(own, n, vertex):
    """The worth of a vertex that has no scores but those of its parts."""
    return 0.0


def mixture_over(workspace, load, best, worth=nothing):
    """The kernels of a structure, from its argmax: `mixture`, its backward, and `attempt`.

    workspace(scores, options)                    what it needs for itself, `own` below; once per call
    load(scores, b, n, options, own, out)         copies the scores of an instance of length n, shaped like scores[b]:
                                                  the number of slots, or −1 if a score is NaN or +∞.  Where every
                                                  vertex fills a slot, scores relative to the best part of the slot
                                                  change no comparison, and the digits of a large score are not lost
    best(rest, n, options, own, vertex)           writes the parts of the best vertex; False if there is none
    worth(own, n, vertex)                         the score of a vertex beside those of its parts

    `options` is a tuple of what the structure asks for besides scores and lengths.  Numbers of parts that do not exist
    may be anything in `rest`.
    """
    name = best.__name__

    def begin(parts, own, n, slots, given, may_be_empty, active):
        """Loads the given vertices, except those forbidden or dependent, and mixes them: (active vertices, count)."""
        count = np.int64(0)  # not a literal, for which Numba would compile the callees a second time
        for k in range(len(given)):
            if _allowed(parts.scores, given[k, :slots], may_be_empty):
                if count == len(active.weights):
                    active = _enlarged(active)
                for i in range(slots):
                    active.vertices[count, i] = given[k, i]
                active.worths[count] = worth(own, n, active.vertices[count])
                if active.worths[count] > -np.inf:
                    value = _introduce(parts.scores, slots, active, count)
                    count += core.append(active.factor, count, value)
        for t in range(count):
            active.weights[t], active.kept[t] = 1.0 / count, t
        if count > 0:
            count = core.settle(active.factor, active.weights, active.kept, active.trial, count)
            count = _compacted(active, slots, count)
        return active, count

    begin = semirings.compiled(begin, f"begin_{name}")

    def project(parts, rest, own, n, slots, options, tolerance, max_iterations, patience, active, count):
        """(active vertices, count, gap, iterations) of one instance from its first active vertices; count 0 if none.

        All active vertices score the same under s − μ, hence the gap is what the best scores above any of them.  Gives
        up, and says so by a gap of ∞, where `attempt` would leave the instance.
        """
        gap = first_gap = np.inf
        unit = 1.0
        for iteration in range(max_iterations + 1):
            if count == len(active.weights):
                active = _enlarged(active)
            _mix(parts, slots, active, count)
            fresh, first = active.vertices[count, :slots], active.vertices[0, :slots]
            if not best(rest, n, options, own, fresh):
                return active, 0, gap, iteration
            active.worths[count] = worth(own, n, fresh)
            unit = max(_magnitude(parts.scores, fresh, unit), abs(active.worths[count]))
            rounding = _ROUNDING * slots * unit
            if count > 0:
                gap = _advantage(parts.rest, fresh, first) + (active.worths[count] - active.worths[0])
                if gap <= tolerance + rounding or iteration == max_iterations:
                    break
                if first_gap == np.inf:
                    first_gap = gap
                if _is_checkpoint(iteration) and gap * iteration**2 > patience * first_gap:
                    return active, count, np.inf, iteration
            value = _introduce(parts.scores, slots, active, count)
            slack = 0.5 * (tolerance + rounding)
            count, useful = core.add(active.factor, active.weights, active.kept, active.trial, count, value, slack)
            _compacted(active, slots, count)
            if not useful:
                break
        return active, count, gap, iteration

    project = semirings.compiled(project, f"project_{name}")

    def mixture(
        scores, lengths, options, start, tolerance, max_iterations,
        point, vertices, probabilities, size, gap, iterations, lo, hi,
    ):  # fmt: skip
        """The nearest point of the hull, the vertices it mixes, and how the search ended.

        Instances whose length is below 0 are left out.  start (batch, k, slots): vertices to begin with; rows of −1
        are ignored, k may be 0.  point (batch, …) like scores.  vertices (batch, capacity, slots), int32, and
        probabilities (batch, capacity) are written for the size[b] vertices that mix; those beyond the capacity are
        counted but not written.  Stops when the gap, which is ⟨s − μ, argmax(s − μ) − μ⟩, is at most `tolerance` and
        what rounding adds to it.  An iteration costs O(size² + size · slots) and an argmax.
        Returns the first instance without a vertex or with a score of NaN or +∞, or −1.
        """
        parts, own = _numbers(scores), workspace(scores, options)
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        active = _actives(np.int64(64), vertices.shape[2])
        for b in range(lo, hi):
            n = lengths[b]
            if n < 0:
                continue
            slots = load(scores, b, n, options, own, shaped)
            if slots < 0:
                return b
            _begin_rest(parts)
            active, count = begin(parts, own, n, slots, start[b], n == 0, active)
            active, size[b], gap[b], iterations[b] = project(
                parts, rest, own, n, slots, options, tolerance, max_iterations, np.inf, active, count
            )
            if size[b] == 0:
                return b
            _write_mixture(parts, _mix(parts, slots, active, size[b]), point[b])
            for t in range(min(size[b], vertices.shape[1])):
                probabilities[b, t] = active.weights[t]
                for i in range(vertices.shape[2]):
                    vertices[b, t, i] = active.vertices[t, i] if i < slots else -1
        return -1

    def attempt(scores, lengths, options, tolerance, patience, point, left, lo, hi):
        """The nearest point of the hull for the instances that mix few vertices; `left` (batch,) is 0 for them.

        The gap tells early how many vertices will mix: after r rounds it is about 1 / r² of the first one where they
        are some dozens, more where they are hundreds.  An instance is left if after 4, 8, 16, … rounds its gap is above
        patience / r² of the first, or if rounding ends the search before the gap has vanished.  Then `left` is the
        number of rounds, and the point is the nearest mixture of the vertices found so far.  Returns the first instance
        without a vertex or with a score of NaN or +∞, or −1.
        """
        parts, own = _numbers(scores), workspace(scores, options)
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        active = _actives(np.int64(64), scores.shape[1])
        for b in range(lo, hi):
            n = lengths[b]
            slots = load(scores, b, n, options, own, shaped)
            if slots < 0:
                return b
            _begin_rest(parts)
            active, count, gap, rounds = project(
                parts, rest, own, n, slots, options, tolerance, _ENDLESS, patience, active, np.int64(0)
            )
            if count == 0:
                return b
            left[b] = rounds if gap > _NEARLY else 0
            _write_mixture(parts, _mix(parts, slots, active, count), point[b])
        return -1

    def span(parts, rest, own, n, slots, options, tie, active, count):
        """Adds vertices until they span the face on which s − μ is largest: (active vertices, count)."""
        used = _mix(parts, slots, active, count)
        if count - 1 == _choices(active, slots, count, used):  # no face has more dimensions
            return active, count
        for k in range(used):
            parts.scores[parts.used[k]] = parts.rest[parts.used[k]]
        state = np.zeros(1, np.uint64)
        while True:
            if count == len(active.weights):
                active = _enlarged(active)
            largest = _leave_span(parts, slots, active, count, state)
            step = tie / (2 * slots * largest)
            for part in range(len(parts.rest)):
                parts.rest[part] = parts.scores[part] + step * parts.direction[part]
            fresh, first = active.vertices[count, :slots], active.vertices[0, :slots]
            best(rest, n, options, own, fresh)
            if _advantage(parts.direction, fresh, first) < 1e-6 * largest:
                return active, count
            active.worths[count] = worth(own, n, fresh)
            _introduce(parts.scores, slots, active, count)
            if not core.append(active.factor, count, 0.0):
                return active, count
            count += 1

    span = semirings.compiled(span, f"span_{name}")

    def mixture_backward(scores, lengths, options, vertices, size, gradient, product, lo, hi):
        """The Jacobian of `mixture`, which is symmetric, times `gradient`: its projection onto the span of the face.

        vertices and size are those `mixture` wrote.  Costs O(size³), and an argmax for each vertex that is missing plus
        one.  Returns the first instance that has no vertices, or whose vertices did not all fit, or −1.
        """
        parts, own = _numbers(scores), workspace(scores, options)
        shaped, rest = parts.scores.reshape(scores.shape[1:]), parts.rest.reshape(scores.shape[1:])
        active = _actives(np.int64(64), vertices.shape[2])
        for b in range(lo, hi):
            n = lengths[b]
            if n < 0:
                continue
            if size[b] <= 0 or size[b] > vertices.shape[1]:
                return b
            parts.scores[:] = -np.inf  # so that padding takes no part in the choice of a direction
            slots = load(scores, b, n, options, own, shaped)
            if slots < 0:
                return b
            _begin_rest(parts)
            given, unit = vertices[b, : size[b]], 1.0
            for t in range(size[b]):
                unit = max(_magnitude(parts.scores, given[t, :slots], unit), abs(worth(own, n, given[t])))
            active, count = begin(parts, own, n, slots, given, True, active)
            tie = _TIE + 10.0 * _ROUNDING * slots * unit
            active, count = span(parts, rest, own, n, slots, options, tie, active, count)
            _tangent(gradient[b].reshape(-1), slots, active, count)
            parts.direction[:] = 0.0
            _subtract(slots, active, count, parts.direction)
            flat = product[b].reshape(-1)
            for part in range(len(flat)):
                flat[part] = -parts.direction[part]
        return -1

    return (
        semirings.compiled(mixture, f"mixture_{name}"),
        semirings.compiled(mixture_backward, f"mixture_backward_{name}"),
        semirings.compiled(attempt, f"attempt_{name}"),
    )


@kernel
def write_parts(parts, size, vertices, lo, hi):
    """The parts (batch, k, slots) of size[b] vertices as zeros and ones (batch, k, number of parts); zero beyond."""
    for b in range(lo, hi):
        vertices[b] = 0
        for t in range(min(size[b], parts.shape[1])):
            for i in range(parts.shape[2]):
                if parts[b, t, i] >= 0:
                    vertices[b, t, parts[b, t, i]] = 1
    return -1

"""Vertices that choose a part for every slot, and their mixtures: what the active set keeps of one instance.

A tree chooses a head for every word, a chain a pair of tags for every position.  A vertex is kept as its parts, one
index into the flattened scores per slot, −1 for a slot that stays empty, so the inner product of two vertices is the
number of slots where they have the same part.  From one round to the next only the parts of active vertices change,
hence no step but the argmax looks at all the parts.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner, summing

ROUNDING = 1e-15  # of a score, relative to the largest in any vertex that was met

# The active vertices, vertices[t, slot], their scores beside those of their parts, and the state of the active set.
Active = namedtuple("Active", ["vertices", "worths", "factor", "weights", "kept", "trial"])

# Numbers for each part: the scores, a mixture of vertices, what is left of the scores, a direction, and whether it is
# in the mixture.  `used` lists the parts that are, then −1.
Parts = namedtuple("Parts", ["scores", "mixture", "rest", "direction", "is_used", "used"])


@inner
def actives(capacity, slots):
    return Active(
        np.empty((capacity, slots), np.int32),
        np.empty(capacity),
        np.empty((capacity + 2, capacity)),
        np.empty(capacity),
        np.empty(capacity, np.int64),
        np.empty(capacity),
    )


@inner
def enlarged(active):
    """The same with twice the room, copied in loops: to compile an assignment between arrays takes Numba seconds."""
    capacity, slots = active.vertices.shape
    larger = actives(2 * capacity, slots)
    for t in range(capacity):
        larger.worths[t], larger.weights[t] = active.worths[t], active.weights[t]
        for i in range(slots):
            larger.vertices[t, i] = active.vertices[t, i]
        for k in range(capacity):
            larger.factor[t, k] = active.factor[t, k]
        larger.factor[-2, t], larger.factor[-1, t] = active.factor[-2, t], active.factor[-1, t]
    return larger


@inner
def numbers_of(scores):
    """Room for the parts of one instance, all in one row, with nothing in the mixture."""
    count = 1
    for extent in scores.shape[1:]:
        count *= extent
    used = np.empty(count + 1, np.int32)
    used[0] = -1
    return Parts(np.empty(count), np.zeros(count), np.empty(count), np.empty(count), np.zeros(count, np.bool_), used)


@inner
def begin_rest(parts):
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
def at(numbers, part):
    return numbers[part] if part >= 0 else 0.0


@inner
def advantage(numbers, vertex, other):
    """Σ numbers over the parts of `vertex`, less that of `other`."""
    total = 0.0
    for i in range(vertex.shape[0]):
        if vertex[i] != other[i]:
            total += at(numbers, vertex[i]) - at(numbers, other[i])
    return total


@inner
def introduce(scores, slots, active, count):
    """Writes the inner products of vertex `count` with those before it and itself; returns its score.

    The score is relative to the first's, which keeps digits.
    """
    vertices, factor = active.vertices, active.factor
    for t in range(count + 1):
        factor[count, t] = _common(vertices[t, :slots], vertices[count, :slots])
    if count == 0:
        return 0.0
    value = factor[0, 0] * factor[-2, 0]  # what the first was counted as
    value += advantage(scores, vertices[count, :slots], vertices[0, :slots])
    return value + (active.worths[count] - active.worths[0])


@inner
def compacted(active, slots, count):
    """Moves the vertices that stayed to their new places; returns their number."""
    for t in range(count):
        if active.kept[t] != t:
            active.worths[t] = active.worths[active.kept[t]]
            for i in range(slots):
                active.vertices[t, i] = active.vertices[active.kept[t], i]
    return count


@inner
def mix(parts, slots, active, count, fresh):
    """mixture = Σ weights[t] · vertices[t] and rest = scores − mixture; returns how many parts are in the mixture.

    Touches only the parts in the last mixture and in the new one.  Only the vertices from `fresh` on may have parts
    that were not in the last one.
    """
    scores, mixture, rest, used, is_used = parts.scores, parts.mixture, parts.rest, parts.used, parts.is_used
    many = 0
    while used[many] >= 0:
        mixture[used[many]] = 0.0
        many += 1
    for t in range(fresh, count):
        for i in range(slots):
            part = active.vertices[t, i]
            if part >= 0 and not is_used[part]:
                is_used[part] = True
                used[many] = part
                many += 1
    for t in range(count):
        weight = active.weights[t]
        for i in range(slots):
            part = active.vertices[t, i]
            if part >= 0:
                mixture[part] += weight
    k = 0
    for j in range(many):
        part = used[j]
        rest[part] = scores[part] - mixture[part]
        if mixture[part] > 0.0:
            used[k] = part
            k += 1
        else:
            is_used[part] = False
    used[k] = -1
    return k


@inner
def write_mixture(parts, used, point):
    """Writes the mixture, whose first `used` parts are listed, and zeros elsewhere."""
    flat = point.reshape(-1)
    for part in range(len(flat)):
        flat[part] = 0.0
    for k in range(used):
        flat[parts.used[k]] = parts.mixture[parts.used[k]]


@inner
def magnitude(scores, vertex, unit):
    """The largest absolute score in a vertex, at least `unit`: the unit of rounding.

    Parts that no vertex wants do not count, however low their scores are.
    """
    for i in range(vertex.shape[0]):
        unit = max(unit, abs(at(scores, vertex[i])))
    return unit


@inner
def allowed(scores, vertex, may_be_empty):
    """Whether all parts of a vertex have scores, and it has parts at all."""
    empty = True
    for i in range(vertex.shape[0]):
        empty &= vertex[i] < 0
        if at(scores, vertex[i]) == -np.inf:
            return False
    return may_be_empty or not empty


@inner
def nothing(own, n, vertex):
    """The worth of a vertex that has no scores but those of its parts."""
    return 0.0

"""Vertices that choose a part for every slot, and their mixtures: what the active set keeps of one instance.

A tree chooses a head for every word, a chain a pair of tags for every position.  A vertex is kept as its parts, one
index into the flattened scores per slot, −1 for a slot that stays empty, so the inner product of two vertices is the
number of slots where they have the same part.  From one round to the next only the parts of active vertices change,
hence no step but the argmax looks at all the parts, unless most of them are in use.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner

ROUNDING = 1e-15  # of a score, relative to the largest in any vertex that was met
_SPARSE = 4  # times as many parts as are in use: then to look each of these up is faster than to go through all
_TOGETHER = 8  # slots that are compared at once; a row of vertices is as long as a multiple of it

# The active vertices, vertices[t, slot], −1 behind the last slot; their scores beside those of their parts; and the
# state of the active set.
Active = namedtuple("Active", ["vertices", "worths", "factor", "weights", "kept", "trial"])

# Numbers for each part: the scores, a mixture of vertices, what is left of the scores, a direction, and whether it is
# in the mixture.  `used` lists the parts that are, or were until lately; its last number tells how many.
Parts = namedtuple("Parts", ["scores", "mixture", "rest", "direction", "is_used", "used"])


@inner
def actives(capacity, slots):
    width = -(-slots // _TOGETHER) * _TOGETHER
    return Active(
        np.empty((capacity, width), np.int32),
        np.empty(capacity),
        np.empty((capacity + 3, capacity)),
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
        for k in range(-3, 0):
            larger.factor[k, t] = active.factor[k, t]
    return larger


@inner
def numbers_of(scores):
    """Room for the parts of one instance, all in one row, with nothing in the mixture."""
    count = 1
    for extent in scores.shape[1:]:
        count *= extent
    used = np.empty(count + 1, np.int32)
    used[-1] = 0
    return Parts(np.empty(count), np.zeros(count), np.empty(count), np.empty(count), np.zeros(count, np.bool_), used)


@inner
def begin_rest(parts):
    """rest = scores, as it is while nothing is in the mixture."""
    for part in range(len(parts.rest)):
        parts.rest[part] = parts.scores[part]


@inner
def _common(a, b):
    """How many slots have the same part in two vertices; counted in 32 bits, eight of which fill a register."""
    total = np.int32(0)
    for i in range(a.shape[0]):
        total = np.int32(total + np.int32((a[i] == b[i]) & (a[i] >= 0)))
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
    for i in range(slots, vertices.shape[1]):
        vertices[count, i] = -1
    for t in range(count + 1):
        factor[count, t] = _common(vertices[t], vertices[count])
    if count == 0:
        return 0.0
    value = factor[0, 0] * factor[-2, 0]  # what the first was counted as
    value += advantage(scores, vertices[count, :slots], vertices[0, :slots])
    return value + (active.worths[count] - active.worths[0])


@inner
def compacted(active, count):
    """Moves the vertices that stayed to their new places; returns their number."""
    for t in range(count):
        if active.kept[t] != t:
            active.worths[t] = active.worths[active.kept[t]]
            for i in range(active.vertices.shape[1]):
                active.vertices[t, i] = active.vertices[active.kept[t], i]
    return count


@inner
def mix(parts, slots, active, count, fresh):
    """mixture = Σ weights[t] · vertices[t] and rest = scores − mixture.

    Only the vertices from `fresh` on may have parts that were not in the last mixture.
    """
    scores, mixture, rest, used = parts.scores, parts.mixture, parts.rest, parts.used
    _list(parts, slots, active, count, fresh)
    sparse = _SPARSE * used[-1] < len(mixture)
    if sparse:
        for k in range(used[-1]):
            mixture[used[k]] = 0.0
    else:
        for part in range(len(mixture)):
            mixture[part] = 0.0
    for t in range(count):
        weight = active.weights[t]
        for i in range(slots):
            part = active.vertices[t, i]
            if part >= 0:
                mixture[part] += weight
    if sparse:
        for k in range(used[-1]):
            rest[used[k]] = scores[used[k]] - mixture[used[k]]
        in_use(parts)
    else:
        for part in range(len(mixture)):
            rest[part] = scores[part] - mixture[part]


@inner
def _list(parts, slots, active, count, fresh):
    """Lists the parts of the vertices from `fresh` on."""
    used, is_used = parts.used, parts.is_used
    for t in range(fresh, count):
        for i in range(slots):
            part = active.vertices[t, i]
            if part >= 0 and not is_used[part]:
                is_used[part] = True
                used[used[-1]] = part
                used[-1] += 1


@inner
def in_use(parts):
    """How many parts are in the mixture; only these stay listed."""
    used, k = parts.used, 0
    for j in range(used[-1]):
        part = used[j]
        if parts.mixture[part] > 0.0:
            used[k] = part
            k += 1
        else:
            parts.is_used[part] = False
    used[-1] = k
    return k


@inner
def write_mixture(parts, point):
    flat = point.reshape(-1)
    for part in range(len(flat)):
        flat[part] = parts.mixture[part]


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

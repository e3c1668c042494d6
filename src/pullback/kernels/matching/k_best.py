"""The k best matchings, in order: Murty's algorithm, one augmenting path for each set that is searched.

A set of matchings fixes what the first rows have and forbids some columns to the next.  Its best matching is known.
Without that one, the rest of the set falls apart into smaller sets, one for each row t that is not fixed: the rows
before t keep what they have, and t has to take something else.  So no matching stands in two sets, however many tie.
The prices of the best matching are right for all of these but for row t, hence one call of `augment` solves each.

For that every row and every column must always be matched, which extra ones with scores of 0 see to:

    rows     as many as are missing, they take what nobody wants
    columns  only if the matching is optional: one for each row, which takes it in order to stay idle

References: Murty (1968); Miller, Stone and Cox (1997).
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.matching.assignment import assign, augment, new_assignment
from pullback.kernels.matching.wide import fits, load, write_vertex
from pullback.kernels.tools import inner, kernel


class Sets(NamedTuple):
    """Sets of matchings that were not searched, each with its best matching.

    match      (k, size)  the best matching, column of each row
    price      (k, size)  its prices
    forbidden  (k, size)  columns that row `fixed` must not take
    fixed      (k,)       how many rows are fixed
    value      (k,)       the score of the best matching, −∞ for an empty place
    """

    match: np.ndarray
    price: np.ndarray
    forbidden: np.ndarray
    fixed: np.ndarray
    value: np.ndarray


class Parent(NamedTuple):
    """The best matching of the set that is searched."""

    match: np.ndarray
    price: np.ndarray
    value: float


@inner
def _new_sets(k, size):
    return Sets(
        np.empty((k, size), np.int64),
        np.empty((k, size)),
        np.empty((k, size), np.bool_),
        np.empty(k, np.int64),
        np.empty(k),
    )


@inner
def _complete(wide, optional, room):
    """The scores with extra rows and columns, as a square matrix within `room`."""
    rows, cols = wide.shape
    size = cols + rows if optional else cols
    full = room[: size * size].reshape(size, size)
    full[:] = 0.0
    for i in range(rows):
        for j in range(cols):
            full[i, j] = wide[i, j]
        for j in range(cols, size):
            full[i, j] = 0.0 if j == cols + i else -np.inf
    return full


@inner
def _value(wide, match):
    total = 0.0
    for i in range(wide.shape[0]):
        if match[i] < wide.shape[1]:
            total += wide[i, match[i]]
    return total


@inner
def _extreme(values, count, largest):
    """The place of the largest or of the smallest value."""
    place = 0
    for k in range(1, count):
        if (values[k] > values[place]) == largest and values[k] != values[place]:
            place = k
    return place


@inner
def _resolve(full, parent, t, barred, first, floor, a):
    """The best matching that agrees with a set's before row t and gives t no barred column; False if none is above."""
    size = full.shape[1]
    for j in range(size):
        a.price[j] = a.shown[j] = parent.price[j]
        first[j] = -np.inf if barred[j] else full[t, j]
    for i in range(size):
        a.match[i] = parent.match[i]
        a.owner[a.match[i]] = i
        if i < t:
            a.shown[a.match[i]] = np.inf
    a.owner[a.match[t]] = -1
    lost = full[t, a.match[t]] - a.price[a.match[t]]
    a.match[t] = -1
    return augment(full, first, t, -np.inf, lost + (floor - parent.value), a)


@inner
def _keep(sets, place, a, barred, fixed, value):
    for j in range(len(barred)):
        sets.match[place, j], sets.price[place, j], sets.forbidden[place, j] = a.match[j], a.price[j], barred[j]
    sets.fixed[place], sets.value[place] = fixed, value


@inner
def k_best(wide, full, k, a, sets, transposed, vertices):
    """Writes the k best matchings, best first; returns how many there are."""
    rows, size = wide.shape[0], full.shape[0]
    match, price = np.empty(size, np.int64), np.empty(size)
    barred, first = np.zeros(size, np.bool_), np.empty(size)
    sets.value[:] = -np.inf
    if not assign(full, False, a):
        return 0
    _keep(sets, 0, a, barred, 0, _value(wide, a.match))
    for rank in range(k):
        best = _extreme(sets.value, k, True)
        value = sets.value[best]
        if value == -np.inf:
            return rank
        for j in range(size):
            match[j], price[j], barred[j] = sets.match[best, j], sets.price[best, j], sets.forbidden[best, j]
        write_vertex(match, wide.shape, transposed, vertices[rank])
        sets.value[best] = -np.inf
        if rank == k - 1:
            break
        parent = Parent(match, price, value)
        for t in range(sets.fixed[best], rows):
            place = _extreme(sets.value, k, False)  # what is worse than k others will not be asked for
            floor = sets.value[place]
            margin = 1e-9 * (1.0 + abs(value) + abs(floor)) if floor > -np.inf else 0.0
            barred[match[t]] = True
            if _resolve(full, parent, t, barred, first, floor - margin, a):
                found = min(_value(wide, a.match), value)
                if found > floor:
                    _keep(sets, place, a, barred, t, found)
            barred[:] = False
    return k


@kernel
def topk(scores, lengths, optional, k, vertices, size, lo, hi):
    """The k best matchings of each instance, best first, all different: vertices[b, rank] is shaped like scores[b].

    scores (batch, n, m), lengths, `optional` and the answer as in `argmax`; k ≥ 1.  size[b] says how many there are,
    fewer than k only if there are no more; vertices are zero beyond.  O(k n) calls of `augment`.
    """
    n, m = scores.shape[1:]
    most = n + m if optional else max(n, m)
    room, square = np.empty(n * m), np.empty(most * most)
    a, sets = new_assignment(most, most), _new_sets(k, most)
    for b in range(lo, hi):
        vertices[b] = 0
        if not fits(lengths[b], scores[b]):
            return b
        wide, transposed, valid = load(scores[b], lengths[b], room)
        if not valid:
            return b
        full = _complete(wide, optional, square)
        size[b] = k_best(wide, full, k, a, sets, transposed, vertices[b])
        if size[b] == 0:
            return b
    return -1

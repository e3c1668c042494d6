"""A laminar family of sets of words: any two are nested or disjoint, so they form a forest.

The family is known by the parent of each set and the *home* of each word, the smallest set that contains it.  Sets are
numbered by decreasing size: parents come before their children.  Set 1 holds all words and is always there; set 0
stands for "no set" and is the home of the root, node 0.

An arc belongs to the smallest set that contains both its ends, and thereby to all sets around that one.  With labels
there are several arcs from a head to a word; sets ask for nothing but the ends.

A violated set can be made to fit the family if the sets of the family are tight (receive exactly 1): inflow is
submodular, inflow(S ∩ T) + inflow(S ∪ T) ≤ inflow(S) + inflow(T), so where T crosses S the intersection or the union
is violated as well, and it crosses fewer sets.  Hence a family never has more sets than there are words.

Where S is tight as well, so are both, and no arc with mass connects S ∖ T with T ∖ S: the arcs in S and in T, counted
together, are those in S ∩ T and in S ∪ T.  So a family of tight sets to which no other can be added spans all of them.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import inner

# Whatever serves as an index is unsigned: Numba then need not ask whether it is negative.
SET = np.dtype(
    [
        ("parent", np.uint32),
        ("level", np.uint32),  # how many sets are around it
        ("size", np.int64),
        ("meet", np.uint32),  # the smallest set around this one that contains some word
        ("shared", np.uint32),  # words in common with some other set
        ("support", np.uint32),  # arcs with mass that belong to it, into some word
        ("listed", np.uint32),  # an entry of a list of sets, kept here for want of another place: not of this set
        ("row", np.uint32),  # of the face, where it is written
        ("node", np.uint32),  # its node in the present network, or that of a set around it; 0 if there is none
        ("chosen", np.uint8),  # whether its words belong to some other set
        ("free", np.uint8),  # whether the present step may change the multiplier
        ("dependent", np.uint8),  # whether it is free, but its row of the Hessian a combination of others
        ("equality", np.uint8),  # whether the multiplier may be negative
        ("multiplier", np.float64),
        ("penalty", np.float64),  # the multipliers of this set and those around it
        ("toll", np.float64),  # the penalty of its meet: of arcs from its words to that word
        ("gradient", np.float64),
        ("slope", np.float64),  # the gradient where the present step ends, if the Hessian stayed as it is
        ("step", np.float64),  # of the multiplier
        ("tilt", np.float64),  # of the penalty
        ("least", np.float64),  # smallest and largest tilt of the sets around
        ("most", np.float64),
        ("half", np.float64),  # half-way through the solution of the Newton system
        ("pivot", np.float64),
        ("reach", np.int64),  # the level of the outermost set whose row its elimination changes
    ],
    align=True,
)
WORD = np.dtype(
    [
        ("count", np.uint32),  # arcs[j, :count] are the candidate arcs into word j
        ("home", np.uint32),
        ("slack", np.float64),  # change of penalties that can make no other arc a candidate
        ("spread", np.float64),  # how fast the present step uses up the slack
        ("entry", np.float64),  # the multiplier of a new set beyond which the list needs arcs from outside
        ("threshold", np.float64),
        ("moves", np.uint32),  # whether the present step changes its arcs by different amounts
    ],
    align=True,
)
ARC = np.dtype(
    [
        ("head", np.uint16),  # short, so that an arc is 32 bytes
        ("set", np.uint16),
        ("label", np.uint32),
        ("value", np.float64),  # score less penalty, relative to the largest
        ("slope", np.float64),  # of the value along the present step
        ("mass", np.float64),
    ],
    align=True,
)


class Family(NamedTuple):
    """A laminar family of sets, and the columns of the point at its multipliers.

    words (n + 1,) of WORD, sets (n + 3,) of SET, arcs (n + 1, t (n + 1)) of ARC: row j holds the arcs into word j.
    What is called in every step of the dual takes these one by one: to take a tuple apart counts references, which is
    felt where sentences are short.
    """

    words: np.ndarray
    sets: np.ndarray
    arcs: np.ndarray


@inner
def new_family(size, width):
    """An empty one for `size` nodes and columns of `width` arcs."""
    return Family(np.empty(size, WORD), np.empty(size + 2, SET), np.empty((size, width), ARC))


@inner
def start(n, single_root, words, sets):
    """The family of the set of all words alone."""
    words[0].home = 0
    for j in range(1, n + 1):
        words[j].home = 1
    for k in range(2):
        one = sets[k]
        one.parent = 0
        one.size = n + 1 - k
        one.multiplier = 0.0
        one.penalty = 0.0
        one.equality = k == 1 and single_root


@inner
def contains(k, j, words, sets):
    """Whether set k contains word j."""
    home = words[j].home
    while home > k:
        home = sets[home].parent
    return home == k


@inner
def meet(j, number, words, sets):
    """For every set, the smallest set around it that contains word j: an arc from i belongs to the meet of i's home."""
    for k in range(number):
        sets[k].meet = 0
    k = words[j].home
    while k > 0:
        sets[k].meet = k
        k = sets[k].parent
    sets[0].toll = sets[0].penalty
    for k in range(1, number):
        one = sets[k]
        if one.meet == 0:
            parent = sets[one.parent]
            one.meet = parent.meet
            one.toll = parent.toll
        else:
            one.toll = one.penalty


@inner
def share(n, number, member, words, sets):
    """For every set, how many of its words are in `member`."""
    for k in range(number):
        sets[k].shared = 0
    for j in range(1, n + 1):
        sets[words[j].home].shared += member[j]
    for k in range(number - 1, 0, -1):
        sets[sets[k].parent].shared += sets[k].shared


@inner
def inflow(n, member, words, arcs):
    """What a set of words receives from outside."""
    total = 0.0
    for j in range(1, n + 1):
        if member[j]:
            for c in range(words[j].count):
                if not member[arcs[j, c].head]:
                    total += arcs[j, c].mass
    return total


@inner
def uncross(n, number, member, union, family):
    """Replace the violated set `member` by one that crosses no set of the family; False if it is not violated."""
    words, sets, arcs = family
    while True:
        share(n, number, member, words, sets)
        size = sets[1].shared
        crossed = 0
        for k in range(2, number):
            if 0 < sets[k].shared < min(size, sets[k].size):
                crossed = k  # the outermost: a union settles the sets inside it as well
                break
        if crossed == 0:
            return True
        for k in range(number):
            sets[k].chosen = k == crossed or (k > crossed and sets[sets[k].parent].chosen)
        union[0] = False
        for j in range(1, n + 1):
            inside = sets[words[j].home].chosen > 0
            union[j] = member[j] or inside
            member[j] = member[j] and inside
        received, received_by_union = inflow(n, member, words, arcs), inflow(n, union, words, arcs)
        if received_by_union < received:
            for j in range(n + 1):
                member[j] = union[j]
        if min(received, received_by_union) >= 1.0 - 1e-12:  # a single word receives 1, up to rounding
            return False


@inner
def unite(n, number, member, words, sets):
    """Add to the tight set `member` the sets of the family that it crosses: their union is tight as well."""
    share(n, number, member, words, sets)
    size = sets[1].shared
    sets[0].chosen = sets[1].chosen = 0
    for k in range(2, number):
        crosses = 0 < sets[k].shared < min(size, sets[k].size)
        sets[k].chosen = crosses or sets[sets[k].parent].chosen > 0
    add_chosen(n, member, words, sets)


@inner
def add_chosen(n, member, words, sets):
    """Add to `member` the words of the chosen sets."""
    for j in range(1, n + 1):
        member[j] = member[j] or sets[words[j].home].chosen > 0


@inner
def insert(n, number, member, family):
    """Give the family a set that crosses none of it.  Returns its place, 0 if it was there before.  O(n + arcs)."""
    words, sets, arcs = family
    share(n, number, member, words, sets)
    size = sets[1].shared
    parent = 1
    for k in range(1, number):
        if sets[k].shared == size:
            parent = k  # the last set around is the smallest
    if sets[parent].size == size:
        return 0
    place = number
    while sets[place - 1].size < size:
        sets[place] = sets[place - 1]
        place -= 1
    for k in range(place + 1, number + 1):
        sets[k].parent += sets[k].parent >= place
        if sets[k].parent == parent and sets[k].shared > 0:
            sets[k].parent = place
    for j in range(1, n + 1):
        words[j].home += words[j].home >= place
        if words[j].home == parent and member[j]:
            words[j].home = place
        for c in range(words[j].count):
            arc = arcs[j, c]
            arc.set += arc.set >= place
            if arc.set == parent and member[j] and member[arc.head]:
                arc.set = place
    new = sets[place]
    new.parent = parent
    new.size = size
    new.multiplier = 0.0
    new.penalty = sets[parent].penalty
    new.equality = 0
    new.node = 0
    return place


@inner
def remove(n, number, place, family):
    """Take a set without a multiplier out of the family."""
    words, sets, arcs = family
    parent = sets[place].parent
    for k in range(place, number - 1):
        sets[k] = sets[k + 1]
    for k in range(place, number - 1):
        sets[k].parent = _without(sets[k].parent, place, parent)
    for j in range(1, n + 1):
        words[j].home = _without(words[j].home, place, parent)
        for c in range(words[j].count):
            arcs[j, c].set = _without(np.int64(arcs[j, c].set), place, parent)


@inner
def _without(k, place, parent):
    return parent if k == place else k - 1 if k > place else k


@inner
def penalize(number, sets):
    """Penalties and their tilts from the multipliers and their steps."""
    sets[0].penalty = sets[0].tilt = sets[0].least = sets[0].most = 0.0
    for k in range(1, number):
        one = sets[k]
        parent = sets[one.parent]
        one.penalty = parent.penalty + one.multiplier
        one.tilt = parent.tilt + one.step
        one.least = min(parent.least, one.tilt)
        one.most = max(parent.most, one.tilt)

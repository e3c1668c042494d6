"""SparseMAP for non-projective dependency trees: the nearest mixture of arborescences, by cuts.

    argmin ½‖μ − s‖²   over the convex hull of the arborescences of nodes 0..n with root 0.

A point is in the hull when its columns are distributions over heads and every set S of words receives at least 1 from
outside.  There are 2ⁿ such sets but few matter, so they are found one after the other:

1. minimize the dual over the multipliers of the sets found so far (`dual`; at first there is the set of all
   words, with multiplier 0, and the point is the sparsemax of each column);
2. look for sets that receive less than 1 (`subtours`), and stop if there are none;
3. make them nested in or disjoint from the others (`laminar`), which keeps each step of the dual cheap.

At the end μ is feasible, and the multipliers prove that it is nearest: for any tree z,
⟨s − μ, z − μ⟩ ≤ Σ_S λ_S (|S| − 1 − μ(S)) = 0.

Exactly one root arc is an equality for the set of all words: its multiplier may have either sign.

The face of μ is told by its support and the sets that receive exactly 1.  Where scores are equal, some of these may
have no multiplier; they are looked for at the end.

Where arcs have labels, so do the columns: sparsemax runs over pairs of head and label, and a set counts them all.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel, sum_of
from pullback.kernels.tree_cuts.columns import labels_of, lift, refresh
from pullback.kernels.tree_cuts.dual import LIMIT, largest_penalty, minimize
from pullback.kernels.tree_cuts.face import freedom, rank, write_sets
from pullback.kernels.tree_cuts.feasibility import is_feasible
from pullback.kernels.tree_cuts.laminar import inflow, insert, new_family, remove, start, uncross
from pullback.kernels.tree_cuts.networks import new_room, words_of
from pullback.kernels.tree_cuts.subtours import next_set, separate, separate_within
from pullback.kernels.tree_cuts.tight import complete

CUT = 5e-10  # a set is violated when it receives less than 1 − CUT; far above what the dual leaves
CUT_WITHIN = 1e-10  # the same inside the sets of a family; what crosses the family may add up that of many
ZERO = 1e-10  # where a step ends exactly at a kink, a vanishing entry is left with round-off
STEPS = 2  # of the dual before looking for more sets
SOLVED, LEFT, UNSOLVED = 0, 1, 2
MANY, PER_WORD = 8, 0.125  # more sets than this together are deeply nested
FEW = 32  # dimensions of a face on which few trees mix
TURNS = 4  # that look for disjoint sets
PLACES = 64  # of a small table, a power of 2


@kernel
def project(scores, lengths, single_root, rounds, point, sets, left, lo, hi):
    """The nearest mixture of trees of each instance, and its face: the sets of words that receive exactly 1.

    scores and point (batch, N, N·t): entry [i, j·t + l] is the arc from head i to word j with label l; node 0 is the
    root.  Arcs to the root and from a word to itself are never read.  lengths (batch,): the number of words, at most N
    − 1; below 0 the instance is skipped.  sets (batch, N, ⌈N/64⌉) int64: each row holds a set, word j as bit j mod 64
    of entry j div 64; larger sets come first, rows of zeros last.  The sets are nested or disjoint and independent,
    hence no more than the words.  With the support of the point they are all that the backward needs.  rounds: after so
    many, an instance where few trees seem to mix is left, which `left` (batch,) tells, and so is one on which the
    search does not converge; none is if it is 0.
    Returns the first instance without a tree or with a score of NaN or +∞, -2 - b if the search on instance b did not
    converge, or -1.
    """
    N, width = scores.shape[1:]
    score, row, hessian = np.empty((N, width)), np.empty(width), np.empty((N + 2, N + 2))
    family, room, seen = new_family(N, width), new_room(N, width), np.empty(PLACES)
    for b in range(lo, hi):
        n = lengths[b]
        left[b] = False
        if n < 0:
            continue
        point[b] = 0.0
        sets[b] = 0
        if n == 0:
            continue
        for steps in (STEPS, LIMIT):  # the second time with many more steps
            start(n, single_root, family.words, family.sets)
            valid, forbidden = _columns(scores[b], n, score, family, row)
            if not valid or (forbidden and not is_feasible(scores[b], n, single_root, room.reached[:N], room.queue)):
                return b
            outcome, number = _solve(n, steps, rounds, score, family, hessian, row, room)
            if outcome != UNSOLVED:
                break
        left[b] = outcome != SOLVED
        if outcome == UNSOLVED and rounds == 0:
            return -2 - b
        if not left[b]:
            _write_point(n, number, family, point[b])
            if _has_ties(n, score, family.words, family.arcs, seen):
                number = complete(n, number, family, room)
            write_sets(n, number, family, hessian, sets[b])
    return -1


@inner
def _columns(scores, n, score, family, row):
    """Transpose the scores, each relative to the best arc into its word, and start from the sparsemax of each column.

    Each word having one head, what all arcs into it have in common changes nothing; without it no digits are lost.
    Returns whether every column has an answer, and whether an arc is forbidden.
    """
    words, sets, arcs = family
    labels = labels_of(score)
    _transpose(scores, n, labels, score)
    forbidden = False
    number = np.int64(2)  # not a literal, for which Numba would compile the callee a second time
    for j in range(1, n + 1):
        for l in range(labels):
            score[j, labels * j + l] = score[j, l]
        sum_of_scores = sum_of(score[j], labels * (n + 1))
        forbidden |= sum_of_scores == -np.inf
        for l in range(labels):
            score[j, labels * j + l] = -np.inf
        found = refresh(j, n, number, 0.0, score, words, sets, arcs, row)
        if sum_of_scores != sum_of_scores or not found:
            return False, True
        for m in range(labels * (n + 1)):
            score[j, m] = row[m]
    return True, forbidden


@inner
def _transpose(scores, n, labels, score):
    """score[j, i·t + l] from scores[i, j·t + l], a few columns at a time, which stay in the cache."""
    for first in range(1, n + 1, 16):
        last = min(first + 16, n + 1)
        for i in range(n + 1):
            if labels == 1:
                for j in range(first, last):
                    score[j, i] = scores[i, j]
            else:
                for j in range(first, last):
                    for l in range(labels):
                        score[j, labels * i + l] = scores[i, labels * j + l]


@inner
def _solve(n, steps, rounds, score, family, hessian, row, room):
    """Minimize and separate in turn; the solution stays in the family.

    The dual need not be solved before more sets are found: `steps` steps will do, if only sets violated by more than
    twice its residual count.  Once there are many sets, or no end after some turns, nested ones are looked for inside
    each set of the family.  The dimension of the face is what the sets leave of the freedom of the columns; if that is
    less than a third of it, and small, while there are many sets, the instance is left after each `rounds` turns.
    Returns the outcome and the number of sets.
    """
    sets = family.sets
    patience = steps
    number = np.int64(2)
    for turn in range(4 * n + 50):
        residual = minimize(n, number, patience, score, family, hessian, row)
        if residual == np.inf:
            return UNSOLVED, number
        for k in range(number - 1, 1, -1):
            if sets[k].multiplier == 0.0:
                remove(n, number, k, family)
                number -= 1
        many = number > MANY + PER_WORD * n
        nested = many or turn >= TURNS
        tolerance = (CUT_WITHIN if nested else CUT) + 1e-13 * largest_penalty(number, sets) + 2.0 * residual
        violated, number = _add_cuts(n, number, 1.0 - tolerance, nested, score, family, row, room)
        if violated == 0 and residual == 0.0:
            return SOLVED, number
        patience = steps if violated > 0 else LIMIT
        if rounds > 0 and many and (turn + 1) % rounds == 0:
            free = freedom(n, family.words, family.arcs)
            if 3 * number > 2 * free and free - rank(n, number, family, hessian) < FEW:
                return LEFT, number
    return UNSOLVED, number


@inner
def _add_cuts(n, number, goal, nested, score, family, row, room):
    """Add sets that receive less than `goal`; returns how many were found, and the new number of sets.

    nested: they may be nested, but cross none of the family.  None is missed if all of that receives exactly 1: a set
    that crosses it falls apart into sets which do not, and receive as much less than 1 together.
    """
    if nested:
        count, settled = separate_within(n, number, goal, family, room)
    else:
        count, settled = n, separate(n, goal, family, room)
    member, union = room.member, room.union
    violated, done = 0, np.int64(0)
    while True:
        is_violated, settled, done = next_set(count, goal, not nested, nested, settled, done, room)
        if not is_violated:
            return violated, number
        violated += 1
        if nested:
            words_of(n, number, member, family.words, family.sets)
        number = _add_cut(n, number, score, family, row, member, union)


@inner
def _add_cut(n, number, score, family, row, member, union):
    """Add the set `member`, made to fit the family; returns the new number of sets."""
    if uncross(n, number, member, union, family):
        place = insert(n, number, member, family)
        number += place > 0
        if place > 0 and inflow(n, member, family.words, family.arcs) < CUT:
            lift(n, number, place, score, family, row)
    return number


@inner
def _write_point(n, number, family, point):
    """Write the point, with zeros where only round-off is left."""
    words, sets, arcs = family
    labels = labels_of(point)
    zero = ZERO + 1e-14 * largest_penalty(number, sets)
    for j in range(1, n + 1):
        for c in range(words[j].count):
            if arcs[j, c].mass <= zero:
                arcs[j, c].mass = 0.0
            else:
                point[arcs[j, c].head, labels * j + arcs[j, c].label] = arcs[j, c].mass


@inner
def _has_ties(n, score, words, arcs, seen):
    """Whether arcs that have mass have the same score, each relative to the best arc into its word.

    A best arc counts only if its word has another.  Each score that was seen has a place that follows from its value;
    one may take the place of another, and then a tie goes unnoticed, but not where ties abound.  Among thousands of
    scores in single precision two are equal by chance, so one tie in 64 scores is asked for.
    """
    labels = labels_of(score)
    seen[:] = np.inf
    met, ties = 0, 0
    for j in range(1, n + 1):
        has_best = False
        for c in range(words[j].count):
            if arcs[j, c].mass > 0.0:
                x = score[j, labels * arcs[j, c].head + arcs[j, c].label]
                if x == 0.0 and not has_best:
                    has_best = True
                    continue
                place = np.int64(min(-x, 1e9) * 1618.0339887) & (PLACES - 1)
                met += 1
                ties += seen[place] == x
                seen[place] = x
    return 64 * ties >= max(met, 1)

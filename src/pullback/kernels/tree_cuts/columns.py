"""The columns of the point nearest to penalized scores, each a short list of candidate arcs.

The arcs into word j get the masses sparsemax(s_j − penalty_j), where the penalty of an arc is a number of the set it
belongs to (see `laminar`).  Few arcs have mass, and few others can get some when the penalties change a little: these
are the candidates of the word.  They stay complete until the penalties have changed by more than its `slack`.
Values are relative to the column's largest, since sparsemax ignores a common shift.  With t labels there are t arcs
from each head: entry i·t + l of a column is the arc from head i with label l.
"""

import numpy as np

from pullback.kernels.tools import fmax, inner, kernel, summing
from pullback.kernels.tree_cuts.laminar import contains, meet, penalize

MARGIN = 1.0  # the least slack of a new list, divided by the size of the support
SHORT = 8  # a list of so many candidates is short
LONGEST = 1e9  # margin that a short list is given
MUCH = 2.0  # that a set receives; it has to receive 1


@kernel
def split_by_rivals(scores, lengths, most, per_word, few, many, lo, hi):
    """Splits the instances by their rivals: arcs that come within 1 of the best into the same word, not counting those.

    scores as for `project`.  few, many (batch,): the length in one of them, -1 in the other; few are fewer than `most`,
    and than `per_word` n.  No arc but the best and their rivals has mass before there are cuts, and about as many trees
    mix.  Returns how many instances have few.
    """
    total, labels = 0, scores.shape[2] // scores.shape[1]
    for b in range(lo, hi):
        n = lengths[b]
        limit = min(most, per_word * n)
        rivals = 0
        for j in range(1, n + 1):
            best = -np.inf
            for m in range(labels * j, labels * (j + 1)):
                for i in range(n + 1):
                    if i != j and scores[b, i, m] > best:
                        best = scores[b, i, m]
            rivals -= 1
            for m in range(labels * j, labels * (j + 1)):
                for i in range(n + 1):
                    rivals += i != j and scores[b, i, m] > best - 1.0
            if rivals >= limit:
                break
        few[b], many[b] = (n, -1) if rivals < limit else (-1, n)
        total += rivals < limit
    return total


@inner
def labels_of(score):
    """How many labels an arc may have.  Often 1, and then a division for every column would be felt."""
    nodes, width = score.shape
    return width // nodes if width > nodes else 1


@inner
def refresh(j, n, number, margin, score, words, sets, arcs, row):
    """List the arcs into word j that have mass or come within `margin` of it at the present multipliers.  O(nt).

    Also sets their masses; `row` becomes the values of all arcs, the best being 0.  False if there is no candidate.
    """
    labels = labels_of(score)
    size = labels * (n + 1)
    meet(j, number, words, sets)
    if labels == 1:  # a loop of length 1 inside the other would cost more than its body
        for i in range(n + 1):
            row[i] = score[j, i] - sets[words[i].home].toll
    else:
        for i in range(n + 1):
            penalty = sets[words[i].home].toll
            for m in range(labels * i, labels * (i + 1)):
                row[m] = score[j, m] - penalty
    top = _maximum(row, size)
    if not (top > -np.inf and top < np.inf):
        return False
    for m in range(size):
        row[m] -= top
    t = -1.0  # Michelot: a lower bound of the threshold that rises
    before = np.inf
    while True:
        excess, above = _excess(row, size, t)
        t += (excess - 1.0) / above
        if above < 16.0 or above > 0.7 * before:
            break
        before = above
    if margin > 0.0:  # steps are long: a few candidates more cost less than to list them again
        while margin < LONGEST and _excess(row, size, t - 4.0 * margin)[1] <= SHORT:
            margin *= 4.0
    margin += MARGIN / above
    c = 0
    for m in range(size):
        if row[m] > t - margin:
            i = m // labels if labels > 1 else m
            arc = arcs[j, c]
            arc.head = i
            arc.label = m - labels * i
            arc.set = sets[words[i].home].meet
            arc.value = row[m]
            arc.mass = row[m]
            c += 1
    word = words[j]
    word.count = c
    word.slack = margin
    word.threshold = _sparsemax(arcs[j], word.count, t)
    return True


@inner
def shorten(word, arcs, slack):
    """Leave out the candidates that do not come within `slack` of having mass, if there are more than a few.

    A line search that tries a step far too long fills the list with arcs that have none where it ends.
    """
    if word.count <= 2 * SHORT:
        return
    kept = 0
    for c in range(word.count):
        if arcs[c].value > word.threshold - slack:
            arcs[kept] = arcs[c]
            kept += 1
    word.count = kept
    word.slack = slack


@summing
def _maximum(row, m):
    best = row[0]
    for i in range(1, m):
        best = fmax(row[i], best)
    return best


@summing
def _excess(row, m, t):
    """Σ max(x − t, 0) and the number of entries above t."""
    total = 0.0
    above = 0.0
    for i in range(m):
        total += fmax(row[i] - t, 0.0)
        above += 1.0 if row[i] > t else 0.0
    return total, above


@inner
def _sparsemax(arcs, count, t):
    """Replace the masses by their sparsemax and return the threshold, starting from any guess t.

    Newton on a convex decreasing piecewise linear function: the first step lands at or below the root, later ones
    increase, so that arcs only ever drop out and an unchanged number of them means the end.
    """
    total, above = 0.0, 0
    for c in range(count):
        x = arcs[c].mass - t
        if x > 0.0:
            total += x
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
            arc = arcs[c]
            arc.mass = max(arc.mass - shift, 0.0)
            total += arc.mass
            left += arc.mass > 0.0
        shift = (total - 1.0) / left
        if left == above or shift <= 0.0:  # a negative shift is round-off and would bring arcs back
            return t
        above = left
        t += shift


@inner
def tilt(word, sets, arcs):
    """The slopes of a column's candidates, relative to an arc of its home; it moves unless they are all the same."""
    word.moves = 0
    home = sets[word.home].tilt
    for c in range(word.count):
        arc = arcs[c]
        arc.slope = home - sets[arc.set].tilt
        word.moves |= arc.slope != arcs[0].slope


@inner
def advance(t, n, number, score, words, sets, arcs, row):
    """The masses at t steps; returns the slope and the curvature of the dual there."""
    slope = 0.0
    bend = 0.0
    for k in range(1, number):
        slope -= sets[k].step
    for j in range(1, n + 1):
        word = words[j]
        if t * word.spread > word.slack:
            refresh(j, n, number, 2.0 * t * word.spread, score, words, sets, arcs, row)
            tilt(word, sets, arcs[j])
        if not word.moves:
            slope += arcs[j, 0].slope
            continue
        for c in range(word.count):
            arc = arcs[j, c]
            arc.mass = arc.value + t * arc.slope
        word.threshold = _sparsemax(arcs[j], word.count, word.threshold)
        support = 0
        total = 0.0
        squares = 0.0
        for c in range(word.count):
            arc = arcs[j, c]
            if arc.mass > 0.0:
                slope += arc.mass * arc.slope
                support += 1
                total += arc.slope
                squares += arc.slope * arc.slope
        bend += squares - total * total / support
    return slope, bend


@inner
def lift(n, number, place, score, family, row):
    """Start a new set that receives nothing at a multiplier where arcs from outside have entered, but not many.

    Below that the dual falls with slope 1 and Newton's method is blind.  The arc into word j enters where the penalty
    reaches the distance from the threshold to the best arc from outside.  Far beyond, where scores are equal, every
    word has left the set and Newton's method is blind again.

    Each trial lists the same words anew: those that need arcs from outside at the first, which is the farthest.
    """
    words, sets, arcs = family
    labels = labels_of(score)
    entry = np.inf
    for j in range(1, n + 1):
        if contains(place, j, words, sets):
            refresh(j, n, number, 0.0, score, words, sets, arcs, row)
            best = -np.inf
            for i in range(n + 1):
                if sets[words[i].home].meet < place:
                    for l in range(labels):
                        best = max(best, row[labels * i + l])
            entry = min(entry, words[j].threshold - best)
            words[j].entry = words[j].threshold - best - words[j].slack
    sets[place].step = 0.0
    beyond = 1.0
    farthest = entry + beyond
    while True:
        sets[place].multiplier = entry + beyond
        penalize(number, sets)
        received = 0.0
        for j in range(1, n + 1):
            if contains(place, j, words, sets) and words[j].entry < farthest:
                refresh(j, n, number, 0.0, score, words, sets, arcs, row)
                for c in range(words[j].count):
                    received += arcs[j, c].mass if arcs[j, c].set < place else 0.0
        if received <= MUCH or entry + beyond == entry:
            return
        beyond /= received

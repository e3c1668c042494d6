"""The k best of a dynamic program: every cell has a sorted list, and a sum over splits becomes a merge of lists.

Split t combines value a of one list with value b of another, (t, a, b).  The best combination of every split stands in
a frontier; whenever (t, a, b) is taken, (t, a, b + 1) comes in its place, and after (t, a, 0) also (t, a + 1, 0).  So
every combination enters once, after a better one.

Reference: Huang and Chiang (2005).
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools.compilation import inner

# Sorted lists of all cells.
Lists = namedtuple(
    "Lists",
    [
        "value",  # [list, rank]
        "number",  # [list]: how many there are, at most k
        "origin",  # [list, rank]: split, and the ranks in the two lists it combines
    ],
)

# The splits of one cell, and the frontier of their merge.
Merge = namedtuple(
    "Merge",
    [
        "split",  # [term]: where the cell is split
        "left",  # [term]: the two lists that are combined
        "right",
        "extra",  # [term]: what every combination earns besides
        "value",  # [place in the frontier]
        "place",  # [place in the frontier]: term, rank in left, rank in right
    ],
)


@inner
def lists_of(cells, k):
    return Lists(np.empty((cells, k)), np.empty(cells, np.int64), np.empty((cells, k, 3), np.int64))


@inner
def merge_of(terms, k):
    return Merge(
        np.empty(terms, np.int64),
        np.empty(terms, np.int64),
        np.empty(terms, np.int64),
        np.empty(terms),
        np.empty(terms + k),
        np.empty((terms + k, 3), np.int64),
    )


@inner
def _set_place(lists, merge, place, term, a, b):
    merge.place[place, 0], merge.place[place, 1], merge.place[place, 2] = term, a, b
    merge.value[place] = lists.value[merge.left[term], a] + lists.value[merge.right[term], b] + merge.extra[term]


@inner
def merge_terms(lists, merge, terms, cell):
    """The list `cell` from the first `terms` splits described in `merge`."""
    width = 0
    for term in range(terms):
        if lists.number[merge.left[term]] and lists.number[merge.right[term]] and merge.extra[term] > -np.inf:
            _set_place(lists, merge, width, term, 0, 0)
            width += 1
    rank = 0
    while rank < lists.value.shape[1] and width > 0:
        best = 0
        for place in range(1, width):
            if merge.value[place] > merge.value[best]:
                best = place
        term, a, b = merge.place[best, 0], merge.place[best, 1], merge.place[best, 2]
        lists.value[cell, rank] = merge.value[best]
        lists.origin[cell, rank, 0] = merge.split[term]
        lists.origin[cell, rank, 1], lists.origin[cell, rank, 2] = a, b
        rank += 1
        if b == 0 and a + 1 < lists.number[merge.left[term]]:
            _set_place(lists, merge, width, term, a + 1, 0)
            width += 1
        if b + 1 < lists.number[merge.right[term]]:
            _set_place(lists, merge, best, term, a, b + 1)
        else:
            width -= 1
            _set_place(lists, merge, best, merge.place[width, 0], merge.place[width, 1], merge.place[width, 2])
    lists.number[cell] = rank

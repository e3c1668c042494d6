"""A chart: the acyclic hypergraph of a dynamic program, and the part of it that some hyperedges make up.

Items are numbered so that an item comes after those it is made of.  Item 0 is empty, the last item is the goal.  Each
item is made by one of its hyperedges, from two smaller items `left` and `right`; a vertex is a choice of a hyperedge
for the goal, for the two items that it asks for, and so on.  Some items are parts, which have scores; no other part of
the structure is ever in a vertex more than once.

    first   (items + 1,)   the hyperedges of item t are first[t], …, first[t + 1] − 1
    left, right  (edges,)  the items that a hyperedge joins; 0 where there is nothing
    part    (items,)       the part that the item is, or −1
    group   (items,)       of parts of which every vertex has exactly one, the same number ≥ 0; −1 for other parts;
                           NO_PART for items that are no part
    item, edge             where items and hyperedges stand in the chart that this one is taken from

Whatever is said of parts below is said of items: a point is the flow μ[t] through each item, and numbers of items that
are no parts are 0 where they are directions or scores.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner

NO_PART = -2

Chart = namedtuple("Chart", ["first", "left", "right", "part", "group", "item", "edge"])


@inner
def empty_chart(items, edges):
    return Chart(
        np.zeros(items + 1, np.uint64),
        np.empty(edges, np.uint32),
        np.empty(edges, np.uint32),
        np.full(items, -1, np.int32),
        np.full(items, NO_PART, np.int32),
        np.zeros(items, np.uint32),
        np.empty(edges, np.uint32),
    )


@inner
def trimmed(chart, items, edges):
    """A chart that was built in larger arrays; each item and hyperedge stands where it stands."""
    for t in range(items):
        chart.item[t] = t
    for e in range(edges):
        chart.edge[e] = e
    left, right, edge = chart.left[:edges].copy(), chart.right[:edges].copy(), chart.edge[:edges].copy()
    part, group, item = chart.part[:items].copy(), chart.group[:items].copy(), chart.item[:items].copy()
    return Chart(chart.first[: items + 1].copy(), left, right, part, group, item, edge)


@inner
def _close_downwards(chart, keep):
    """Forgets hyperedges of which an item cannot be made by those kept, then those that no vertex reaches.

    Returns which items remain.
    """
    items = len(chart.part)
    made = np.zeros(items, np.bool_)
    made[0] = True
    for t in range(1, items):
        for e in range(chart.first[t], chart.first[t + 1]):
            keep[e] = keep[e] and made[chart.left[e]] and made[chart.right[e]]
            made[t] |= keep[e]
    reached = np.zeros(items, np.bool_)
    reached[items - 1] = made[items - 1]
    for t in range(items - 1, 0, -1):
        for e in range(chart.first[t], chart.first[t + 1]):
            keep[e] = keep[e] and reached[t]
            if keep[e]:
                reached[chart.left[e]] = reached[chart.right[e]] = True
    reached[0] = True
    return reached


@inner
def sub_chart(chart, keep):
    """The chart of the vertices made of hyperedges that are kept; `keep` is changed to those that lie in one.

    Without any vertex, the chart has the empty item alone.
    """
    remains = _close_downwards(chart, keep)
    items, edges = 0, 0
    for t in range(len(remains)):
        items += remains[t]
    for e in range(len(keep)):
        edges += keep[e]
    sub = empty_chart(items, edges)
    number = np.zeros(len(remains), np.uint32)
    t, e = 0, 0
    for old in range(len(remains)):
        if remains[old]:
            number[old] = t
            sub.part[t], sub.group[t], sub.item[t] = chart.part[old], chart.group[old], chart.item[old]
            for k in range(chart.first[old], chart.first[old + 1]):
                if keep[k]:
                    sub.left[e], sub.right[e] = number[chart.left[k]], number[chart.right[k]]
                    sub.edge[e] = chart.edge[k]
                    e += 1
            t += 1
            sub.first[t] = e
    return sub

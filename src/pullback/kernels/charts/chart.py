"""A chart: the acyclic hypergraph of a dynamic program, and the part of it that some hyperedges make up.

Items are numbered so that an item comes after those it is made of.  Item 0 is empty, the last item is the goal.  Each
item is made by one of its hyperedges, from two smaller items `left` and `right`; a vertex is a choice of a hyperedge
for the goal, for the two items that it asks for, and so on.  Some items are parts, which have scores; each part is one
item, and is in a vertex at most once.

    first   (items + 1,)   the hyperedges of item t are first[t], …, first[t + 1] − 1
    left, right  (edges,)  the items that a hyperedge joins; 0 where there is nothing, never on the left alone
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
    reached[0] = True  # and the goal, if it can be made, is the only item of the last layer
    return reached


@inner
def _in_layers(chart, keep, remains):
    """The items that remain in a better order: an item after those it is made of, those without a choice together.

    A pass then knows what comes next, which makes it twice as fast.
    """
    items = len(remains)
    layer, layers = np.zeros(items, np.int64), 1
    for t in range(1, items):
        if remains[t]:
            choices = 0
            for e in range(chart.first[t], chart.first[t + 1]):
                if keep[e]:
                    choices += 1
                    layer[t] = max(layer[t], layer[chart.left[e]] // 2 + 1, layer[chart.right[e]] // 2 + 1)
            layer[t] = 2 * layer[t] + (choices > 1)
            layers = max(layers, layer[t] + 1)
    start = np.zeros(layers + 1, np.int64)
    for t in range(items):
        start[layer[t] + 1] += remains[t]
    for k in range(layers):
        start[k + 1] += start[k]
    order = np.empty(start[layers], np.int64)
    for t in range(items):
        if remains[t]:
            order[start[layer[t]]] = t
            start[layer[t]] += 1
    return order


@inner
def sub_chart(chart, keep):
    """The chart of the vertices made of hyperedges that are kept; `keep` is changed to those that lie in one.

    Without any vertex, the chart has the empty item alone.
    """
    order = _in_layers(chart, keep, _close_downwards(chart, keep))
    items, edges = len(order), 0
    for e in range(len(keep)):
        edges += keep[e]
    sub = empty_chart(items, edges)
    number = np.zeros(len(chart.part), np.uint32)
    e = 0
    for t in range(items):
        old = order[t]
        number[old] = t
        sub.part[t], sub.group[t], sub.item[t] = chart.part[old], chart.group[old], chart.item[old]
        for k in range(chart.first[old], chart.first[old + 1]):
            if keep[k]:
                sub.left[e], sub.right[e], sub.edge[e] = number[chart.left[k]], number[chart.right[k]], chart.edge[k]
                e += 1
        sub.first[t + 1] = e
    return sub

"""The charts of projective dependency trees and of binary trees over spans, with labels or without.

A label is an item of its own, a part made of what it labels; an arc or a span is then made of one of its labels.
"""

import numpy as np

from pullback.kernels.charts.chart import empty_chart, trimmed
from pullback.kernels.tools import inner

PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS = 0, 1, 2


@inner
def chart_of(structure, n, size, labels):
    """The chart of a structure over n ≥ 1 words, whose parts are those of size × size × labels scores."""
    if structure == SPANS:
        return span_chart(n, size, labels)
    return tree_chart(n, size, labels, structure == SINGLE_ROOT_TREES)


@inner
def _join(chart, e, left, right):
    chart.left[e], chart.right[e] = (left, right) if left > 0 else (right, left)
    return e + 1


@inner
def _label(chart, t, e, below, part, group, labels):
    """Adds an item for each label of the item `below`, and one that is made of any of them if they are several.

    Returns the item and the hyperedge that come next.
    """
    first = t
    for label in range(labels):
        e = _join(chart, e, below, 0)
        chart.part[t], chart.group[t] = part + label, group
        t += 1
        chart.first[t] = e
    if labels > 1:
        for label in range(labels):
            e = _join(chart, e, first + label, 0)
        t += 1
        chart.first[t] = e
    return t, e


@inner
def tree_chart(n, size, labels, single_root):
    """Eisner's chart, as `projective_trees` has it: pairs of half trees, arcs over them, and half trees.

    An arc with a label is a part, and those into a word are a group.  complete[h, h] is the empty item.
    """
    nodes = n + 1
    chart = empty_chart(1 + (2 * labels + 5) * nodes * nodes // 2, nodes**3 // 2 + 2 * (labels + 1) * nodes * nodes)
    complete, arc = np.zeros((nodes, nodes), np.int64), np.zeros((nodes, nodes), np.int64)
    t, e = 1, 0  # the item that comes next, the hyperedge that comes next
    for width in range(1, nodes):
        for i in range(nodes - width):
            j = i + width
            pair = t
            for k in range(i, j):
                if (k == i or complete[i, k] > 0) and (k + 1 == j or complete[j, k + 1] > 0):
                    e = _join(chart, e, complete[i, k], complete[j, k + 1])
            t += 1
            chart.first[t] = e
            for head, modifier in ((i, j), (j, i)):
                if modifier > 0:
                    t, e = _label(chart, t, e, pair, (head * size + modifier) * labels, modifier, labels)
                    arc[head, modifier] = t - 1
            if i > 0:
                for m in range(i, j):
                    e = _join(chart, e, arc[j, m], complete[m, i])
                complete[j, i] = t
                t += 1
                chart.first[t] = e
            if not (single_root and i == 0 and j < n):
                for m in range(i + 1, j + 1):
                    e = _join(chart, e, arc[i, m], complete[m, j])
                complete[i, j] = t
                t += 1
                chart.first[t] = e
    return trimmed(chart, t, e)


@inner
def span_chart(n, size, labels):
    """The chart of Cocke, Kasami and Younger.  A span with a label is a part.

    Single words and the span of all are in every tree: without labels, words are the empty item; with labels, those of
    each are a group.
    """
    chart = empty_chart(1 + (labels + 2) * n * n, n**3 + 2 * labels * n * n)
    span = np.zeros((n, n), np.int64)
    t, e = 1, 0
    if labels > 1:
        for i in range(n):
            t, e = _label(chart, t, e, 0, i * (size + 1) * labels, i, labels)
            span[i, i] = t - 1
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            for k in range(i, j):
                e = _join(chart, e, span[i, k], span[k + 1, j])
            t += 1
            chart.first[t] = e
            part = (i * size + j) * labels
            if labels > 1:
                t, e = _label(chart, t, e, t - 1, part, n if width == n - 1 else -1, labels)
            else:
                chart.part[t - 1], chart.group[t - 1] = part, -1
            span[i, j] = t - 1
    return trimmed(chart, t, e)

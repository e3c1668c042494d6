"""The charts of projective dependency trees and of binary trees over spans."""

import numpy as np

from pullback.kernels.charts.chart import empty_chart, trimmed
from pullback.kernels.tools import inner

PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS = 0, 1, 2


@inner
def chart_of(structure, n, size):
    """The chart of a structure over n ≥ 1 words, whose parts are those of size × size scores."""
    return span_chart(n, size) if structure == SPANS else tree_chart(n, size, structure == SINGLE_ROOT_TREES)


@inner
def _join(chart, e, left, right):
    chart.left[e], chart.right[e] = left, right
    return e + 1


@inner
def tree_chart(n, size, single_root):
    """Eisner's chart, as `projective_trees` has it: pairs of half trees, arcs over them, and half trees.

    An arc is a part, and the arcs into a word are a group.  complete[h, h] is the empty item.
    """
    nodes = n + 1
    chart = empty_chart(1 + 5 * nodes * nodes // 2, nodes**3 // 2 + 2 * nodes * nodes)
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
                    e = _join(chart, e, pair, 0)
                    chart.part[t], chart.group[t] = head * size + modifier, modifier
                    arc[head, modifier] = t
                    t += 1
                    chart.first[t] = e
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
def span_chart(n, size):
    """The chart of Cocke, Kasami and Younger.  A span of several words is a part; single words are in every tree."""
    chart = empty_chart(1 + n * n, n**3)
    span = np.zeros((n, n), np.int64)
    t, e = 1, 0
    for width in range(1, n):
        for i in range(n - width):
            j = i + width
            for k in range(i, j):
                e = _join(chart, e, span[i, k], span[k + 1, j])
            chart.part[t], chart.group[t] = i * size + j, -1
            span[i, j] = t
            t += 1
            chart.first[t] = e
    return trimmed(chart, t, e)

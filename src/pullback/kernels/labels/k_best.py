"""The k best labelled trees, from the k best trees with their best labels.

A labelled tree that is among the k best has a tree among the k best: each better tree is better with its best labels.
The labels of one tree are chosen word by word: the list of the best ways to label the words before m, and the labels of
the arc into m in decreasing order, merge into the next list.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner, kernel

# The best ways to label one tree.  loss[w]: what way w scores less than the best; origin[m, w]: which way to label the
# words before m it continues, with label chosen[m, w].  label, gap, place: those of one arc, in decreasing order.
_Ways = namedtuple("_Ways", ["loss", "next", "origin", "chosen", "label", "gap", "place"])

# The best labelled trees so far in decreasing order: values[rank], and the row of heads and labels that holds it.
_Best = namedtuple("_Best", ["values", "row", "heads", "labels"])


@inner
def _sort_labels(scores, label, gap):
    """The labels of an arc in decreasing order, and what they score less than the first; how many are allowed."""
    count = 0
    for k in range(len(scores)):
        if scores[k] > -np.inf:
            i = count
            while i > 0 and scores[label[i - 1]] < scores[k]:
                label[i] = label[i - 1]
                i -= 1
            label[i] = k
            count += 1
    for i in range(count):
        gap[i] = np.float64(scores[label[0]]) - scores[label[i]]
    return count


@inner
def _label_next(ways, m, count, labels, most):
    """The best ways to label the words up to m, from the `count` ways before it: their number."""
    for i in range(labels):
        ways.place[i] = 0
    found = 0
    while found < most:
        best, least = -1, np.inf
        for i in range(labels):
            if ways.place[i] < count and ways.loss[ways.place[i]] + ways.gap[i] < least:
                best, least = i, ways.loss[ways.place[i]] + ways.gap[i]
            if ways.place[i] == 0:  # no label after one that is still unused is better
                break
        if best < 0:
            break
        ways.next[found] = least
        ways.origin[m, found], ways.chosen[m, found] = ways.place[best], ways.label[best]
        ways.place[best] += 1
        found += 1
    for w in range(found):
        ways.loss[w] = ways.next[w]
    return found


@inner
def _label_tree(scores, n, tree, most, ways):
    """The best ways to label a tree, at most so many: their number."""
    ways.loss[0], count = 0.0, 1
    for m in range(1, n + 1):
        labels = _sort_labels(scores[tree[m], m], ways.label, ways.gap)
        count = _label_next(ways, m, count, labels, most)
    return count


@inner
def _keep(best, count, value, n, tree, ways, way):
    """Puts a labelled tree where it belongs among the `count` best, in place of the last if there is no room."""
    k = len(best.values)
    free = count if count < k else best.row[k - 1]
    i = min(count, k - 1)
    while i > 0 and best.values[i - 1] < value:
        best.values[i], best.row[i] = best.values[i - 1], best.row[i - 1]
        i -= 1
    best.values[i], best.row[i] = value, free
    for m in range(n, 0, -1):
        best.heads[free, m], best.labels[free, m] = tree[m], ways.chosen[m, way]
        way = ways.origin[m, way]
    return min(count + 1, k)


@kernel
def topk(scores, lengths, trees, values, trees_found, heads, labels, size, lo, hi):
    """The k best labelled trees, best first: heads[b, rank, m] and labels[b, rank, m], of which size[b] exist.

    trees (batch, k, N), values (batch, k) and trees_found (batch,): the k best trees with their best labels.
    """
    k, nodes = trees.shape[1:]
    most = scores.shape[3]
    ways = _Ways(
        np.empty(k), np.empty(k), np.empty((nodes, k), np.int64), np.empty((nodes, k), np.int64),
        np.empty(most, np.int64), np.empty(most), np.empty(most, np.int64),
    )  # fmt: skip
    rows = np.empty((2, k, nodes), np.int64)
    best = _Best(np.empty(k), np.empty(k, np.int64), rows[0], rows[1])
    for b in range(lo, hi):
        n, count = lengths[b], 0
        for rank in range(trees_found[b]):
            if count == k and values[b, rank] <= best.values[k - 1]:
                break
            for way in range(_label_tree(scores[b], n, trees[b, rank], k - rank, ways)):
                value = values[b, rank] - ways.loss[way]
                if count == k and value <= best.values[k - 1]:
                    break
                count = _keep(best, count, value, n, trees[b, rank], ways, way)
        for rank in range(count):
            for m in range(1, n + 1):
                heads[b, rank, m], labels[b, rank, m] = best.heads[best.row[rank], m], best.labels[best.row[rank], m]
        size[b] = count
    return -1

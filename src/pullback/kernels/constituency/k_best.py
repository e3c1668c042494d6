"""The k best binary trees: the recurrence over sorted lists, in O(n² k (n + k + t)).

A tree over i..j is a label and two trees: the list of splits merges the combinations of the lists below, and the list
of trees combines it with the sorted scores of the labels.  Since every tree is derived in one way only, the trees are
distinct.  Of N × N spans, the trees of span (i, j) are the list i · N + j; its splits come N² later, its labels 2 N².
"""

import numpy as np

from pullback.kernels.constituency.cky import best_labels, write_tree
from pullback.kernels.tools import inner, kernel, lists_of, merge_of, merge_terms


@inner
def _sort_labels(scores, lists, cell):
    """The list `cell` of the best labels of one span, by insertion."""
    most, number = lists.value.shape[1], 0
    for label in range(len(scores)):
        score = np.float64(scores[label])
        if score == -np.inf or (number == most and score <= lists.value[cell, most - 1]):
            continue
        rank = min(number, most - 1)
        while rank > 0 and lists.value[cell, rank - 1] < score:
            lists.value[cell, rank] = lists.value[cell, rank - 1]
            lists.origin[cell, rank, 0] = lists.origin[cell, rank - 1, 0]
            rank -= 1
        lists.value[cell, rank], lists.origin[cell, rank, 0] = score, label
        number = min(number + 1, most)
    lists.number[cell] = number


@inner
def _split(lists, merge, size, i, j):
    """Two trees side by side; nothing below a single word."""
    cell = size * size + i * size + j
    if i == j:
        lists.number[cell], lists.value[cell, 0] = 1, 0.0
        return
    for k in range(i, j):
        merge.split[k - i], merge.extra[k - i] = k, 0.0
        merge.left[k - i], merge.right[k - i] = i * size + k, (k + 1) * size + j
    merge_terms(lists, merge, j - i, cell)


@inner
def _fill(scores, n, lists, merge):
    """All lists of one instance."""
    size = len(scores)
    for width in range(n):
        for i in range(n - width):
            cell = i * size + i + width
            _split(lists, merge, size, i, i + width)
            _sort_labels(scores[i, i + width], lists, 2 * size * size + cell)
            merge.extra[0], merge.left[0], merge.right[0] = 0.0, 2 * size * size + cell, size * size + cell
            merge_terms(lists, merge, 1, cell)


@inner
def _read_tree(lists, size, n, rank, spans):
    """Writes the spans of the tree of the given rank: first word, last word, label, and its rank in its list."""
    spans[0, 0], spans[0, 1], spans[0, 3] = 0, n - 1, rank
    found = 1
    for at in range(2 * n - 1):
        i, j = spans[at, 0], spans[at, 1]
        origin = lists.origin[i * size + j, spans[at, 3]]
        label, split = origin[1], origin[2]
        spans[at, 2] = lists.origin[2 * size * size + i * size + j, label, 0]
        if i < j:
            origin = lists.origin[size * size + i * size + j, split]
            k = origin[0]
            spans[found, 0], spans[found, 1], spans[found, 3] = i, k, origin[1]
            spans[found + 1, 0], spans[found + 1, 1], spans[found + 1, 3] = k + 1, j, origin[2]
            found += 2


@kernel
def topk(scores, lengths, k, vertices, size, lo, hi):
    """The k best trees of each instance, best first: vertices[b, rank, i, j, label], of which size[b] exist."""
    words = scores.shape[1]
    best = np.empty((words, words))
    lists, merge = lists_of(3 * words * words, k), merge_of(max(words, 1), k)
    spans = np.empty((2 * words, 4), np.int64)
    for b in range(lo, hi):
        n = lengths[b]
        vertices[b] = 0.0
        if not best_labels(scores[b], n, best):
            return b
        size[b] = 1
        if n > 0:
            _fill(scores[b], n, lists, merge)
            size[b] = lists.number[n - 1]
            if size[b] == 0:
                return b
            for rank in range(size[b]):
                _read_tree(lists, words, n, rank, spans)
                write_tree(spans, n, vertices[b, rank])
    return -1

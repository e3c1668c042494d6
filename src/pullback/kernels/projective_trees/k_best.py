"""The k best projective trees: Eisner's recurrences over sorted lists, in O(n² k (n + k)).

Each cell of the chart holds the k best values of its half trees, and a sum over splits is a merge of such lists.  Since
every tree is derived in one way only, the trees are distinct.  complete[head, end] is the list head · size + end;
pair[i, j] comes size² later.

Reference: Huang and Chiang (2005).
"""

import numpy as np

from pullback.kernels.projective_trees.eisner import load
from pullback.kernels.tools import inner, kernel, lists_of, merge_of, merge_terms


@inner
def _pair(lists, merge, size, i, j):
    """Two half trees, back to back."""
    for k in range(i, j):
        merge.split[k - i], merge.extra[k - i] = k, 0.0
        merge.left[k - i], merge.right[k - i] = i * size + k, j * size + k + 1
    merge_terms(lists, merge, j - i, size * size + i * size + j)


@inner
def _complete(lists, merge, weight, head, end):
    """The half trees of `head` as far as `end`, by the last child m."""
    size = len(weight)
    first, last = (head + 1, end) if head < end else (end, head - 1)
    for m in range(first, last + 1):
        merge.split[m - first], merge.extra[m - first] = m, weight[head, m]
        merge.left[m - first] = size * size + min(head, m) * size + max(head, m)
        merge.right[m - first] = m * size + end
    merge_terms(lists, merge, last + 1 - first, head * size + end)


@inner
def _fill(weight, n, single_root, lists, merge):
    """All lists of one instance."""
    size = len(weight)
    for i in range(n + 1):
        lists.number[i * size + i] = 1
        lists.value[i * size + i, 0] = 0.0
    for width in range(1, n + 1):
        for i in range(n + 1 - width):
            _pair(lists, merge, size, i, i + width)
            _complete(lists, merge, weight, i, i + width)
            _complete(lists, merge, weight, i + width, i)
        if single_root and width < n:
            lists.number[width] = 0  # the root has no half tree that ends before n


@inner
def _read_tree(lists, size, n, rank, stack, heads):
    """Writes the heads of the tree of the given rank; `stack` holds (head, end, rank) of half trees to be opened."""
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, n, rank
    top = 1
    while top:
        top -= 1
        head, end = stack[top, 0], stack[top, 1]
        if head == end:
            continue
        origin = lists.origin[head * size + end, stack[top, 2]]
        m, a, b = origin[0], origin[1], origin[2]
        heads[m] = head
        i, j = min(head, m), max(head, m)
        origin = lists.origin[size * size + i * size + j, a]
        k, c, d = origin[0], origin[1], origin[2]
        stack[top, 0], stack[top, 1], stack[top, 2] = m, end, b
        stack[top + 1, 0], stack[top + 1, 1], stack[top + 1, 2] = i, k, c
        stack[top + 2, 0], stack[top + 2, 1], stack[top + 2, 2] = j, k + 1, d
        top += 3


@kernel
def topk(scores, lengths, single_root, k, heads, values, counts, lo, hi):
    """The k best trees of each instance, best first: heads[b, rank, m] and values[b, rank], of which counts[b] exist.

    Beyond counts[b], heads are zero and values −∞.
    """
    size = scores.shape[1]
    weight = np.empty((size, size))
    lists, merge = lists_of(2 * size * size, k), merge_of(size, k)
    stack = np.empty((3 * size, 3), np.int64)
    for b in range(lo, hi):
        n = lengths[b]
        heads[b] = 0
        values[b] = -np.inf
        if not load(scores[b], n, weight):
            return b
        _fill(weight, n, single_root, lists, merge)
        counts[b] = lists.number[n]
        if counts[b] == 0:
            return b
        for rank in range(counts[b]):
            values[b, rank] = lists.value[n, rank]
            _read_tree(lists, size, n, rank, stack, heads[b, rank])
    return -1

"""Binary trees over spans of words: the recurrence of Cocke, Kasami and Younger, and the best tree in O(n³).

A tree over the words i..j is a span with two trees below it, split after some word k.  With w[i, j] the weight of the
span from word i to word j, both included,

    tree[i, i] = w[i, i]
    tree[i, j] = w[i, j] · Σ_{i ≤ k < j} tree[i, k] · tree[k + 1, j]

and tree[0, n − 1] holds all trees; every tree is one term.  (+, ·) may be any semiring: (max, +) gives the best tree.
A span of the tree carries one of t labels, and labels do not interact: w[i, j] is the sum of their weights, and the
labels of a tree are chosen once its spans are known.  Without labels, t = 1.

The sum is a dot product of a row and a column.  `tree` is symmetric, tree[j, i] = tree[i, j], so that both are rows.

References: Kasami (1965); Younger (1967).
"""

import numpy as np

from pullback.kernels.tools import compiled, first_best, inner, kernel
from pullback.kernels.tools import semirings as ring


def inside_over(dot, times):
    """The inside sweep over a semiring: Σ x·y of two rows, and the product."""

    def inside(weight, n, tree):
        """Fills the chart; returns the sum over all trees over n ≥ 1 words."""
        for i in range(n):
            tree[i, i] = weight[i, i]
        for width in range(1, n):
            for i in range(n - width):
                j = i + width
                tree[i, j] = tree[j, i] = times(weight[i, j], dot(tree[i, i:j], tree[j, i + 1 : j + 1]))
        return tree[0, n - 1]

    return compiled(inside, f"inside_{dot.__name__}")


def reader_over(choose, choose_label):
    """Reads a tree off an inside chart, top down: choose(x, y, random) picks a term of the sum Σ x·y."""

    def read_tree(scores, n, tree, random, zeros, spans):
        """Writes the 2n − 1 spans of a tree, (first word, last word, label), a span before those below it.

        `zeros` has one for each label.
        """
        spans[0, 0], spans[0, 1] = 0, n - 1
        found = 1
        for at in range(2 * n - 1):
            i, j = spans[at, 0], spans[at, 1]
            spans[at, 2] = choose_label(scores[i, j], zeros, random) if len(zeros) > 1 else 0
            if i < j:
                k = i + choose(tree[i, i:j], tree[j, i + 1 : j + 1], random)
                spans[found, 0], spans[found, 1] = i, k
                spans[found + 1, 0], spans[found + 1, 1] = k + 1, j
                found += 2

    return compiled(read_tree, f"read_{choose.__name__}")


inside_max = inside_over(ring.max_plus, ring.add)
read_best = reader_over(first_best, first_best)


@inner
def best_labels(scores, n, best):
    """best[i, j] = the largest score of a label of the span; False if a score is NaN or +∞."""
    valid = True
    for i in range(n):
        for j in range(i, n):
            largest = -np.inf
            for label in range(scores.shape[2]):
                valid &= scores[i, j, label] < np.inf
                largest = max(largest, scores[i, j, label])
            best[i, j] = largest
    return valid


@inner
def write_tree(spans, n, vertex):
    """Writes ones at the spans of a tree; the rest is left as it is."""
    for at in range(2 * n - 1):
        vertex[spans[at, 0], spans[at, 1], spans[at, 2]] = 1.0


@inner
def best_tree(scores, n, weight, tree, zeros, spans):
    """Writes the spans of the best tree over n ≥ 1 words, given best_labels; False if there is none.

    Back-pointers are not kept: the terms of the answer's n − 1 sums are searched again, so the sums vectorize.
    """
    if inside_max(weight, n, tree) == -np.inf:
        return False
    read_best(scores, n, tree, spans, zeros, spans)
    return True


@kernel
def argmax(scores, lengths, vertex, lo, hi):
    """The best tree over the first lengths[b] words of each instance; scores and vertex are [b, i, j, label]."""
    size = scores.shape[1]
    weight, tree = np.empty((size, size)), np.empty((size, size))
    zeros, spans = np.zeros(scores.shape[3]), np.empty((2 * size, 3), np.int64)
    for b in range(lo, hi):
        n = lengths[b]
        vertex[b] = 0.0
        if not best_labels(scores[b], n, weight):
            return b
        if n > 0:
            if not best_tree(scores[b], n, weight, tree, zeros, spans):
                return b
            write_tree(spans, n, vertex[b])
    return -1

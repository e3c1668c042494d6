"""Projective dependency trees: Eisner's recurrences.

A projective tree is a nest of half trees.  With w[h, m] the weight of an arc, i < j, and e on either side of h,

    pair[i, j]       = Σ_{i ≤ k < j} complete[i, k] · complete[j, k + 1]      two half trees, back to back
    incomplete[h, m] = w[h, m] · pair[h, m]                                   an arc is laid over them
    complete[h, e]   = Σ_m incomplete[h, m] · complete[m, e]                  m, the last child of h, in (h, e]

where complete[h, e] holds all half trees of the head h over the words from h to e, and complete[0, n] all trees.  Every
tree is one term.  (+, ·) may be any semiring; `best` has (max, +), in an order of its own.  Exactly one root arc: the
root has no half tree complete[0, e] that ends before n.

Each sum is a dot product.  Heads are rows, so both factors of `pair` are stretches of rows; `complete` is kept
transposed as well for the other sum, and every inner loop runs over contiguous memory.

Reference: Eisner (1996).
"""

import numpy as np

from pullback.kernels.tools import compiled, inner


def inside_over(dot, times, zero, one):
    """The inside sweep over a semiring: Σ x·y of two rows, the product, and the neutral elements."""

    def inside(weight, n, single_root, chart):
        """Fills complete, its transpose and incomplete (chart[0], [1], [2]); returns the sum over all trees."""
        complete, complete_t, incomplete = chart[0], chart[1], chart[2]
        for i in range(n + 1):
            complete[i, i] = complete_t[i, i] = one
        for width in range(1, n + 1):
            for i in range(n + 1 - width):
                j = i + width
                pair = dot(complete[i, i:j], complete[j, i + 1 : j + 1])
                incomplete[i, j] = times(weight[i, j], pair)
                incomplete[j, i] = times(weight[j, i], pair)
                right = dot(incomplete[i, i + 1 : j + 1], complete_t[j, i + 1 : j + 1])
                left = dot(incomplete[j, i:j], complete_t[i, i:j])
                if single_root and i == 0 and j < n:
                    right = zero
                complete[i, j] = complete_t[j, i] = right
                complete[j, i] = complete_t[i, j] = left
        return complete[0, n]

    return compiled(inside, f"inside_{dot.__name__}")


def reader_over(choose):
    """Reads a tree off an inside chart, top down: choose(x, y, random) picks a term of the sum Σ x·y."""

    def read_tree(n, chart, random, stack, heads):
        """Writes the head of every word 1..n; `stack` holds the (head, end) of the half trees still to be opened."""
        complete, complete_t, incomplete = chart[0], chart[1], chart[2]
        stack[0, 0], stack[0, 1] = 0, n
        top = 1
        while top:
            top -= 1
            head, end = stack[top, 0], stack[top, 1]
            if head == end:
                continue
            first, last = (head + 1, end) if head < end else (end, head - 1)
            m = first + choose(incomplete[head, first : last + 1], complete_t[end, first : last + 1], random)
            heads[m] = head
            i, j = min(head, m), max(head, m)
            k = i + choose(complete[i, i:j], complete[j, i + 1 : j + 1], random)
            stack[top, 0], stack[top, 1] = m, end
            stack[top + 1, 0], stack[top + 1, 1] = i, k
            stack[top + 2, 0], stack[top + 2, 1] = j, k + 1
            top += 3

    return compiled(read_tree, f"read_{choose.__name__}")


@inner
def load(scores, n, weight):
    """Copies the scores of the arcs over n words; arcs into the root become −∞.  False if one is NaN or +∞."""
    valid = True
    for head in range(n + 1):
        weight[head, 0] = -np.inf
        for modifier in range(1, n + 1):
            weight[head, modifier] = scores[head, modifier]
            valid &= (scores[head, modifier] < np.inf) | (head == modifier)
    return valid

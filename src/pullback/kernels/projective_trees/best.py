"""The best projective tree: Eisner's recurrences over (max, +), many half trees at a time.

Half trees over equally many words do not depend on each other, so a vector register holds those that start at
neighboring words.  For that, charts are kept by width: what spans the words i, …, i + w is at [w, i], and

    pair[w, i]  = max_k  right[k, i] + left[w − 1 − k, i + k + 1]
    right[w, i] = max_k  arc_right[k + 1, i] + right[w − 1 − k, i + k + 1]
    left[w, i]  = max_k  left[k, i] + arc_left[w − k, i + k]            0 ≤ k < w

where right[w, i] is complete[i, i + w] of `eisner`, left[w, i] is complete[i + w, i], arc_right and arc_left are the
incomplete ones.  In each maximum, k moves one factor by a row, the other by a row back and a column on.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels.projective_trees.eisner import load
from pullback.kernels.tools import inner, kernel

_LANES, _VECTORS = 4, 2
TOGETHER = _LANES * _VECTORS  # half trees that are computed at once; a row of a chart has so much room at its end

_VECTOR = ir.VectorType(ir.DoubleType(), _LANES)
_INDEX = ir.IntType(64)


@intrinsic
def _best_sums(typing, row, count, sums):
    """out[o + r] = max_k a[i + r + k row] + b[j + r − k (row − 1)], for r < TOGETHER and k < count.

    `sums` has out, o, a, i, b, j for one maximum or for several, which share a loop and do not wait for each other.
    """

    def emit(context, builder, signature, args):
        row, count, given = args
        types_of = signature.args[2].types
        back = builder.sub(row, ir.Constant(_INDEX, 1))
        lowest = ir.Constant(_VECTOR, [-np.inf] * _LANES)

        def start(k):
            array = context.make_array(types_of[k])(context, builder, builder.extract_value(given, k))
            return builder.gep(array.data, [builder.extract_value(given, k + 1)])

        def place(where, offset, v):
            where = builder.gep(where, [builder.add(offset, ir.Constant(_INDEX, v * _LANES))])
            return builder.bitcast(where, _VECTOR.as_pointer())

        starts = [(start(k), start(k + 2), start(k + 4)) for k in range(0, len(types_of), 6)]
        best = [[cgutils.alloca_once_value(builder, lowest) for _ in range(_VECTORS)] for _ in starts]
        with cgutils.for_range(builder, count) as loop:
            down = builder.mul(loop.index, row)
            up = builder.neg(builder.mul(loop.index, back))
            for (_, a, b), found in zip(starts, best):
                for v in range(_VECTORS):
                    x = builder.load(place(a, down, v), align=8)
                    y = builder.load(place(b, up, v), align=8)
                    total, largest = builder.fadd(x, y), builder.load(found[v])
                    larger = builder.fcmp_ordered(">", total, largest, flags=("nnan", "nsz"))
                    builder.store(builder.select(larger, total, largest), found[v])
        for (out, _, _), found in zip(starts, best):
            for v in range(_VECTORS):
                builder.store(builder.load(found[v]), place(out, ir.Constant(_INDEX, 0), v), align=8)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, sums), emit


@inner
def best_charts(size):
    """Room for right, left, arc_right, arc_left and pair over `size` nodes."""
    return np.empty((5, size * (size + TOGETHER)))


@inner
def inside_best(weight, n, single_root, charts):
    """Fills the charts; returns the score of the best tree over n words, −∞ if there is none."""
    right, left, arc_right, arc_left, pair = charts[0], charts[1], charts[2], charts[3], charts[4]
    row = weight.shape[0] + TOGETHER
    for i in range(n + 1):
        right[i] = left[i] = 0.0
    for width in range(1, n + 1):
        at, below = width * row, (width - 1) * row  # where this width begins, and the one before
        starts = n + 1 - width
        for i in range(0, starts, TOGETHER):
            _best_sums(row, width, (pair, at + i, right, i, left, below + i + 1))
        for i in range(starts):
            arc_right[at + i] = weight[i, i + width] + pair[at + i]
            arc_left[at + i] = weight[i + width, i] + pair[at + i]
        for i in range(0, starts, TOGETHER):
            both = (
                right, at + i, arc_right, row + i, right, below + i + 1,
                left, at + i, left, i, arc_left, at + i,
            )  # fmt: skip
            _best_sums(row, width, both)
        if single_root and width < n:
            right[at] = -np.inf  # the root has no half tree that ends before the last word
    return right[n * row]


@inner
def _first_best(a, i, b, j, row, best):
    """The first k where the sum of `_best_sums` is `best`, which the same sum was found to be."""
    k = 0
    while a[i + k * row] + b[j - k * (row - 1)] != best:
        k += 1
    return k


@inner
def read_best(size, n, charts, stack, heads):
    """Writes the head of every word 1..n; `stack` holds the (head, end) of the half trees still to be opened."""
    right, left, arc_right, arc_left, pair = charts[0], charts[1], charts[2], charts[3], charts[4]
    row = size + TOGETHER
    stack[0, 0], stack[0, 1] = 0, n
    top = 1
    while top:
        top -= 1
        head, end = stack[top, 0], stack[top, 1]
        width = abs(end - head)
        if width == 0:
            continue
        at, below = width * row, (width - 1) * row
        if head < end:
            m = head + 1 + _first_best(arc_right, row + head, right, below + head + 1, row, right[at + head])
        else:
            m = end + _first_best(left, end, arc_left, at + end, row, left[at + end])
        heads[m] = head
        i, j = min(head, m), max(head, m)
        k = i + _first_best(right, i, left, (j - i - 1) * row + i + 1, row, pair[(j - i) * row + i])
        stack[top, 0], stack[top, 1] = m, end
        stack[top + 1, 0], stack[top + 1, 1] = i, k
        stack[top + 2, 0], stack[top + 2, 1] = j, k + 1
        top += 3


@kernel
def argmax(scores, lengths, single_root, heads, lo, hi):
    """The best tree of each instance: heads[b, m] for words 1..lengths[b], zero elsewhere.  O(n³).

    Back-pointers are not kept: the terms of the answer's n maxima are searched again, so the maxima vectorize.
    """
    size = scores.shape[1]
    weight = np.empty((size, size))
    charts = best_charts(size)
    stack = np.empty((3 * size, 2), np.int64)
    for b in range(lo, hi):
        n = lengths[b]
        heads[b] = 0
        if not load(scores[b], n, weight) or inside_best(weight, n, single_root, charts) == -np.inf:
            return b
        read_best(size, n, charts, stack, heads[b])
    return -1

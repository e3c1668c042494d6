"""What bids look for: the best scores of columns, and the best two columns of a row."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from pullback.kernels.tools import borrowing, fmax, fours


@borrowing
def best_of_columns(score, best):
    """The largest score of each column, −∞ if it has none; NaN does not count."""
    rows, cols = score.shape
    for j in range(0, cols - 3, 4):
        _best_of_four_columns(score, rows, cols, j, best)
    if cols >= 4:
        _best_of_four_columns(score, rows, cols, cols - 4, best)
        return
    for j in range(cols):
        best[j] = -np.inf
        for i in range(rows):
            best[j] = fmax(score[i, j], best[j])


@fours.loop_of(fours.NOTHING, "annna")
def _best_of_four_columns(loops, score, rows, cols, j, best):
    largest = loops.variable(float("-inf"))
    with cgutils.for_range(loops.builder, rows) as row:
        there = loops.load(score, loops.builder.mul(row.index, cols), j)
        loops.builder.store(loops.larger(there, loops.builder.load(largest)), largest)
    loops.store(loops.builder.load(largest), best, j)


@borrowing
def best_two(row, price):
    """The largest row − price, the second largest, and the column of the largest, −1 if all are −∞."""
    cols = row.shape[0]
    if cols >= 4:
        return _best_two_of_fours(row, price, cols)
    best, second, place = -np.inf, -np.inf, -1
    for j in range(cols):
        gain = row[j] - price[j]
        better = gain > best
        second = fmax(best if better else gain, second)
        best, place = gain if better else best, j if better else place
    return best, second, place


@fours.loop_of(types.Tuple((fours.X, fours.X, fours.N)), "aan")
def _best_two_of_fours(loops, row, price, cols):
    """Each of four lanes keeps its own best two; there is no branch that could be mispredicted.

    The last four columns are looked at again, except for those already seen: a row is short, and columns that came one
    by one would wait for each other.
    """
    builder = loops.builder
    best, second = loops.variable(float("-inf")), loops.variable(float("-inf"))
    place = cgutils.alloca_once_value(builder, ir.Constant(fours.INTEGERS, [-1] * 4))

    def together(a, b):
        """The best two of two pairs, each a best with its column, and a second best or None."""
        better = builder.fcmp_ordered(">", b[0], a[0])
        runner_up = loops.larger(builder.select(better, a[0], b[0]), a[2])
        largest, column = (builder.select(better, y, x) for x, y in zip(a[:2], b))
        return largest, column, runner_up if b[2] is None else loops.larger(b[2], runner_up)

    def look_at(j, unseen):
        columns = builder.add(loops.spread(j), ir.Constant(fours.INTEGERS, [0, 1, 2, 3]))
        gain = builder.fsub(loops.load(row, j), loops.load(price, j))
        gain = loops.where(builder.icmp_signed(">=", columns, loops.spread(unseen)), gain, float("-inf"))
        so_far = tuple(map(builder.load, (best, place, second)))
        for value, variable in zip(together(so_far, (gain, columns, None)), (best, place, second)):
            builder.store(value, variable)

    whole = builder.and_(cols, ir.Constant(fours.LONG, -4))
    with loops.loop(whole) as (j, _):
        look_at(j, j)
    look_at(builder.sub(cols, ir.Constant(fours.LONG, 4)), whole)
    found = tuple(map(builder.load, (best, place, second)))
    for _ in range(2):
        found = together(*(tuple(loops.half(lanes, which) for lanes in found) for which in (0, 1)))
    return found[0], found[2], found[1]

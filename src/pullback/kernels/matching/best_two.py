"""The best two columns of a row that bids."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pullback.kernels.tools import fmax, fours, inner


@inner
def best_two(row, price):
    """The largest row − price, the second largest, and the column of the largest, −1 if all are −∞."""
    cols = row.shape[0]
    whole = cols - cols % 4
    best, second, place = _best_two_of_fours(row, price, whole)
    for j in range(whole, cols):
        gain = row[j] - price[j]
        better = gain > best
        second = fmax(best if better else gain, second)
        best, place = gain if better else best, j if better else place
    return best, second, place


@fours.loop_of(types.Tuple((fours.X, fours.X, fours.N)), "aan")
def _best_two_of_fours(loops, row, price, length):
    """Each of four lanes keeps its own best two; there is no branch that could be mispredicted."""
    builder = loops.builder
    best, second = loops.variable(float("-inf")), loops.variable(float("-inf"))
    place = cgutils.alloca_once_value(builder, ir.Constant(fours.INTEGERS, [-1] * 4))

    def together(a, b, runner_up):
        """The best of a and b and its column; the lesser of them, if not below `runner_up`."""
        better = builder.fcmp_ordered(">", b[0], a[0])
        lesser = builder.select(better, a[0], b[0])
        largest, column = (builder.select(better, y, x) for x, y in zip(a, b))
        return (largest, column), loops.larger(lesser, runner_up)

    with loops.loop(length) as (j, _):
        gain = builder.fsub(loops.load(row, j), loops.load(price, j))
        columns = builder.add(loops.spread(j), ir.Constant(fours.INTEGERS, [0, 1, 2, 3]))
        so_far = builder.load(best), builder.load(place)
        (largest, column), runner_up = together(so_far, (gain, columns), builder.load(second))
        for value, variable in ((largest, best), (column, place), (runner_up, second)):
            builder.store(value, variable)

    def lane(variable, k):
        return builder.extract_element(builder.load(variable), ir.Constant(ir.IntType(32), k))

    top, runner_up = (lane(best, 0), lane(place, 0)), lane(second, 0)
    for k in range(1, 4):
        top, runner_up = together(top, (lane(best, k), lane(place, k)), loops.larger(lane(second, k), runner_up))
    return top[0], runner_up, top[1]

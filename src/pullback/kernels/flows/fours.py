"""Loops over four neighbors at a time, where a compiler does not find them by itself.

The runs of a graph are padded to a multiple of four edges, all their loops are short, and half of Newton's method is
spent in them.  `length` is a multiple of four everywhere; arrays come with the place at which a loop begins.
"""

import inspect

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_X, _N = types.float64, types.int64
_LONG = ir.IntType(64)
_NUMBERS, _INTEGERS = ir.VectorType(ir.DoubleType(), 4), ir.VectorType(_LONG, 4)
_FUSED = ("contract",)


class _Fours:
    """What the loops below are written with; `arguments` are numbers, and arrays as pointers to their first number."""

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        self.arguments = [
            context.make_array(kind)(context, builder, arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args)
        ]

    def loop(self, length):
        """Goes through 0, 4, 8, … below `length`."""
        return cgutils.for_range_slice(self.builder, ir.Constant(_LONG, 0), length, ir.Constant(_LONG, 4))

    def _at(self, array, *places):
        for place in places:
            array = self.builder.gep(array, [place])
        return self.builder.bitcast(array, ir.VectorType(array.type.pointee, 4).as_pointer())

    def load(self, array, *places):
        return self.builder.load(self._at(array, *places), align=8)

    def store(self, value, array, *places):
        self.builder.store(value, self._at(array, *places), align=8)

    def spread(self, number):
        """A vector that holds this number four times."""
        kind = ir.VectorType(number.type, 4)
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4))

    def variable(self, number):
        """A vector that a loop changes; at first, this number four times."""
        return cgutils.alloca_once_value(self.builder, ir.Constant(_NUMBERS, [number] * 4))

    def larger(self, a, b):
        """max(a, b), which ignores NaN in `a`."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def raised(self, a, b):
        """max(a, b) of two that are not NaN.

        It, and no choice between old and new, is what may be stored where `a` came from: a compiler takes the latter
        for a store of some of the four, and that takes long.
        """
        kind = ir.FunctionType(_NUMBERS, [_NUMBERS, _NUMBERS])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.maxnum.v4f64")
        return self.builder.call(function, [a, b], fastmath=("nnan", "nsz"))

    def where(self, condition, a, number):
        return self.builder.select(condition, a, ir.Constant(_NUMBERS, [number] * 4))

    def add_product(self, total, a, b):
        return self.builder.fadd(total, self.builder.fmul(a, b, flags=_FUSED), flags=_FUSED)

    def fold(self, vector, together):
        """together(together(a, b), together(c, d)) of the numbers a, b, c, d in a vector."""
        a, b, c, d = (self.builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(4))
        return together(together(a, b), together(c, d))

    def sum(self, vector):
        return self.fold(vector, self.builder.fadd)


def _loop(result, kinds):
    """Makes a function that kernels can call from one of `_Fours` and its arguments.

    kinds: a letter for each argument, `a` for an array, `n` for an integer and `x` for a number.
    """

    def decorate(emit):
        def typed(typing, *given):
            wanted = (kind if letter == "a" else {"n": _N, "x": _X}[letter] for letter, kind in zip(kinds, given))
            return result(*wanted), generate

        def generate(context, builder, signature, args):
            fours = _Fours(context, builder, signature, args)
            answer = emit(fours, *fours.arguments)
            if isinstance(answer, tuple):
                return context.make_tuple(builder, signature.return_type, answer)
            return context.get_dummy_value() if answer is None else answer

        typed.__signature__ = inspect.signature(emit)  # whose first argument is another, by the same place
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return decorate


_NOTHING, _PAIR, _FOUR = types.void, types.UniTuple(_X, 2), types.UniTuple(_X, 4)


# ---- runs of edges: score[e + k] of an edge to the node h + k


@_loop(_NOTHING, "anxanna")
def move(fours, score, e, here, potential, h, length, reduced):
    """reduced[e + k] = score[e + k] + (here − potential[h + k]); potentials first: their difference may be exact."""
    builder, here = fours.builder, fours.spread(here)
    with fours.loop(length) as (k, _):
        difference = builder.fsub(here, fours.load(potential, h, k))
        fours.store(builder.fadd(fours.load(score, e, k), difference), reduced, e, k)


@_loop(_NOTHING, "anxann")
def reach(fours, value, e, least, marks, h, length):
    """Changes marks[h + k] from 0 to 1 where value[e + k] > least."""
    builder, least = fours.builder, fours.spread(least)
    with fours.loop(length) as (k, _):
        is_above = builder.fcmp_ordered(">", fours.load(value, e, k), least)
        mark = fours.where(is_above, ir.Constant(_NUMBERS, [1.0] * 4), 0.0)
        fours.store(fours.raised(fours.load(marks, h, k), mark), marks, h, k)


@_loop(types.boolean, "anxxann")
def leads_to(fours, value, e, least, mark, marks, h, length):
    """Whether marks[h + k] is `mark` for any value[e + k] > least."""
    builder, least, mark = fours.builder, fours.spread(least), fours.spread(mark)
    found = cgutils.alloca_once_value(builder, ir.Constant(_INTEGERS, [0] * 4))
    with fours.loop(length) as (k, _):
        is_above = builder.fcmp_ordered(">", fours.load(value, e, k), least)
        is_marked = builder.fcmp_ordered("==", fours.load(marks, h, k), mark)
        both = builder.sext(builder.and_(is_above, is_marked), _INTEGERS)
        builder.store(builder.or_(builder.load(found), both), found)
    anywhere = builder.icmp_signed("!=", builder.load(found), ir.Constant(_INTEGERS, [0] * 4))
    return builder.icmp_signed("!=", builder.bitcast(anywhere, ir.IntType(4)), ir.Constant(ir.IntType(4), 0))


@_loop(_NOTHING, "aanxxann")
def raise_bounds(fours, lower, before, h, start, edges, score, e, length):
    """lower[h + k] = max(itself, start + score[e + k]); before[h + k] = edges where that is an increase."""
    builder, start, edges = fours.builder, fours.spread(start), fours.spread(edges)
    with fours.loop(length) as (k, _):
        found, known = builder.fadd(start, fours.load(score, e, k)), fours.load(lower, h, k)
        is_better = builder.fcmp_ordered(">", found, known)
        fours.store(fours.raised(known, found), lower, h, k)
        so_far = fours.load(before, h, k)
        fours.store(builder.fadd(so_far, fours.where(is_better, builder.fsub(edges, so_far), 0.0)), before, h, k)


@_loop(_PAIR, "aanann")
def lowest(fours, upper, behind, h, score, e, length):
    """min of upper[h + k] − score[e + k], and behind[h + k] at a k where it is attained; (∞, 0) if nowhere."""
    builder, best, edges = fours.builder, fours.variable(float("-inf")), fours.variable(0.0)
    with fours.loop(length) as (k, _):
        found, known = builder.fsub(fours.load(score, e, k), fours.load(upper, h, k)), builder.load(best)
        is_better = builder.fcmp_ordered(">", found, known)
        builder.store(builder.select(is_better, found, known), best)
        builder.store(builder.select(is_better, fours.load(behind, h, k), builder.load(edges)), edges)
    least = fours.fold(builder.load(best), fours.larger)
    is_least = builder.fcmp_ordered("==", builder.load(best), fours.spread(least))
    return builder.fneg(least), fours.fold(fours.where(is_least, builder.load(edges), 0.0), fours.larger)


@_loop(_X, "ann")
def largest(fours, row, e, length):
    """The largest of row[e + k]."""
    builder, best = fours.builder, fours.variable(float("-inf"))
    with fours.loop(length) as (k, _):
        builder.store(fours.larger(fours.load(row, e, k), builder.load(best)), best)
    return fours.fold(builder.load(best), fours.larger)


@_loop(_PAIR, "annx")
def sum_above(fours, row, e, length, threshold):
    """Σ max(0, row[e + k] − threshold), and the number of positive terms."""
    builder, threshold = fours.builder, fours.spread(threshold)
    total, count = fours.variable(0.0), fours.variable(0.0)
    one = ir.Constant(_NUMBERS, [1.0] * 4)
    with fours.loop(length) as (k, _):
        flow = builder.fsub(fours.load(row, e, k), threshold)
        is_above = builder.fcmp_ordered(">", flow, ir.Constant(_NUMBERS, [0.0] * 4))
        builder.store(builder.fadd(builder.load(total), fours.where(is_above, flow, 0.0)), total)
        builder.store(builder.fadd(builder.load(count), fours.where(is_above, one, 0.0)), count)
    return fours.sum(builder.load(total)), fours.sum(builder.load(count))


# Which of four numbers are chosen, as bits, and their places: first those that are chosen.
_PLACES = [[k for k in range(4) if bits >> k & 1] + [k for k in range(4) if not bits >> k & 1] for bits in range(16)]


@_loop(_N, "anxnnnaaan")
def append(fours, value, e, least, u, h, length, tail, head, edge, count):
    """Appends u, h + k and e + k to three lists for each value[e + k] > least; returns their new length.

    Without a branch: all four are written, and what was not chosen is written over.
    """
    builder, least = fours.builder, fours.spread(least)
    table = ir.Constant(ir.ArrayType(_INTEGERS, 16), [ir.Constant(_INTEGERS, places) for places in _PLACES])
    places = cgutils.global_constant(builder, "places", table)
    total = cgutils.alloca_once_value(builder, count)
    with fours.loop(length) as (k, _):
        bits = builder.bitcast(builder.fcmp_ordered(">", fours.load(value, e, k), least), ir.IntType(4))
        chosen = builder.load(builder.gep(places, [ir.Constant(_LONG, 0), builder.zext(bits, _LONG)]))
        count = builder.load(total)
        for array, first in ((head, h), (edge, e)):
            fours.store(builder.add(chosen, fours.spread(builder.add(first, k))), array, count)
        fours.store(fours.spread(u), tail, count)
        builder.store(builder.add(count, builder.zext(builder.ctpop(bits), _LONG)), total)
    return builder.load(total)


# ---- rows of a matrix, in one flat array: four rows begin at `first`, each `width` behind the one before


def _rows_from(fours, first, width):
    starts = [first]
    for _ in range(3):
        starts.append(fours.builder.add(starts[-1], width))
    return starts


@_loop(_NOTHING, "annxxxxxx")
def eliminate_within(fours, rows, first, width, a, b, c, d, e, f):
    """Subtracts from each of four rows those before it, with the factors of (0, 1), (0, 2), (1, 2), (0, 3), …"""
    starts = _rows_from(fours, first, width)
    factors = [fours.spread(fours.builder.fneg(factor)) for factor in (a, b, c, d, e, f)]
    with fours.loop(width) as (column, _):
        values = [fours.load(rows, start, column) for start in starts]
        for factor, (i, j) in zip(factors, ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))):
            values[j] = fours.add_product(values[j], factor, values[i])
        for start, value in zip(starts[1:], values[1:]):
            fours.store(value, rows, start, column)


@_loop(_NOTHING, "annnnxxxxnxxxx")
def subtract(fours, rows, first, width, length, one, a, b, c, d, other, e, f, g, h):
    """Subtracts multiples of four rows from two more, with factors a … d from that at `one`, e … h from `other`."""
    starts = _rows_from(fours, first, width)
    goals = [(one, (a, b, c, d)), (other, (e, f, g, h))]
    goals = [(goal, [fours.spread(fours.builder.fneg(factor)) for factor in factors]) for goal, factors in goals]
    with fours.loop(length) as (column, _):
        values = [fours.load(rows, start, column) for start in starts]
        for goal, factors in goals:
            total = fours.load(rows, goal, column)
            for value, factor in zip(values, factors):
                total = fours.add_product(total, factor, value)
            fours.store(total, rows, goal, column)


@_loop(_FOUR, "annnn")
def multiply(fours, rows, first, width, length, x):
    """The products of four rows with the row that begins at x."""
    starts = _rows_from(fours, first, width)
    totals = [fours.variable(0.0) for _ in starts]
    with fours.loop(length) as (c, _):
        factor = fours.load(rows, x, c)
        for start, total in zip(starts, totals):
            fours.builder.store(fours.add_product(fours.builder.load(total), fours.load(rows, start, c), factor), total)
    return tuple(fours.sum(fours.builder.load(total)) for total in totals)

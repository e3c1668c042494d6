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

    def loop(self, length, first=0):
        """Goes through 0, 4, 8, … below `length`; from `first` on."""
        return cgutils.for_range_slice(self.builder, ir.Constant(_LONG, first), length, ir.Constant(_LONG, 4))

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

    def counter(self):
        return cgutils.alloca_once_value(self.builder, ir.Constant(_LONG, 0))

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

    # ---- steps that several loops take

    def is_positive(self, vector):
        return self.builder.fcmp_ordered(">", vector, ir.Constant(_NUMBERS, [0.0] * 4))

    def move(self, score, e, here, potential, h, k, reduced):
        moved = self.builder.fadd(self.load(score, e, k), self.builder.fsub(here, self.load(potential, h, k)))
        self.store(moved, reduced, e, k)
        return moved

    def reach(self, is_active, mark, marks, h, k):
        mark = self.where(is_active, mark, 0.0)
        self.store(self.raised(self.load(marks, h, k), mark), marks, h, k)

    def spread_flow(self, amount, is_active, balance, degree, h, k, total, count):
        builder = self.builder
        flow, number = self.where(is_active, amount, 0.0), self.where(is_active, ir.Constant(_NUMBERS, [1.0] * 4), 0.0)
        self.store(builder.fsub(self.load(balance, h, k), flow), balance, h, k)
        self.store(builder.fadd(self.load(degree, h, k), number), degree, h, k)
        builder.store(builder.fadd(builder.load(total), flow), total)
        bits = builder.zext(builder.bitcast(is_active, ir.IntType(4)), _LONG)
        builder.store(builder.add(builder.load(count), builder.ctpop(bits)), count)

    def totals(self, total, count):
        return self.sum(self.builder.load(total)), self.builder.sitofp(self.builder.load(count), ir.DoubleType())


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
    here = fours.spread(here)
    with fours.loop(length) as (k, _):
        fours.move(score, e, here, potential, h, k, reduced)


@_loop(_NOTHING, "anxannaxa")
def move_and_reach(fours, score, e, here, potential, h, length, reduced, mark, marks):
    """`move`, which raises marks[h + k] to `mark` where reduced[e + k] > 0."""
    here, mark = fours.spread(here), fours.spread(mark)
    with fours.loop(length) as (k, _):
        flow = fours.move(score, e, here, potential, h, k, reduced)
        fours.reach(fours.is_positive(flow), mark, marks, h, k)


@_loop(_PAIR, "anxannaaa")
def move_and_spread(fours, score, e, here, potential, h, length, reduced, balance, degree):
    """`move`, then `spread` of the positive numbers of `reduced`."""
    here, total, count = fours.spread(here), fours.variable(0.0), fours.counter()
    with fours.loop(length) as (k, _):
        flow = fours.move(score, e, here, potential, h, k, reduced)
        fours.spread_flow(flow, fours.is_positive(flow), balance, degree, h, k, total, count)
    return fours.totals(total, count)


@_loop(_PAIR, "anxannaa")
def spread(fours, value, e, least, amount, h, length, balance, degree):
    """Takes amount[e + k] from balance[h + k] and adds 1 to degree[h + k] where value[e + k] > least.

    Returns the sum of these amounts and their number.
    """
    least, total, count = fours.spread(least), fours.variable(0.0), fours.counter()
    with fours.loop(length) as (k, _):
        is_above = fours.builder.fcmp_ordered(">", fours.load(value, e, k), least)
        fours.spread_flow(fours.load(amount, e, k), is_above, balance, degree, h, k, total, count)
    return fours.totals(total, count)


@_loop(_NOTHING, "anann")
def reach(fours, value, e, marks, h, length):
    """Raises marks[h + k] to 1 where value[e + k] > −∞."""
    one, lowest = (ir.Constant(_NUMBERS, [number] * 4) for number in (1.0, float("-inf")))
    with fours.loop(length) as (k, _):
        fours.reach(fours.builder.fcmp_ordered(">", fours.load(value, e, k), lowest), one, marks, h, k)


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


@_loop(_X, "anxxanna")
def keep(fours, value, e, least, mark, marks, h, length, kept):
    """kept[e + k] = value[e + k] if that is above `least` and marks[h + k] is `mark`, else 0.

    Returns the largest value[e + k] whose mark is another, −∞ if there is none.
    """
    builder, least, mark, best = fours.builder, fours.spread(least), fours.spread(mark), fours.variable(float("-inf"))
    with fours.loop(length) as (k, _):
        found, is_marked = fours.load(value, e, k), builder.fcmp_ordered("==", fours.load(marks, h, k), mark)
        is_above = builder.fcmp_ordered(">", found, least)
        fours.store(fours.where(builder.and_(is_above, is_marked), found, 0.0), kept, e, k)
        outside = fours.where(builder.not_(is_marked), found, float("-inf"))
        builder.store(fours.larger(outside, builder.load(best)), best)
    return fours.fold(builder.load(best), fours.larger)


@_loop(_NOTHING, "anxannan")
def link(fours, value, e, least, place, h, length, rows, first):
    """Subtracts 1 from rows[first + place[h + k]] for each value[e + k] > least; places are mostly neighbors."""
    builder, least = fours.builder, fours.spread(least)
    none = ir.Constant(ir.IntType(4), 0)
    with fours.loop(length) as (k, _):
        is_above = builder.fcmp_ordered(">", fours.load(value, e, k), least)
        with builder.if_then(builder.icmp_unsigned("!=", builder.bitcast(is_above, ir.IntType(4)), none)):
            places, less = fours.load(place, h, k), fours.where(is_above, ir.Constant(_NUMBERS, [-1.0] * 4), 0.0)
            begin = builder.extract_element(places, ir.Constant(ir.IntType(32), 0))
            neighbors = builder.add(fours.spread(begin), ir.Constant(_INTEGERS, [0, 1, 2, 3]))
            is_apart = builder.and_(is_above, builder.icmp_signed("!=", places, neighbors))
            are_apart = builder.icmp_unsigned("!=", builder.bitcast(is_apart, ir.IntType(4)), none)
            with builder.if_else(are_apart, likely=False) as (one_by_one, together):
                with one_by_one:
                    for lane in (ir.Constant(ir.IntType(32), lane) for lane in range(4)):
                        cell = builder.gep(builder.gep(rows, [first]), [builder.extract_element(places, lane)])
                        builder.store(builder.fadd(builder.load(cell), builder.extract_element(less, lane)), cell)
                with together:
                    fours.store(builder.fadd(fours.load(rows, first, begin), less), rows, first, begin)


# ---- rows of a matrix, in one flat array: four rows begin at `first`, each `width` behind the one before


def _rows_from(fours, first, width):
    starts = [first]
    for _ in range(3):
        starts.append(fours.builder.add(starts[-1], width))
    return starts


@_loop(_NOTHING, "annxxxxxxxxxxanxxxxnxxxx")
def eliminate_within(
    fours, rows, first, width, a, b, c, d, e, f, p, q, r, s, scaled, one, t, u, v, w, other, x, y, z, o
):
    """Subtracts from each of four rows those before it, with the factors of (0, 1), (0, 2), (1, 2), (0, 3), …

    Writes them into `scaled`, too, times −p … −s.  Then, from the fifth column on, subtracts multiples of the four from
    two more rows: t … w times from that at `one`, x … o times from `other`.
    """
    builder, starts = fours.builder, _rows_from(fours, first, width)
    copies = _rows_from(fours, ir.Constant(_LONG, 0), width)
    within = [fours.spread(builder.fneg(factor)) for factor in (a, b, c, d, e, f)]
    scales = [fours.spread(builder.fneg(factor)) for factor in (p, q, r, s)]
    goals = [(one, (t, u, v, w)), (other, (x, y, z, o))]
    goals = [(goal, [fours.spread(builder.fneg(factor)) for factor in factors]) for goal, factors in goals]

    def column_from(column):
        values = [fours.load(rows, start, column) for start in starts]
        for factor, (i, j) in zip(within, ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))):
            values[j] = fours.add_product(values[j], factor, values[i])
        for start, value in zip(starts[1:], values[1:]):
            fours.store(value, rows, start, column)
        return values

    column_from(ir.Constant(_LONG, 0))
    with fours.loop(width, 4) as (column, _):
        values = column_from(column)
        for start, value, scale in zip(copies, values, scales):
            fours.store(builder.fmul(value, scale), scaled, start, column)
        for goal, factors in goals:
            total = fours.load(rows, goal, column)
            for value, factor in zip(values, factors):
                total = fours.add_product(total, factor, value)
            fours.store(total, rows, goal, column)


@_loop(_NOTHING, "annnannn")
def add_multiples(fours, rows, first, width, length, scaled, shift, goal, step):
    """Adds multiples of four rows to four more, at `goal`, each `step` behind the one before.

    The factors are the first columns of the four rows in `scaled`, from `shift` on.
    """
    builder, starts, goals = fours.builder, _rows_from(fours, first, width), _rows_from(fours, goal, step)
    factors = [
        [fours.spread(builder.load(builder.gep(builder.gep(scaled, [start]), [ir.Constant(_LONG, k)]))) for k in range(4)]
        for start in _rows_from(fours, shift, width)
    ]
    with fours.loop(length) as (column, _):
        values = [fours.load(rows, start, column) for start in starts]
        for k, begin in enumerate(goals):
            total = fours.load(rows, begin, column)
            for value, factor in zip(values, factors):
                total = fours.add_product(total, factor[k], value)
            fours.store(total, rows, begin, column)


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

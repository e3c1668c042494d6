"""Loops over runs of edges, four at a time: score[e + k] of an edge to the node h + k."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pullback.kernels.tools.fours import INTEGERS, LONG, NOTHING, NUMBERS, PAIR, X, loop_of

# ---- steps that several loops take


def _move(fours, score, e, here, potential, h, k, reduced):
    moved = fours.builder.fadd(fours.load(score, e, k), fours.builder.fsub(here, fours.load(potential, h, k)))
    fours.store(moved, reduced, e, k)
    return moved


def _reach(fours, is_active, mark, marks, h, k):
    mark = fours.where(is_active, mark, 0.0)
    fours.store(fours.raised(fours.load(marks, h, k), mark), marks, h, k)


def _spread(fours, amount, is_active, balance, degree, h, k, total, count):
    builder = fours.builder
    flow, number = fours.where(is_active, amount, 0.0), fours.where(is_active, ir.Constant(NUMBERS, [1.0] * 4), 0.0)
    fours.store(builder.fsub(fours.load(balance, h, k), flow), balance, h, k)
    fours.store(builder.fadd(fours.load(degree, h, k), number), degree, h, k)
    builder.store(builder.fadd(builder.load(total), flow), total)
    _count(fours, is_active, count)


def _count(fours, is_active, count):
    builder = fours.builder
    bits = builder.zext(builder.bitcast(is_active, ir.IntType(4)), LONG)
    builder.store(builder.add(builder.load(count), builder.ctpop(bits)), count)


def _totals(fours, total, count):
    return fours.sum(fours.builder.load(total)), fours.builder.sitofp(fours.builder.load(count), ir.DoubleType())


# ---- loops


@loop_of(NOTHING, "anxanna")
def move(fours, score, e, here, potential, h, length, reduced):
    """reduced[e + k] = score[e + k] + (here − potential[h + k]); potentials first: their difference may be exact."""
    here = fours.spread(here)
    with fours.loop(length) as (k, _):
        _move(fours, score, e, here, potential, h, k, reduced)


@loop_of(NOTHING, "anxannaxa")
def move_and_reach(fours, score, e, here, potential, h, length, reduced, mark, marks):
    """`move`, which raises marks[h + k] to `mark` where reduced[e + k] > 0."""
    here, mark = fours.spread(here), fours.spread(mark)
    with fours.loop(length) as (k, _):
        flow = _move(fours, score, e, here, potential, h, k, reduced)
        _reach(fours, fours.is_positive(flow), mark, marks, h, k)


@loop_of(PAIR, "anxannaaa")
def move_and_spread(fours, score, e, here, potential, h, length, reduced, balance, degree):
    """`move`, then `spread` of the positive numbers of `reduced`."""
    here, total, count = fours.spread(here), fours.variable(0.0), fours.counter()
    with fours.loop(length) as (k, _):
        flow = _move(fours, score, e, here, potential, h, k, reduced)
        _spread(fours, flow, fours.is_positive(flow), balance, degree, h, k, total, count)
    return _totals(fours, total, count)


@loop_of(PAIR, "anxann")
def leaving(fours, score, e, here, potential, h, length):
    """Σ max(0, score[e + k] + here − potential[h + k]), and the number of positive terms."""
    here, total, count = fours.spread(here), fours.variable(0.0), fours.counter()
    builder = fours.builder
    with fours.loop(length) as (k, _):
        flow = builder.fadd(fours.load(score, e, k), builder.fsub(here, fours.load(potential, h, k)))
        is_active = fours.is_positive(flow)
        builder.store(builder.fadd(builder.load(total), fours.where(is_active, flow, 0.0)), total)
        _count(fours, is_active, count)
    return _totals(fours, total, count)


@loop_of(PAIR, "anxannaa")
def spread(fours, value, e, least, amount, h, length, balance, degree):
    """Takes amount[e + k] from balance[h + k] and adds 1 to degree[h + k] where value[e + k] > least.

    Returns the sum of these amounts and their number.
    """
    least, total, count = fours.spread(least), fours.variable(0.0), fours.counter()
    with fours.loop(length) as (k, _):
        is_above = fours.builder.fcmp_ordered(">", fours.load(value, e, k), least)
        _spread(fours, fours.load(amount, e, k), is_above, balance, degree, h, k, total, count)
    return _totals(fours, total, count)


@loop_of(NOTHING, "anann")
def reach(fours, value, e, marks, h, length):
    """Raises marks[h + k] to 1 where value[e + k] > −∞."""
    one, lowest = (ir.Constant(NUMBERS, [number] * 4) for number in (1.0, float("-inf")))
    with fours.loop(length) as (k, _):
        _reach(fours, fours.builder.fcmp_ordered(">", fours.load(value, e, k), lowest), one, marks, h, k)


@loop_of(types.boolean, "anxxann")
def leads_to(fours, value, e, least, mark, marks, h, length):
    """Whether marks[h + k] is `mark` for any value[e + k] > least."""
    builder, least, mark = fours.builder, fours.spread(least), fours.spread(mark)
    found = cgutils.alloca_once_value(builder, ir.Constant(INTEGERS, [0] * 4))
    with fours.loop(length) as (k, _):
        is_above = builder.fcmp_ordered(">", fours.load(value, e, k), least)
        is_marked = builder.fcmp_ordered("==", fours.load(marks, h, k), mark)
        both = builder.sext(builder.and_(is_above, is_marked), INTEGERS)
        builder.store(builder.or_(builder.load(found), both), found)
    anywhere = builder.icmp_signed("!=", builder.load(found), ir.Constant(INTEGERS, [0] * 4))
    return builder.icmp_signed("!=", builder.bitcast(anywhere, ir.IntType(4)), ir.Constant(ir.IntType(4), 0))


@loop_of(NOTHING, "aanxxann")
def raise_bounds(fours, lower, before, h, start, edges, score, e, length):
    """lower[h + k] = max(itself, start + score[e + k]); before[h + k] = edges where that is an increase."""
    builder, start, edges = fours.builder, fours.spread(start), fours.spread(edges)
    with fours.loop(length) as (k, _):
        found, known = builder.fadd(start, fours.load(score, e, k)), fours.load(lower, h, k)
        is_better = builder.fcmp_ordered(">", found, known)
        fours.store(fours.raised(known, found), lower, h, k)
        so_far = fours.load(before, h, k)
        fours.store(builder.fadd(so_far, fours.where(is_better, builder.fsub(edges, so_far), 0.0)), before, h, k)


@loop_of(PAIR, "aanann")
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


@loop_of(X, "ann")
def largest(fours, row, e, length):
    """The largest of row[e + k]."""
    builder, best = fours.builder, fours.variable(float("-inf"))
    with fours.loop(length) as (k, _):
        builder.store(fours.larger(fours.load(row, e, k), builder.load(best)), best)
    return fours.fold(builder.load(best), fours.larger)


@loop_of(PAIR, "annx")
def sum_above(fours, row, e, length, threshold):
    """Σ max(0, row[e + k] − threshold), and the number of positive terms."""
    builder, threshold = fours.builder, fours.spread(threshold)
    total, count = fours.variable(0.0), fours.variable(0.0)
    one = ir.Constant(NUMBERS, [1.0] * 4)
    with fours.loop(length) as (k, _):
        flow = builder.fsub(fours.load(row, e, k), threshold)
        is_above = builder.fcmp_ordered(">", flow, ir.Constant(NUMBERS, [0.0] * 4))
        builder.store(builder.fadd(builder.load(total), fours.where(is_above, flow, 0.0)), total)
        builder.store(builder.fadd(builder.load(count), fours.where(is_above, one, 0.0)), count)
    return fours.sum(builder.load(total)), fours.sum(builder.load(count))


@loop_of(X, "anxxanna")
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


@loop_of(NOTHING, "anxannann")
def link(fours, value, e, least, place, h, length, rows, first, is_dense):
    """Subtracts 1 from rows[first + place[h + k]] for each value[e + k] > least; places are mostly neighbors.

    If `is_dense`, even four that have nothing to subtract take part: a processor could not guess which they are.
    """
    builder, least = fours.builder, fours.spread(least)
    none = ir.Constant(ir.IntType(4), 0)
    with fours.loop(length) as (k, _):
        is_above = builder.fcmp_ordered(">", fours.load(value, e, k), least)
        are_any = builder.icmp_unsigned("!=", builder.bitcast(is_above, ir.IntType(4)), none)
        with builder.if_then(builder.or_(are_any, builder.trunc(is_dense, ir.IntType(1)))):
            places, less = fours.load(place, h, k), fours.where(is_above, ir.Constant(NUMBERS, [-1.0] * 4), 0.0)
            begin = builder.extract_element(places, ir.Constant(ir.IntType(32), 0))
            neighbors = builder.add(fours.spread(begin), ir.Constant(INTEGERS, [0, 1, 2, 3]))
            is_apart = builder.and_(is_above, builder.icmp_signed("!=", places, neighbors))
            are_apart = builder.icmp_unsigned("!=", builder.bitcast(is_apart, ir.IntType(4)), none)
            with builder.if_else(are_apart, likely=False) as (one_by_one, together):
                with one_by_one:
                    for lane in (ir.Constant(ir.IntType(32), lane) for lane in range(4)):
                        cell = builder.gep(builder.gep(rows, [first]), [builder.extract_element(places, lane)])
                        builder.store(builder.fadd(builder.load(cell), builder.extract_element(less, lane)), cell)
                with together:
                    fours.store(builder.fadd(fours.load(rows, first, begin), less), rows, first, begin)

"""Loops over four rows of a matrix, four columns at a time.

The rows are in one flat array, from `first` on, each `width` behind the one before.
"""

from llvmlite import ir

from pullback.kernels.tools.fours import FOUR, LONG, NOTHING, loop_of


def _rows_from(fours, first, width):
    starts = [first]
    for _ in range(3):
        starts.append(fours.builder.add(starts[-1], width))
    return starts


@loop_of(NOTHING, "annxxxxxxxxxxanxxxxnxxxx")
def eliminate_within(
    fours, rows, first, width, a, b, c, d, e, f, p, q, r, s, scaled, one, t, u, v, w, other, x, y, z, o
):
    """Subtracts from each of four rows those before it, with the factors of (0, 1), (0, 2), (1, 2), (0, 3), …

    Writes them into `scaled`, too, times −p … −s.  Then, from the fifth column on, subtracts multiples of the four from
    two more rows: t … w times from that at `one`, x … o times from `other`.
    """
    builder, starts = fours.builder, _rows_from(fours, first, width)
    copies = _rows_from(fours, ir.Constant(LONG, 0), width)
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

    column_from(ir.Constant(LONG, 0))
    with fours.loop(width, 4) as (column, _):
        values = column_from(column)
        for start, value, scale in zip(copies, values, scales):
            fours.store(builder.fmul(value, scale), scaled, start, column)
        for goal, factors in goals:
            total = fours.load(rows, goal, column)
            for value, factor in zip(values, factors):
                total = fours.add_product(total, factor, value)
            fours.store(total, rows, goal, column)


@loop_of(NOTHING, "annnannn")
def add_multiples(fours, rows, first, width, length, scaled, shift, goal, step):
    """Adds multiples of four rows to four more, at `goal`, each `step` behind the one before.

    The factors are the first columns of the four rows in `scaled`, from `shift` on.
    """
    builder, starts, goals = fours.builder, _rows_from(fours, first, width), _rows_from(fours, goal, step)
    factors = [
        [fours.spread(builder.load(builder.gep(scaled, [builder.add(start, ir.Constant(LONG, k))]))) for k in range(4)]
        for start in _rows_from(fours, shift, width)
    ]
    with fours.loop(length) as (column, _):
        values = [fours.load(rows, start, column) for start in starts]
        for k, begin in enumerate(goals):
            total = fours.load(rows, begin, column)
            for value, factor in zip(values, factors):
                total = fours.add_product(total, factor[k], value)
            fours.store(total, rows, begin, column)


@loop_of(FOUR, "annnn")
def multiply(fours, rows, first, width, length, x):
    """The products of four rows with the row that begins at x."""
    starts = _rows_from(fours, first, width)
    totals = [fours.variable(0.0) for _ in starts]
    with fours.loop(length) as (c, _):
        factor = fours.load(rows, x, c)
        for start, total in zip(starts, totals):
            fours.builder.store(fours.add_product(fours.builder.load(total), fours.load(rows, start, c), factor), total)
    return tuple(fours.sum(fours.builder.load(total)) for total in totals)


@loop_of(NOTHING, "annna")
def subtract_multiples(fours, rows, first, width, length, x):
    """Subtracts multiples of four rows from the first numbers of x, the last row first; the factors follow there."""
    builder, starts = fours.builder, _rows_from(fours, first, width)
    places = [builder.add(length, ir.Constant(LONG, j)) for j in range(4)]
    factors = [fours.spread(builder.fneg(builder.load(builder.gep(x, [place])))) for place in places]
    with fours.loop(length) as (column, _):
        total = fours.load(x, column)
        for start, factor in zip(reversed(starts), reversed(factors)):
            total = fours.add_product(total, fours.load(rows, start, column), factor)
        fours.store(total, x, column)

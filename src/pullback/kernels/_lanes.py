"""Loops over vector registers, where a compiler does not find them by itself.

A vector holds the same number of `LANES` neighboring instances, so that short rows cost nothing.  Arrays end in an axis
of `LANES` and are indexed here as flat sequences of vectors: in a matrix with n columns, row k is the sequence that
starts at k n with step 1, column k the one that starts at k with step n.  Arguments come as (array, start, step).

`multiply` is for one large matrix, and takes the vectors from its columns instead.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels._vector import kernel

LANES = 4
ROWS = 4  # sums per call of `products`: they share loads and fill the pipeline
COLUMNS = 16  # of a matrix in one tile of `multiply`: ROWS × COLUMNS sums stay in registers

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_WIDE = ir.VectorType(ir.DoubleType(), COLUMNS // 2)
_INDEX = ir.IntType(64)
_FUSED = ("contract",)


def _data(context, builder, signature, args, k, start):
    """The numbers of the array that is argument k, from the vector with index args[start] on."""
    data = context.make_array(signature.args[k])(context, builder, args[k]).data
    return builder.gep(data, [builder.mul(args[start], ir.Constant(_INDEX, LANES))])


def _at(builder, data, index):
    """Where the vector with this index is."""
    number = builder.gep(data, [builder.mul(index, ir.Constant(_INDEX, LANES))])
    return builder.bitcast(number, _VECTOR.as_pointer())


def _load(builder, data, index):
    return builder.load(_at(builder, data, index), align=8)


def _store(builder, value, data, index):
    builder.store(value, _at(builder, data, index), align=8)


def _multiply_add(builder, total, x, y):
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _emit_sums(builder, outs, terms, rows, across, along, step, count):
    """out[r] += Σ_t Σ a[r across + t along] b[t step], for each r < rows and each out with its list of terms (a, b)."""
    rows = [ir.Constant(_INDEX, r) for r in range(rows)]
    sums = [[cgutils.alloca_once(builder, _VECTOR) for _ in rows] for _ in outs]
    for out, totals in zip(outs, sums):
        for row, total in zip(rows, totals):
            builder.store(_load(builder, out, row), total)
    with cgutils.for_range(builder, count) as loop:
        shared = {b: _load(builder, b, builder.mul(loop.index, step)) for pairs in terms for _, b in pairs}
        for r, row in enumerate(rows):
            index = builder.add(builder.mul(row, across), builder.mul(loop.index, along))
            own = {a: _load(builder, a, index) for pairs in terms for a, _ in pairs}
            for totals, pairs in zip(sums, terms):
                for a, b in pairs:
                    total = _multiply_add(builder, builder.load(totals[r]), own[a], shared[b])
                    builder.store(total, totals[r])
    for out, totals in zip(outs, sums):
        for row, total in zip(rows, totals):
            _store(builder, builder.load(total), out, row)


@intrinsic
def products(typing, first, second, o, a, i, across, along, b, j, k, step, count):
    """first[o + r] += Σ_t a[i + r across + t along] b[j + t step], and second[o + r] the same with k for j.

    For r < ROWS and t < count: two sums for each load of `a`.
    """
    n = types.intp

    def emit(context, builder, signature, args):
        places = ((0, 2), (1, 2), (3, 4), (7, 8), (7, 9))
        first, second, a, b, c = (_data(context, builder, signature, args, *place) for place in places)
        across, along, step, count = (args[index] for index in (5, 6, 10, 11))
        _emit_sums(builder, [first, second], [[(a, b)], [(a, c)]], ROWS, across, along, step, count)
        return context.get_dummy_value()

    return types.void(first, second, n, a, n, n, n, b, n, n, n, n), emit


@intrinsic
def dual_products(typing, out, dout, o, a, da, i, across, along, b, db, j, step, count):
    """out[o + r] += Σ_t a[i + r across + t along] b[j + t step], and dout the derivative, Σ (a db + da b)."""
    n = types.intp

    def emit(context, builder, signature, args):
        places = ((0, 2), (1, 2), (3, 5), (4, 5), (8, 10), (9, 10))
        out, dout, a, da, b, db = (_data(context, builder, signature, args, *place) for place in places)
        across, along, step, count = (args[index] for index in (6, 7, 11, 12))
        terms = [[(a, b)], [(a, db), (da, b)]]
        _emit_sums(builder, [out, dout], terms, ROWS, across, along, step, count)
        return context.get_dummy_value()

    return types.void(out, dout, n, a, da, n, n, n, b, db, n, n, n), emit


@intrinsic
def add_dot(typing, out, o, x, i, step_x, y, j, step_y, count):
    """out[o] += Σ_{t < count} x[i + t step_x] y[j + t step_y]."""
    n = types.intp

    def emit(context, builder, signature, args):
        out, x, y = (_data(context, builder, signature, args, *place) for place in ((0, 1), (2, 3), (5, 6)))
        _emit_sums(builder, [out], [[(x, y)]], 1, args[4], args[4], args[7], args[8])
        return context.get_dummy_value()

    return types.void(out, n, x, n, n, y, n, n, n), emit


def _pass(formula):
    """A loop out[o + t step_out] = formula(out, x[i + t step_x], y[j]) over t < count."""

    @intrinsic
    def run(typing, out, o, step_out, x, i, step_x, y, j, count):
        n = types.intp

        def emit(context, builder, signature, args):
            out, x, y = (_data(context, builder, signature, args, *place) for place in ((0, 1), (3, 4), (6, 7)))
            constant = _load(builder, y, ir.Constant(_INDEX, 0))
            with cgutils.for_range(builder, args[8]) as loop:
                target = builder.mul(loop.index, args[2])
                before, own = _load(builder, out, target), _load(builder, x, builder.mul(loop.index, args[5]))
                _store(builder, formula(builder, before, own, constant), out, target)
            return context.get_dummy_value()

        return types.void(out, n, n, x, n, n, y, n, n), emit

    return run


_move = _pass(lambda builder, out, x, y: x)
add_scaled = _pass(lambda builder, out, x, y: _multiply_add(builder, out, x, y))
divide = _pass(lambda builder, out, x, y: builder.fdiv(x, y))


@kernel
def move(out, o, step_out, x, i, step_x, count):
    """out[o + t step_out] = x[i + t step_x] for t < count."""
    _move(out, o, step_out, x, i, step_x, x, i, count)


def _wide(builder, data, v):
    """Where the v-th half of a row of a tile is."""
    half = builder.gep(data, [ir.Constant(_INDEX, v * COLUMNS // 2)])
    return builder.bitcast(half, _WIDE.as_pointer())


def _broadcast(builder, number):
    nothing, index = ir.Constant(_WIDE, ir.Undefined), ir.IntType(32)
    vector = builder.insert_element(nothing, number, ir.Constant(index, 0))
    return builder.shuffle_vector(vector, nothing, ir.Constant(ir.VectorType(index, _WIDE.count), [0] * _WIDE.count))


@intrinsic
def _tile(typing, out, o, width, a, i, across, along, b, j, count):
    """out[o + r width + v] = Σ_{t < count} a[i + r across + t along] b[j + t width + v] for r < ROWS, v < COLUMNS."""
    n = types.intp

    def emit(context, builder, signature, args):
        o, width, i, across, along, j, count = (args[index] for index in (1, 2, 4, 5, 6, 8, 9))
        out, a, b = (
            builder.gep(context.make_array(signature.args[index])(context, builder, args[index]).data, [start])
            for index, start in ((0, o), (3, i), (7, j))
        )
        rows = [ir.Constant(_INDEX, r) for r in range(ROWS)]
        sums = [[cgutils.alloca_once(builder, _WIDE) for _ in range(2)] for _ in rows]
        for totals in sums:
            for total in totals:
                builder.store(ir.Constant(_WIDE, [0.0] * _WIDE.count), total)
        with cgutils.for_range(builder, count) as loop:
            row_b = builder.gep(b, [builder.mul(loop.index, width)])
            shared = [builder.load(_wide(builder, row_b, v), align=8) for v in range(2)]
            for row, totals in zip(rows, sums):
                index = builder.add(builder.mul(row, across), builder.mul(loop.index, along))
                factor = _broadcast(builder, builder.load(builder.gep(a, [index])))
                for total, y in zip(totals, shared):
                    builder.store(_multiply_add(builder, builder.load(total), factor, y), total)
        for row, totals in zip(rows, sums):
            row_out = builder.gep(out, [builder.mul(row, width)])
            for v, total in enumerate(totals):
                builder.store(builder.load(total), _wide(builder, row_out, v), align=8)
        return context.get_dummy_value()

    return types.void(out, n, n, a, n, n, n, b, n, n), emit


@kernel
def multiply(a, transposed, b, n, out):
    """Writes the n × n product a b or aᵀ b; all have the same width, a multiple of COLUMNS, and ROWS rows to spare."""
    width = b.shape[1]
    across, along = (1, width) if transposed else (width, 1)
    for column in range(0, n, COLUMNS):
        for row in range(0, n, ROWS):
            _tile(out, row * width + column, width, a, row * across, across, along, b, column, n)

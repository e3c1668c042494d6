"""Loops over vector registers, where a compiler does not find them by itself.

A vector holds the same number of `LANES` neighboring instances, so that short rows cost nothing.  Arrays end in an axis
of `LANES` and are indexed here as flat sequences of vectors: in a matrix with n columns, row k is the sequence that
starts at k n with step 1, column k the one that starts at k with step n.  Arguments come as (array, start, step).

`multiply` is for one large matrix, and takes the vectors from its columns instead.
"""

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels.tools import emit_exp, inner

LANES = 4
_TOGETHER = 2 if get_host_cpu_features().get("avx512f") else 1  # vectors in a register

# Sums that are computed together share loads and stay in registers: ROWS × WORDS of them in `inner_products`,
# ACROSS × WORDS in `outer_products`, ROWS × COLUMNS in a tile of `multiply`.
ROWS = 4
ACROSS = ROWS * _TOGETHER
WORDS = 4 if _TOGETHER == 2 else 3
COLUMNS = 16

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_REGISTER = ir.VectorType(ir.DoubleType(), LANES * _TOGETHER)
_WIDE = ir.VectorType(ir.DoubleType(), COLUMNS // 2)
_INDEX = ir.IntType(64)
_FUSED = ("contract",)


def _data(context, builder, signature, args, k, start):
    """The numbers of the array that is argument k, from the vector with index args[start] on."""
    data = context.make_array(signature.args[k])(context, builder, args[k]).data
    return _number(builder, data, args[start])


def _number(builder, data, index):
    """Where the vector with this index begins."""
    return builder.gep(data, [builder.mul(index, ir.Constant(_INDEX, LANES))])


def _load(builder, data, index, vector=_VECTOR):
    return builder.load(builder.bitcast(_number(builder, data, index), vector.as_pointer()), align=8)


def _load_register(builder, data, index, vector):
    """A register full of numbers, or one vector and zeros."""
    x = _load(builder, data, index, vector)
    return x if vector == _REGISTER else _mix(builder, x, ir.Constant(x.type, [0.0] * LANES), [*range(2 * LANES)])


def _store(builder, value, data, index):
    builder.store(value, builder.bitcast(_number(builder, data, index), value.type.as_pointer()), align=8)


def _multiply_add(builder, total, x, y):
    return builder.fadd(total, builder.fmul(x, y, flags=_FUSED), flags=_FUSED)


def _mix(builder, x, y, lanes):
    """The vector made of these lanes of two vectors, counted through both."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def _for_each(builder, count, step):
    """step(t, type) for the registers, and the vector that may be left, that start at the vectors t < count."""
    together = ir.Constant(_INDEX, _TOGETHER)
    with cgutils.for_range(builder, builder.sdiv(count, together)) as loop:
        step(builder.mul(loop.index, together), _REGISTER)
    if _TOGETHER > 1:
        with builder.if_then(builder.trunc(count, ir.IntType(1))):
            step(builder.sub(count, ir.Constant(_INDEX, 1)), _VECTOR)


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


def _constants(count):
    return [ir.Constant(_INDEX, value) for value in range(count)]


def _accumulators(builder, rows, words):
    """A register full of zeros for each row and word."""
    zeros = ir.Constant(_REGISTER, [0.0] * _REGISTER.count)
    return [[cgutils.alloca_once_value(builder, zeros) for _ in range(words)] for _ in range(rows)]


@intrinsic
def inner_products(typing, out, o, width, a, i, across, b, j, apart, count):
    """out[o + r + v width] += Σ_t a[i + r across + t] b[j + v apart + t], for r < ROWS, v < WORDS and t < count.

    Zeros at the end of either sequence change nothing, not even the rounding.
    """
    n = types.intp

    def emit(context, builder, signature, args):
        out, a, b = (_data(context, builder, signature, args, *place) for place in ((0, 1), (3, 4), (6, 7)))
        outs = [builder.gep(out, [builder.mul(args[2], ir.Constant(_INDEX, v * LANES))]) for v in range(WORDS)]
        rows = [builder.mul(args[5], r) for r in _constants(ROWS)]
        words = [builder.mul(args[8], v) for v in _constants(WORDS)]
        sums = _accumulators(builder, ROWS, WORDS)

        def add(t, vector):
            shared = [_load_register(builder, b, builder.add(word, t), vector) for word in words]
            for row, totals in zip(rows, sums):
                own = _load_register(builder, a, builder.add(row, t), vector)
                for total, y in zip(totals, shared):
                    builder.store(_multiply_add(builder, builder.load(total), own, y), total)

        _for_each(builder, args[9], add)
        for row, totals in zip(_constants(ROWS), sums):
            for data, total in zip(outs, totals):
                value, parts = _load(builder, data, row), builder.load(total)
                for part in range(0, LANES * _TOGETHER, LANES):
                    value = builder.fadd(value, _mix(builder, parts, parts, [*range(part, part + LANES)]))
                _store(builder, value, data, row)
        return context.get_dummy_value()

    return types.void(out, n, n, a, n, n, b, n, n, n), emit


@intrinsic
def outer_products(typing, out, o, width, a, i, along, b, j, apart, step, count):
    """out[o + r + v width] += Σ_t a[i + r + t along] b[j + v apart + t step], for r < ACROSS, v < WORDS, t < count."""
    n = types.intp

    def emit(context, builder, signature, args):
        out, a, b = (_data(context, builder, signature, args, *place) for place in ((0, 1), (3, 4), (6, 7)))
        outs = [builder.gep(out, [builder.mul(args[2], ir.Constant(_INDEX, v * LANES))]) for v in range(WORDS)]
        rows = [ir.Constant(_INDEX, r) for r in range(0, ACROSS, _TOGETHER)]
        words = [builder.mul(args[8], v) for v in _constants(WORDS)]
        sums = _accumulators(builder, len(rows), WORDS)
        with cgutils.for_range(builder, args[10]) as loop:
            t, u = builder.mul(loop.index, args[5]), builder.mul(loop.index, args[9])
            shared = [_load(builder, b, builder.add(word, u)) for word in words]
            shared = [_mix(builder, y, y, [*range(LANES)] * _TOGETHER) for y in shared]
            for row, totals in zip(rows, sums):
                own = _load(builder, a, builder.add(row, t), _REGISTER)
                for total, y in zip(totals, shared):
                    builder.store(_multiply_add(builder, builder.load(total), own, y), total)
        for row, totals in zip(rows, sums):
            for data, total in zip(outs, totals):
                _store(builder, builder.fadd(_load(builder, data, row, _REGISTER), builder.load(total)), data, row)
        return context.get_dummy_value()

    return types.void(out, n, n, a, n, n, b, n, n, n, n), emit


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


@inner
def move(out, o, step_out, x, i, step_x, count):
    """out[o + t step_out] = x[i + t step_x] for t < count."""
    _move(out, o, step_out, x, i, step_x, x, i, count)


@intrinsic
def exponentials(typing, row, i, shift, total, count):
    """row[i + t] = exp(row[i + t] − shift[t]), added to total[t], for t < count."""
    n = types.intp

    def emit(context, builder, signature, args):
        nothing = ir.Constant(_INDEX, 0)
        row, shift, total = (
            _number(builder, context.make_array(signature.args[k])(context, builder, args[k]).data, start)
            for k, start in ((0, args[1]), (2, nothing), (3, nothing))
        )

        def step(t, vector):
            x = builder.fsub(_load(builder, row, t, vector), _load(builder, shift, t, vector))
            x = emit_exp(builder, x)
            _store(builder, x, row, t)
            _store(builder, builder.fadd(_load(builder, total, t, vector), x), total, t)

        _for_each(builder, args[4], step)
        return context.get_dummy_value()

    return types.void(row, n, shift, total, n), emit


@intrinsic
def separate(typing, x, i, out, h, members, count):
    """out[members[lane], h, m] = x[i + m, lane] for m < count: a transposition, four by four."""
    n = types.intp

    def emit(context, builder, signature, args):
        data = _data(context, builder, signature, args, 0, 1)
        array = context.make_array(signature.args[2])(context, builder, args[2])
        members = context.make_array(signature.args[4])(context, builder, args[4]).data
        _, rows, width = cgutils.unpack_tuple(builder, array.shape)
        instances = [builder.load(builder.gep(members, [lane])) for lane in _constants(LANES)]
        starts = [builder.mul(builder.add(builder.mul(b, rows), args[3]), width) for b in instances]
        outs = [builder.gep(array.data, [start]) for start in starts]
        number = outs[0].type.pointee
        four = ir.Constant(_INDEX, LANES)

        def store(value, type_, out, m):
            value = value if type_ == value.type else builder.fptrunc(value, type_)
            builder.store(value, builder.bitcast(builder.gep(out, [m]), type_.as_pointer()), align=4)

        with cgutils.for_range(builder, builder.sdiv(args[5], four)) as loop:
            m = builder.mul(loop.index, four)
            a, b, c, d = (_load(builder, data, builder.add(m, t)) for t in _constants(LANES))
            pairs = [
                [_mix(builder, x, y, lanes) for x, y in ((a, b), (c, d))] for lanes in ([0, 4, 2, 6], [1, 5, 3, 7])
            ]
            for half, lanes in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
                for odd, (x, y) in enumerate(pairs):
                    column = _mix(builder, x, y, lanes)
                    store(column, ir.VectorType(number, LANES), outs[2 * half + odd], m)
        rest = builder.mul(builder.sdiv(args[5], four), four)
        with cgutils.for_range(builder, builder.sub(args[5], rest)) as loop:
            m = builder.add(rest, loop.index)
            vector = _load(builder, data, m)
            for lane, out in enumerate(outs):
                store(builder.extract_element(vector, ir.Constant(ir.IntType(32), lane)), number, out, m)
        return context.get_dummy_value()

    return types.void(x, n, out, n, members, n), emit


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


@inner
def multiply(a, transposed, b, n, out):
    """Writes the n × n product a b or aᵀ b; all have the same width, a multiple of COLUMNS, and ROWS rows to spare."""
    width = b.shape[1]
    across, along = (1, width) if transposed else (width, 1)
    for column in range(0, n, COLUMNS):
        for row in range(0, n, ROWS):
            _tile(out, row * width + column, width, a, row * across, across, along, b, column, n)

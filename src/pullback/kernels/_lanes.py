"""Sums of products over several instances at once: the instances are the lanes of a vector.

Where rows are too short to vectorize, neighboring instances fill the vector instead.  Arrays end in an axis of `LANES`
and are indexed here as flat sequences of vectors, so any row, column or block is a start and a stride.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 4
ROWS = 4  # outputs per call: they share the loads of `b` and fill the pipeline

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def _vectors(context, builder, array_type, array):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(data, _VECTOR.as_pointer())


def _load(builder, pointer, index):
    value = builder.load(builder.gep(pointer, [index]))
    value.align = 8
    return value


def _multiply_add(builder, total, x, y):
    """total += x y, for a sum held in a register."""
    product = builder.fmul(x, y, flags=("contract",))
    builder.store(builder.fadd(builder.load(total), product, flags=("contract",)), total)


def _emit_products(builder, outs, pairs, indices):
    """For each r < ROWS and each output, out[o + r] += Σ_t Σ_(a, b) a[i + r across + t along] b[j + t step]."""
    o, i, across, along, j, step, count = indices
    rows = [ir.Constant(o.type, r) for r in range(ROWS)]
    totals = [[cgutils.alloca_once(builder, _VECTOR) for _ in rows] for _ in outs]
    for out, total in zip(outs, totals):
        for r, row in enumerate(rows):
            builder.store(_load(builder, out, builder.add(o, row)), total[r])
    with cgutils.for_range(builder, count) as loop:
        at_b = builder.add(j, builder.mul(loop.index, step))
        at_a = builder.add(i, builder.mul(loop.index, along))
        shared = {b: _load(builder, b, at_b) for terms in pairs for _, b in terms}
        for r, row in enumerate(rows):
            at_row = builder.add(at_a, builder.mul(row, across))
            own = {a: _load(builder, a, at_row) for terms in pairs for a, _ in terms}
            for total, terms in zip(totals, pairs):
                for a, b in terms:
                    _multiply_add(builder, total[r], own[a], shared[b])
    for out, total in zip(outs, totals):
        for r, row in enumerate(rows):
            stored = builder.store(builder.load(total[r]), builder.gep(out, [builder.add(o, row)]))
            stored.align = 8


@intrinsic
def products(typing, out, o, a, i, across, along, b, j, step, count):
    """out[o + r] += Σ_{t < count} a[i + r across + t along] b[j + t step] for r < ROWS, all in units of a vector."""
    n = types.intp

    def emit(context, builder, signature, args):
        out, a, b = (_vectors(context, builder, signature.args[k], args[k]) for k in (0, 2, 6))
        _emit_products(builder, [out], [[(a, b)]], [args[k] for k in (1, 3, 4, 5, 7, 8, 9)])
        return context.get_dummy_value()

    return types.void(out, n, a, n, n, n, b, n, n, n), emit


@intrinsic
def dual_products(typing, out, dout, o, a, da, i, across, along, b, db, j, step, count):
    """`products` of a and b together with their derivative, dout += Σ (a db + da b)."""
    n = types.intp

    def emit(context, builder, signature, args):
        arrays = [_vectors(context, builder, signature.args[k], args[k]) for k in (0, 1, 3, 4, 8, 9)]
        out, dout, a, da, b, db = arrays
        indices = [args[k] for k in (2, 5, 6, 7, 10, 11, 12)]
        _emit_products(builder, [out, dout], [[(a, b)], [(a, db), (da, b)]], indices)
        return context.get_dummy_value()

    return types.void(out, dout, n, a, da, n, n, n, b, db, n, n, n), emit

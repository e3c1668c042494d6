"""Products of small matrices, with the sums in vector registers: rows of ten or twenty are too short for a compiler."""

import itertools

from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import intrinsic

_INDEX = ir.IntType(64)
_FUSED = ("contract",)
_VECTOR = 4  # numbers in a vector
_ROW = 4 * _VECTOR  # numbers of a row that are summed at once


@intrinsic
def add_product(typing, x, y, out):
    """out += x · y for matrices of float64; `x` may be transposed, the rows of the others are contiguous."""
    if any(array.dtype != types.float64 for array in (x, y, out)) or (y.layout, out.layout) != ("C", "C"):
        raise errors.TypingError(f"add_product: {x}, {y}, {out}; expected float64, and contiguous rows.")

    def emit(context, builder, signature, args):
        x, y, out = (context.make_array(t)(context, builder, a) for t, a in zip(signature.args, args))
        rows, count = cgutils.unpack_tuple(builder, x.shape)
        across, along = (builder.sdiv(s, _INDEX(8)) for s in cgutils.unpack_tuple(builder, x.strides))
        columns = cgutils.unpack_tuple(builder, out.shape)[1]

        def add_rows(a, height):
            left = builder.gep(x.data, [builder.mul(a, across)])
            into = builder.gep(out.data, [builder.mul(a, columns)])

            def add_tile(b, width):
                numbers = min(width, _VECTOR)
                tile = _Tile(builder, height, [_INDEX(start) for start in range(0, width, numbers)], numbers, columns)
                tile.load(into, b)
                with cgutils.for_range(builder, count) as loop:
                    at = builder.gep(left, [builder.mul(loop.index, along)])
                    tile.add(at, across, builder.gep(y.data, [builder.mul(loop.index, columns)]), b)
                tile.store(into, b)

            _cover(builder, columns, (2 * _VECTOR if height > 1 else 4 * _VECTOR, _VECTOR, 2, 1), add_tile)

        _cover(builder, rows, (4, 2, 1), add_rows)
        return context.get_dummy_value()

    return types.void(x, y, out), emit


@intrinsic
def row_product(typing, x, y, out):
    """out = x · y for a row x and a matrix y of float64, all contiguous.

    The last vector of a row may overlap the one before it, which computes some numbers twice, so that all that is left
    of a short row goes in one loop.  Even and odd rows of y are summed apart: one sum would wait for itself.
    """
    if any(array.dtype != types.float64 or array.layout != "C" for array in (x, y, out)):
        raise errors.TypingError(f"row_product: {x}, {y}, {out}; expected contiguous float64.")

    def emit(context, builder, signature, args):
        x, y, out = (context.make_array(t)(context, builder, a) for t, a in zip(signature.args, args))
        count, columns = cgutils.unpack_tuple(builder, y.shape)

        def write(starts, width):
            offsets = [builder.sub(start, starts[0]) for start in starts]
            even, odd = (_Tile(builder, 1, offsets, width, columns) for _ in range(2))
            even.clear()
            odd.clear()

            def add(tile, i):
                row = builder.gep(y.data, [builder.mul(i, columns)])
                tile.add(builder.gep(x.data, [i]), _INDEX(0), row, starts[0])

            in_pairs = builder.and_(count, _INDEX(-2))
            with cgutils.for_range_slice(builder, _INDEX(0), in_pairs, _INDEX(2), _INDEX) as (i, _):
                add(even, i)
                add(odd, builder.add(i, _INDEX(1)))
            with builder.if_then(builder.icmp_signed("<", in_pairs, count)):
                add(even, in_pairs)
            even.merge(odd)
            even.store(out.data, starts[0])

        def places(start, vectors):
            return [builder.add(start, _INDEX(i * _VECTOR)) for i in range(vectors)]

        with builder.if_else(builder.icmp_signed("<", columns, _INDEX(_VECTOR))) as (narrow, wide):
            with narrow, cgutils.for_range(builder, columns) as loop:
                write([loop.index], 1)
            with wide:
                last = builder.sub(columns, _INDEX(_VECTOR))
                stop = builder.and_(builder.sub(columns, _INDEX(1)), _INDEX(-_ROW))  # 1 … _ROW are left
                with cgutils.for_range_slice(builder, _INDEX(0), stop, _INDEX(_ROW), _INDEX) as (start, _):
                    write(places(start, _ROW // _VECTOR), _VECTOR)
                left = builder.sub(columns, stop)
                for vectors in range(1, _ROW // _VECTOR + 1):
                    few, many = (_INDEX((vectors - 1) * _VECTOR), _INDEX(vectors * _VECTOR))
                    fits = builder.icmp_signed("<=", left, many)
                    with builder.if_then(builder.and_(builder.icmp_signed(">", left, few), fits)):
                        write([*places(stop, vectors - 1), last], _VECTOR)
        return context.get_dummy_value()

    return types.void(x, y, out), emit


def _cover(builder, end, sizes, emit):
    """emit(start, size) for pieces of the range up to `end`: as many as go in of the first size, then of the next."""
    start = _INDEX(0)
    for size in sizes:
        stop = builder.sub(end, builder.srem(end, _INDEX(size)))
        with cgutils.for_range_slice(builder, start, stop, _INDEX(size), _INDEX) as (index, _):
            emit(index, size)
        start = stop


class _Tile:
    """`height` rows of sums in registers, `numbers` in each, for the columns from each of `starts` on."""

    def __init__(self, builder, height, starts, numbers, columns):
        self.builder, self.columns = builder, columns
        self.kind = ir.VectorType(ir.DoubleType(), numbers) if numbers > 1 else ir.DoubleType()
        self.starts = starts
        self.sums = [[cgutils.alloca_once(builder, self.kind) for _ in self.starts] for _ in range(height)]

    def place(self, data, row, b, start):
        index = self.builder.add(self.builder.mul(_INDEX(row), self.columns), self.builder.add(b, start))
        return self.builder.bitcast(self.builder.gep(data, [index]), self.kind.as_pointer())

    def clear(self):
        for total in itertools.chain(*self.sums):
            self.builder.store(_everywhere(self.builder, ir.Constant(ir.DoubleType(), 0.0), self.kind), total)

    def load(self, out, b):
        for row, sums in enumerate(self.sums):
            for start, total in zip(self.starts, sums):
                self.builder.store(self.builder.load(self.place(out, row, b, start), align=8), total)

    def store(self, out, b):
        for row, sums in enumerate(self.sums):
            for start, total in zip(self.starts, sums):
                self.builder.store(self.builder.load(total), self.place(out, row, b, start), align=8)

    def merge(self, other):
        """Adds the sums of another tile."""
        for total, more in zip(itertools.chain(*self.sums), itertools.chain(*other.sums)):
            self.builder.store(self.builder.fadd(self.builder.load(total), self.builder.load(more)), total)

    def add(self, x, across, y, b):
        """Adds the products of a column of x and a row of y."""
        right = [self.builder.load(self.place(y, 0, b, start), align=8) for start in self.starts]
        for row, sums in enumerate(self.sums):
            left = self.builder.load(self.builder.gep(x, [self.builder.mul(_INDEX(row), across)]))
            left = _everywhere(self.builder, left, self.kind)
            for total, number in zip(sums, right):
                term = self.builder.fmul(left, number, flags=_FUSED)
                self.builder.store(self.builder.fadd(self.builder.load(total), term, flags=_FUSED), total)


def _everywhere(builder, number, kind):
    """A vector of this kind with the same number in every place."""
    if not isinstance(kind, ir.VectorType):
        return number
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.IntType(32)(0))
    first = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    return builder.shuffle_vector(vector, vector, first)

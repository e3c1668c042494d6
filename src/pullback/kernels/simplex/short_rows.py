"""Sparsemax and 1.5-entmax of short rows, many at a time: rows are the lanes of vectors.

z[i, j] is entry i of row j.  Sums over a row run down a column of vectors and should stay in registers; Numba would
keep them in memory, so that one loop is written for LLVM directly.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels.tools import fmax, inner, kernel, summing

LANES = 32  # of one vector; LLVM splits it into what the machine has
TILE = 128  # rows solved together, until the last has settled


def _column_sums(start, add):
    """A function that sets first, second [j : j + LANES] to two sums down the columns z[:, j : j + LANES].

    They begin at `start`; `add` emits what an entry and `given[j]` add to them.
    """

    @intrinsic
    def column_sums(typing, z, j, given, first, second):
        def emit(context, builder, signature, args):
            scalar = context.get_value_type(z.dtype)
            vector = ir.VectorType(scalar, LANES)

            def address(array, index):
                data = context.make_array(array[0])(context, builder, array[1]).data
                return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

            def load(array, index):
                value = builder.load(address(array, index))
                value.align = z.dtype.bitwidth // 8
                return value

            def constant(value):
                return ir.Constant(vector, [ir.Constant(scalar, value)] * LANES)

            j, arrays = args[1], dict(enumerate(zip(signature.args, args)))
            rows, row_length = cgutils.unpack_tuple(builder, context.make_array(z)(context, builder, args[0]).shape)
            sums = [cgutils.alloca_once_value(builder, constant(value)) for value in start]
            lane = load(arrays[2], j)
            with cgutils.for_range(builder, rows) as loop:
                entry = load(arrays[0], builder.add(builder.mul(loop.index, row_length), j))
                for total, value in zip(sums, add(builder, constant, entry, lane, *map(builder.load, sums))):
                    builder.store(value, total)
            for k, total in enumerate(sums):
                stored = builder.store(builder.load(total), address(arrays[3 + k], j))
                stored.align = z.dtype.bitwidth // 8
            return context.get_dummy_value()

        return types.void(z, types.intp, given, first, second), emit

    return column_sums


def _add_top_and_sum(builder, constant, entry, lane, top, total):
    return builder.select(builder.fcmp_ordered(">", entry, top), entry, top), builder.fadd(total, entry)


def _add_count_and_mass(builder, constant, entry, tau, count, mass):
    above = builder.fsub(entry, tau)
    kept = builder.fcmp_ordered(">", above, constant(0.0))
    one, zero = constant(1.0), constant(0.0)
    return builder.fadd(count, builder.select(kept, one, zero)), builder.fadd(mass, builder.select(kept, above, zero))


def _add_moments(builder, constant, entry, tau, first, second):
    above = builder.fsub(entry, tau)
    above = builder.select(builder.fcmp_ordered(">", above, constant(0.0)), above, constant(0.0))
    return builder.fadd(first, above), builder.fadd(second, builder.fmul(above, above))


_top_and_sum = _column_sums((-np.inf, 0.0), _add_top_and_sum)
_count_and_mass = _column_sums((0.0, 0.0), _add_count_and_mass)
_moments = _column_sums((0.0, 0.0), _add_moments)


@kernel
def short_rows(x, sparse, y, lo, hi):
    """Sparsemax or 1.5-entmax of rows; returns the first without an answer, or −1."""
    n, rows = x.shape[1], min(TILE, hi - lo)
    lanes = (rows + LANES - 1) // LANES * LANES
    z = np.zeros((n, lanes), x.dtype)
    work = np.empty((5, lanes), x.dtype)
    best, total, first, second, tau = work[0], work[1], work[2], work[3], work[4]
    scale = x.dtype.type(1.0 if sparse else 0.5)
    for tile in range(lo, hi, TILE):
        start = min(tile, hi - rows)  # the last tile reaches back
        _transpose(x[start : start + rows], z)
        for j in range(0, lanes, LANES):
            _top_and_sum(z, j, best, best, total)
        for j in range(rows):
            if (np.isnan(total[j]) or not np.isfinite(best[j])) and unsolvable(x[start + j]):
                return start + j
        for i in range(n):
            _shift(z[i], best, scale)
        _thresholds(z, sparse, tau, first, second)
        for i in range(n):
            _cut(z[i], tau, sparse)
        _transpose(z, y[start : start + rows])
    return -1


@inner
def unsolvable(row):
    """Whether the row holds NaN, +∞ or nothing finite."""
    finite = False
    for score in row:
        if np.isnan(score) or score == np.inf:
            return True
        finite |= score > -np.inf
    return not finite


@inner
def _transpose(a, b):
    """b = aᵀ, as far as both reach."""
    for i in range(min(a.shape[1], b.shape[0])):
        for j in range(min(a.shape[0], b.shape[1])):
            b[i, j] = a[j, i]


@inner
def _shift(z, best, scale):
    low = z.dtype.type(-2)
    for j in range(z.shape[0]):
        z[j] = fmax(scale * (z[j] - best[j]), low)


@inner
def _thresholds(z, sparse, tau, first, second):
    """Newton's method for the τ of every lane."""
    small = z.dtype.type(1e-6 if z.itemsize == 4 else 1e-14)
    moved = z.dtype.type(1)
    tau[:] = -1
    while moved > small:
        for j in range(0, z.shape[1], LANES):
            if sparse:
                _count_and_mass(z, j, tau, first, second)
            else:
                _moments(z, j, tau, first, second)
        moved = _step(tau, first, second, sparse)


@summing
def _step(tau, first, second, sparse):
    """One step for every lane; returns the largest."""
    largest, one = tau.dtype.type(0), tau.dtype.type(1)
    if sparse:
        for j in range(tau.shape[0]):
            step = (second[j] - one) / first[j]
            tau[j] += step
            largest = fmax(step, largest)
    else:
        for j in range(tau.shape[0]):
            step = (second[j] - np.sqrt(second[j])) / first[j]
            tau[j] += step
            largest = fmax(step, largest)
    return largest


@inner
def _cut(z, tau, sparse):
    zero = z.dtype.type(0)
    for j in range(z.shape[0]):
        above = fmax(z[j] - tau[j], zero)
        z[j] = above if sparse else above * above

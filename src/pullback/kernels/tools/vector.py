"""What Numba's loops need in order to vectorize: a maximum, an exponential, a logarithm, and sums in any order."""

import math

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from pullback.kernels.tools.compilation import inner, summing


@intrinsic
def fmax(typing, a, b):
    """max(a, b) as a select the vectorizer understands; ignores NaN in `a`."""
    flags = ("nnan", "nsz")

    def emit(context, builder, signature, args):
        larger = builder.fcmp_ordered(">", args[0], args[1], flags=flags)
        return builder.select(larger, args[0], args[1], flags=flags)

    return a(a, a), emit


@intrinsic
def _float_from_bits(typing, bits):
    def emit(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), emit


@intrinsic
def _bits_from_float(typing, x):
    def emit(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), emit


_ROUND = 6755399441055744.0  # 1.5 · 2⁵²: after adding it the low bits hold the nearest integer


_FACTORIALS = [1.0 / math.factorial(k) for k in range(13, -1, -1)]


def emit_exp(builder, x):
    """eˣ of a number or a vector of numbers; `exp` says how."""
    bits = ir.IntType(64) if isinstance(x.type, ir.DoubleType) else ir.VectorType(ir.IntType(64), x.type.count)
    fused = ("contract",)

    def all_lanes(value, like):
        return ir.Constant(like, [value] * like.count if isinstance(like, ir.VectorType) else value)

    def multiply_add(a, b, c):
        return builder.fadd(builder.fmul(a, all_lanes(b, x.type), flags=fused), c, flags=fused)

    tiny = builder.fcmp_ordered("<", x, all_lanes(-708.0, x.type))
    x = builder.select(tiny, all_lanes(-708.0, x.type), x)
    shifted = multiply_add(x, 1.4426950408889634, all_lanes(_ROUND, x.type))
    n = builder.fsub(shifted, all_lanes(_ROUND, x.type))
    r = multiply_add(n, -1.90821492927058770002e-10, multiply_add(n, -0.693147180369123816490, x))
    p = all_lanes(_FACTORIALS[0], x.type)
    for coefficient in _FACTORIALS[1:]:
        p = builder.fadd(builder.fmul(p, r, flags=fused), all_lanes(coefficient, x.type), flags=fused)
    power = builder.shl(builder.add(builder.bitcast(shifted, bits), all_lanes(1023, bits)), all_lanes(52, bits))
    return builder.select(tiny, all_lanes(0.0, x.type), builder.fmul(p, builder.bitcast(power, x.type)))


@intrinsic
def _exp(typing, x):
    def emit(context, builder, signature, args):
        return emit_exp(builder, args[0])

    return types.float64(types.float64), emit


@inner  # a function of its own: reordering its sums, as `summing` does, would lose its digits
def exp(x):
    """eˣ for x ≤ 709 with a relative error below 3e-16, four times faster than the C library's in a loop.

    x = n ln 2 + r, a Taylor polynomial in |r| ≤ ½ ln 2, and 2ⁿ put together by its bits.  Below −708 the answer is
    0: subnormal numbers never appear, and exp(−∞) = 0.  NaN stays NaN.
    """
    return _exp(np.float64(x))


@inner
def log(x):
    """ln x for a normal x > 0 with an error below one unit in the last place, six times faster than the C library's.

    x = 2ᵏ (1 + f) with 1 + f in [√½, √2), taken from its bits, and the polynomial of fdlibm in s = f / (2 + f).
    """
    bits = _bits_from_float(np.float64(x)) + 0x95F6198000000  # now the exponent changes at √½ · 2ᵏ
    k = _float_from_bits((bits >> 52) + 0x4337FFFFFFFFFC01) - _ROUND
    f = _float_from_bits((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E68000000) - 1.0
    s = f / (2.0 + f)
    square = s * s
    p = 0.1479819860511658591
    p = p * square + 0.1531383769920937332
    p = p * square + 0.1818357216161805012
    p = p * square + 0.2222219843214978396
    p = p * square + 0.2857142874366239149
    p = p * square + 0.3999999999940941908
    p = p * square + 0.6666666666666735130
    half = 0.5 * f * f
    low = s * (half + p * square) + k * 1.90821492927058770002e-10
    return k * 0.693147180369123816490 + (f - (half - low))


@inner
def maximum(x):
    """The largest number, −∞ if there is none; ignores NaN."""
    best = -np.inf
    for k in range(len(x)):
        best = fmax(np.float64(x[k]), best)
    return best


@inner
def exponentiate(x):
    """x = exp(x)."""
    for k in range(len(x)):
        x[k] = exp(x[k])


@summing
def sum_of(x, count):
    """Σ x over the first `count` numbers; NaN or ±∞ if there is one among them."""
    total = 0.0
    for k in range(count):
        total += x[k]
    return total


@summing
def dot(x, y, count):
    """Σ x y over the first `count` numbers."""
    total = 0.0
    for k in range(count):
        total += x[k] * y[k]
    return total


@summing
def add_multiple(x, factor, y, count):
    """x += factor · y for the first `count` numbers."""
    for k in range(count):
        x[k] += factor * y[k]


@inner
def exponentials(x, largest, out):
    """out = exp(x − largest), given the maximum of x; returns their sum, so that log Σ exp(x) = largest + log sum.

    The sum is at least 1: exactly 1 if all of x is −∞, and NaN if a number is NaN or +∞.
    """
    shift = largest if largest > -np.inf else 0.0
    for k in range(len(x)):
        out[k] = exp(x[k] - shift)
    total = sum_of(out, len(out))
    return total if total != 0.0 else 1.0

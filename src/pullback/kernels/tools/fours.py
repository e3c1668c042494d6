"""What loops over four neighbors at a time are written with, where a compiler does not find them by itself.

The runs of a graph (`runs`) and the rows of a matrix (`rows`) are padded to a multiple of four, their loops are short,
and most of a search is spent in them.  `length` is a multiple of four everywhere; arrays come with the place at
which a loop begins.  (Rows of matchings are not padded: `best_two` looks at their last four numbers again.)
"""

import inspect

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

X, N = types.float64, types.int64
LONG = ir.IntType(64)
NUMBERS, INTEGERS = ir.VectorType(ir.DoubleType(), 4), ir.VectorType(LONG, 4)
_FUSED = ("contract",)


class Fours:
    """What loops are written with; `arguments` are numbers, and arrays as pointers to their first number."""

    def __init__(self, context, builder, signature, args):
        self.builder = builder
        self.arguments = [
            context.make_array(kind)(context, builder, arg).data if isinstance(kind, types.Array) else arg
            for kind, arg in zip(signature.args, args)
        ]

    def loop(self, length, first=0):
        """Goes through 0, 4, 8, … below `length`; from `first` on."""
        return cgutils.for_range_slice(self.builder, ir.Constant(LONG, first), length, ir.Constant(LONG, 4))

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
        return cgutils.alloca_once_value(self.builder, ir.Constant(NUMBERS, [number] * 4))

    def counter(self):
        return cgutils.alloca_once_value(self.builder, ir.Constant(LONG, 0))

    def larger(self, a, b):
        """max(a, b), which ignores NaN in `a`."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def raised(self, a, b):
        """max(a, b) of two that are not NaN.

        It, and no choice between old and new, is what may be stored where `a` came from: a compiler takes the latter
        for a store of some of the four, and that takes long.
        """
        kind = ir.FunctionType(NUMBERS, [NUMBERS, NUMBERS])
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.maxnum.v4f64")
        return self.builder.call(function, [a, b], fastmath=("nnan", "nsz"))

    def where(self, condition, a, number):
        return self.builder.select(condition, a, ir.Constant(NUMBERS, [number] * 4))

    def add_product(self, total, a, b):
        return self.builder.fadd(total, self.builder.fmul(a, b, flags=_FUSED), flags=_FUSED)

    def half(self, vector, which):
        """The first (0) or the last (1) half of a vector of four or two; half of two is a number."""
        count = vector.type.count // 2
        if count == 1:
            return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), which))
        places = ir.Constant(ir.VectorType(ir.IntType(32), count), [which * count + k for k in range(count)])
        return self.builder.shuffle_vector(vector, vector, places)

    def fold(self, vector, together):
        """together(together(a, b), together(c, d)) of the numbers a, b, c, d in a vector."""
        a, b, c, d = (self.builder.extract_element(vector, ir.Constant(ir.IntType(32), k)) for k in range(4))
        return together(together(a, b), together(c, d))

    def sum(self, vector):
        return self.fold(vector, self.builder.fadd)

    def is_positive(self, vector):
        return self.builder.fcmp_ordered(">", vector, ir.Constant(NUMBERS, [0.0] * 4))


def loop_of(result, kinds):
    """Makes a function that kernels can call from one of `Fours` and its arguments.

    kinds: a letter for each argument, `a` for an array, `n` for an integer and `x` for a number.
    """

    def decorate(emit):
        def typed(typing, *given):
            wanted = (kind if letter == "a" else {"n": N, "x": X}[letter] for letter, kind in zip(kinds, given))
            return result(*wanted), generate

        def generate(context, builder, signature, args):
            fours = Fours(context, builder, signature, args)
            answer = emit(fours, *fours.arguments)
            if isinstance(answer, tuple):
                return context.make_tuple(builder, signature.return_type, answer)
            return context.get_dummy_value() if answer is None else answer

        typed.__signature__ = inspect.signature(emit)  # whose first argument is another, by the same place
        typed.__name__, typed.__doc__ = emit.__name__, emit.__doc__
        return intrinsic(typed)

    return decorate


NOTHING, PAIR, FOUR = types.void, types.UniTuple(X, 2), types.UniTuple(X, 4)

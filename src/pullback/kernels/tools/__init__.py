"""What every kernel is made with: decorators, vectorized functions, semirings, random numbers."""

from pullback.kernels.tools import caching, semirings
from pullback.kernels.tools.compilation import compiled, inner, kernel, summing
from pullback.kernels.tools.random import uniform
from pullback.kernels.tools.vector import emit_exp, exp, fmax, log

__all__ = [
    "caching",
    "compiled",
    "emit_exp",
    "exp",
    "fmax",
    "inner",
    "kernel",
    "log",
    "semirings",
    "summing",
    "uniform",
]

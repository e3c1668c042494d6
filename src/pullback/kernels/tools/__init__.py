"""What kernels are made with: decorators, vectorized functions, products, semirings, choices, lists, components."""

from pullback.kernels.tools import caching, fours, rows, semirings
from pullback.kernels.tools.choices import draw, draw_log, first_best
from pullback.kernels.tools.compilation import borrowing, compiled, inlined, inner, kernel, summing
from pullback.kernels.tools.components import root_of
from pullback.kernels.tools.products import add_product, row_product
from pullback.kernels.tools.random import uniform
from pullback.kernels.tools.sorted_lists import lists_of, merge_of, merge_terms
from pullback.kernels.tools.vector import (
    add_multiple,
    dot,
    emit_exp,
    exp,
    exponentials,
    exponentiate,
    fmax,
    log,
    maximum,
    sum_of,
)

__all__ = [
    "add_multiple",
    "add_product",
    "borrowing",
    "caching",
    "compiled",
    "dot",
    "draw",
    "draw_log",
    "emit_exp",
    "exp",
    "exponentials",
    "exponentiate",
    "first_best",
    "fmax",
    "fours",
    "inlined",
    "inner",
    "kernel",
    "lists_of",
    "log",
    "maximum",
    "merge_of",
    "merge_terms",
    "root_of",
    "row_product",
    "rows",
    "semirings",
    "sum_of",
    "summing",
    "uniform",
]

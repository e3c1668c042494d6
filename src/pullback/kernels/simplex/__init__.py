"""Rows projected onto the simplex: sparsemax, 1.5-entmax and α-entmax."""

from pullback.kernels.simplex.any_order import entmax, entmax_backward
from pullback.kernels.simplex.rows import entmax15, entmax15_backward, sparsemax, sparsemax_backward

__all__ = ["entmax", "entmax15", "entmax15_backward", "entmax_backward", "sparsemax", "sparsemax_backward"]

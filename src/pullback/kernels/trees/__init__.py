"""Dependency trees: contraction, the matrix-tree theorem, exact samples, and mixtures of trees."""

from pullback.kernels.trees.arborescence import argmax, topk
from pullback.kernels.trees.heads import read_trees, write_arcs
from pullback.kernels.trees.matrix_tree import (
    hessian_product,
    hessian_product_at,
    linearize,
    log_partition,
    log_partition_and_marginals,
)
from pullback.kernels.trees.mixtures import mixture, mixture_backward
from pullback.kernels.trees.sampling import sample

__all__ = [
    "argmax",
    "hessian_product",
    "hessian_product_at",
    "linearize",
    "log_partition",
    "log_partition_and_marginals",
    "mixture",
    "mixture_backward",
    "read_trees",
    "sample",
    "topk",
    "write_arcs",
]

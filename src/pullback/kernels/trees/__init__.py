"""Dependency trees: contraction, the matrix-tree theorem, exact samples, and mixtures of trees."""

from pullback.kernels.trees.arborescence import argmax, topk
from pullback.kernels.trees.heads import read_trees, write_arcs
from pullback.kernels.trees.matrix_tree import (
    hessian_product,
    hessian_product_at,
    linearize,
    log_partition,
    partition,
)
from pullback.kernels.trees.mixtures import labelled_mixture, labelled_mixture_backward, mixture, mixture_backward
from pullback.kernels.trees.sampling import sample

__all__ = [
    "argmax",
    "hessian_product",
    "hessian_product_at",
    "labelled_mixture",
    "labelled_mixture_backward",
    "linearize",
    "log_partition",
    "mixture",
    "mixture_backward",
    "partition",
    "read_trees",
    "sample",
    "topk",
    "write_arcs",
]

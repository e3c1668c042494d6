"""Projective dependency trees: Eisner's chart."""

from pullback.kernels.projective_trees.eisner import argmax, inside_max, load, read_best
from pullback.kernels.projective_trees.inside_outside import (
    hessian_product,
    log_partition,
    log_partition_and_marginals,
    sample,
)
from pullback.kernels.projective_trees.k_best import topk

__all__ = [
    "argmax",
    "hessian_product",
    "inside_max",
    "load",
    "log_partition",
    "log_partition_and_marginals",
    "read_best",
    "sample",
    "topk",
]

"""Projective dependency trees: Eisner's chart."""

from pullback.kernels.projective_trees.eisner import argmax, inside_max, load, read_best
from pullback.kernels.projective_trees.inside_outside import (
    hessian_product,
    log_partition,
    log_partition_and_marginals,
    sample,
)
from pullback.kernels.projective_trees.k_best import topk
from pullback.kernels.projective_trees.mixtures import heads_to_parts, load_relative, mixture, mixture_backward

__all__ = [
    "argmax",
    "heads_to_parts",
    "hessian_product",
    "inside_max",
    "load",
    "load_relative",
    "log_partition",
    "log_partition_and_marginals",
    "mixture",
    "mixture_backward",
    "read_best",
    "sample",
    "topk",
]

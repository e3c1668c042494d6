"""Projective dependency trees: Eisner's chart."""

from pullback.kernels.projective_trees.best import argmax
from pullback.kernels.projective_trees.eisner import load
from pullback.kernels.projective_trees.inside_outside import (
    hessian_product,
    log_partition,
    partition,
    sample,
)
from pullback.kernels.projective_trees.k_best import topk
from pullback.kernels.projective_trees.mixtures import (
    heads_to_parts,
    labelled_mixture,
    labelled_mixture_backward,
    load_relative,
    mixture,
    mixture_backward,
)

__all__ = [
    "argmax",
    "heads_to_parts",
    "hessian_product",
    "labelled_mixture",
    "labelled_mixture_backward",
    "load",
    "load_relative",
    "log_partition",
    "mixture",
    "mixture_backward",
    "partition",
    "sample",
    "topk",
]

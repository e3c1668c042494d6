"""Spanning trees and forests of undirected graphs: greedy choice, k best, sums, and projection by dense sets."""

from pullback.kernels.spanning_trees.blocks import project_backward
from pullback.kernels.spanning_trees.greedy import argmax
from pullback.kernels.spanning_trees.k_best import topk
from pullback.kernels.spanning_trees.projection import project
from pullback.kernels.spanning_trees.sums import hessian_product, log_partition, partition, sample

__all__ = [
    "argmax",
    "hessian_product",
    "log_partition",
    "partition",
    "project",
    "project_backward",
    "sample",
    "topk",
]

"""Subsets, of bounded size above all: selection, projection, and sums over all of them."""

from pullback.kernels.subset.bits import sample_bits
from pullback.kernels.subset.projection import argmax, project, project_backward
from pullback.kernels.subset.sums import hessian_product, partition, sample

__all__ = ["argmax", "hessian_product", "partition", "project", "project_backward", "sample", "sample_bits"]

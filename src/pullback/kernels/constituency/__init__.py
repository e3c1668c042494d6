"""Binary constituency trees: the chart of Cocke, Kasami and Younger over labelled spans."""

from pullback.kernels.constituency.cky import argmax
from pullback.kernels.constituency.inside_outside import hessian_product, log_partition, partition, sample
from pullback.kernels.constituency.k_best import topk
from pullback.kernels.constituency.mixtures import mixture, mixture_backward

__all__ = [
    "argmax",
    "hessian_product",
    "log_partition",
    "mixture",
    "mixture_backward",
    "partition",
    "sample",
    "topk",
]

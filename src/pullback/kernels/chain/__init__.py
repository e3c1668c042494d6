"""Linear chains: sequences of tags, scored by their pairs of neighbors."""

from pullback.kernels.chain.k_best import merge, topk
from pullback.kernels.chain.mixtures import mixture, mixture_backward
from pullback.kernels.chain.projection import project, project_backward
from pullback.kernels.chain.samples import draw, sample
from pullback.kernels.chain.sums import hessian_product, log_partition, partition
from pullback.kernels.chain.sweeps import backward
from pullback.kernels.chain.viterbi import argmax, max_marginals

__all__ = [
    "argmax",
    "backward",
    "draw",
    "hessian_product",
    "log_partition",
    "max_marginals",
    "merge",
    "mixture",
    "mixture_backward",
    "partition",
    "project",
    "project_backward",
    "sample",
    "topk",
]

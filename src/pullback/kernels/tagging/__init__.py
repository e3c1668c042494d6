"""Tagging: sequences of tags that have scores of their own, with one table of transitions for all positions."""

from pullback.kernels.tagging.couplings import couple
from pullback.kernels.tagging.interior import approach, approach_backward
from pullback.kernels.tagging.k_best import topk
from pullback.kernels.tagging.mixtures import mixture, mixture_backward
from pullback.kernels.tagging.samples import sample
from pullback.kernels.tagging.second import hessian_product
from pullback.kernels.tagging.sums import log_partition, partition, weigh
from pullback.kernels.tagging.viterbi import argmax, max_marginals

__all__ = [
    "approach",
    "approach_backward",
    "argmax",
    "couple",
    "hessian_product",
    "log_partition",
    "max_marginals",
    "mixture",
    "mixture_backward",
    "partition",
    "sample",
    "topk",
    "weigh",
]

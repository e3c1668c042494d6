"""Matchings of rows and columns: the best, the k best, the nearest mixtures, and the entropic ones of Sinkhorn."""

from pullback.kernels.matching.assignment import argmax
from pullback.kernels.matching.k_best import topk
from pullback.kernels.matching.mixtures import mixture, mixture_backward
from pullback.kernels.matching.projection import project, project_backward
from pullback.kernels.matching.sinkhorn import sinkhorn
from pullback.kernels.matching.sinkhorn_backward import sinkhorn_backward

__all__ = [
    "argmax",
    "mixture",
    "mixture_backward",
    "project",
    "project_backward",
    "sinkhorn",
    "sinkhorn_backward",
    "topk",
]

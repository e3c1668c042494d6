"""Paths through a DAG: any graph, and the lattices of segmentations and alignments."""

from pullback.kernels.paths.best import argmax, max_marginals
from pullback.kernels.paths.central import Position
from pullback.kernels.paths.interior import NOTHING, Face, interior_over
from pullback.kernels.paths.inwards import approach, approach_backward
from pullback.kernels.paths.k_best import topk
from pullback.kernels.paths.lattices import alignments, joined_end, joined_segmentations, segmentations
from pullback.kernels.paths.mixtures import mixture, mixture_backward
from pullback.kernels.paths.numbering import number
from pullback.kernels.paths.projection import project, project_backward
from pullback.kernels.paths.samples import sample
from pullback.kernels.paths.sums import hessian_product, log_partition, partition

__all__ = [
    "NOTHING",
    "Face",
    "Position",
    "alignments",
    "approach",
    "approach_backward",
    "argmax",
    "hessian_product",
    "interior_over",
    "joined_end",
    "joined_segmentations",
    "log_partition",
    "max_marginals",
    "mixture",
    "mixture_backward",
    "number",
    "partition",
    "project",
    "project_backward",
    "sample",
    "segmentations",
    "topk",
]

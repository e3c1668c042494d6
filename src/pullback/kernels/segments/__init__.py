"""Segmentations whose labels have transitions: SparseMAP, which asks for scores without coordinates."""

from pullback.kernels.segments.mixtures import mixture, mixture_backward

__all__ = ["mixture", "mixture_backward"]

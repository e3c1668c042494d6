"""Linear chains: Viterbi's best sequence, mixtures of sequences, and projection onto all of them."""

from pullback.kernels.chain.mixtures import mixture, mixture_backward
from pullback.kernels.chain.projection import project, project_as_flows, project_backward
from pullback.kernels.chain.viterbi import argmax

__all__ = ["argmax", "mixture", "mixture_backward", "project", "project_as_flows", "project_backward"]

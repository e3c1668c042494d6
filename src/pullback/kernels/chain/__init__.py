"""Linear chains: Viterbi's best sequence, and mixtures of sequences."""

from pullback.kernels.chain.mixtures import mixture, mixture_backward
from pullback.kernels.chain.viterbi import argmax

__all__ = ["argmax", "mixture", "mixture_backward"]

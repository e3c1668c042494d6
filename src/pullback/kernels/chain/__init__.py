"""Sequences of tags, where each tag depends on the one before."""

from pullback.kernels.chain.projection import project, project_backward

__all__ = ["project", "project_backward"]

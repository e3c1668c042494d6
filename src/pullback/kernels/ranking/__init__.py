"""Rankings: sorting, and projections onto the permutahedron by pooling neighbors."""

from pullback.kernels.ranking.projection import (
    argmax,
    project,
    project_backward,
    project_entropic,
    project_logarithms,
)

__all__ = ["argmax", "project", "project_backward", "project_entropic", "project_logarithms"]

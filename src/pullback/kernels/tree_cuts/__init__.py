"""Projection onto the hull of dependency trees by cuts."""

from pullback.kernels.tree_cuts.columns import split_by_rivals
from pullback.kernels.tree_cuts.face import project_backward
from pullback.kernels.tree_cuts.projection import project

__all__ = ["project", "project_backward", "split_by_rivals"]

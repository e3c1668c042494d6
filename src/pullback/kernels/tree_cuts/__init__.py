"""Projection onto the hull of dependency trees by cuts."""

from pullback.kernels.tree_cuts.columns import split_by_rivals
from pullback.kernels.tree_cuts.projection import project, project_backward

__all__ = ["project", "project_backward", "split_by_rivals"]

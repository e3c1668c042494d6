"""Flows of one unit through a DAG, the mixtures of its paths: projection and its derivative, for any graph."""

from pullback.kernels.flows.graph import Graph, forbid_dead_ends
from pullback.kernels.flows.newton import nearest_flow, new_workspace
from pullback.kernels.flows.projection import project, project_backward, project_on_face

__all__ = [
    "Graph",
    "forbid_dead_ends",
    "nearest_flow",
    "new_workspace",
    "project",
    "project_backward",
    "project_on_face",
]

"""Flows of one unit through a DAG, the mixtures of its paths: projection and its derivative, for any graph."""

from pullback.kernels.flows.face import project_on_face
from pullback.kernels.flows.graph import Graph, forbid_dead_ends, in_runs
from pullback.kernels.flows.newton import nearest_flow, new_workspace

__all__ = ["Graph", "forbid_dead_ends", "in_runs", "nearest_flow", "new_workspace", "project_on_face"]

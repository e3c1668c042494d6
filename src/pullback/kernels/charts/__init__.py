"""SparseMAP on charts: acyclic hypergraphs whose items are parts, such as those of projective and of binary trees.

For flat scores, where thousands of vertices mix.  `chart` and `structures` say what a chart is, `passes` what runs over
it; `path`, `face` and `nearest` find the nearest point, `level` that of scores that are nearly equal, `span` its
derivative; `projection` has the kernels.
"""

from pullback.kernels.charts.projection import project, project_backward
from pullback.kernels.charts.structures import PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS

__all__ = ["PROJECTIVE_TREES", "SINGLE_ROOT_TREES", "SPANS", "project", "project_backward"]

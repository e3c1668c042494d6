"""The derivative of a projection onto flows: the orthogonal projection on the face that the nearest flow lies on."""

from pullback.kernels.flows.graph import collect
from pullback.kernels.flows.newton import solve_at_nodes
from pullback.kernels.tools import inner

FACE = 1e-10  # flow that makes an edge part of the face


@inner
def project_on_face(graph, w):
    """Projects w.row on the directions of the smallest face that holds the flow w.reduced.

    A face of the polytope of flows is given by its edges without flow.  Its directions are the circulations of the
    others: as much arrives at each node as leaves it.  What is subtracted is a difference of potentials.
    """
    row, trial, potential, imbalance = w.row, w.trial, w.potential, w.imbalance
    collect(graph, w.reduced, FACE, w.active)
    _, tail, head, edge, _ = w.active
    count = w.active.size[0]
    imbalance[: graph.sink + 1] = 0.0
    for k in range(count):
        imbalance[tail[k]] += row[edge[k]]
        imbalance[head[k]] -= row[edge[k]]
    solve_at_nodes(graph.sink, w.active, w.system, imbalance, potential)
    for k in range(count):
        trial[k] = row[edge[k]] + (potential[tail[k]] - potential[head[k]])
    row[:] = 0.0
    for k in range(count):
        row[edge[k]] = trial[k]

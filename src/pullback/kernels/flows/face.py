"""The derivative of a projection onto flows: the orthogonal projection on the face that the nearest flow lies on."""

from pullback.kernels.flows.newton import solve_at_nodes
from pullback.kernels.flows.passes import change, tally
from pullback.kernels.tools import borrowing

FACE = 1e-10  # flow that makes an edge part of the face


@borrowing
def project_on_face(graph, w):
    """Projects w.row on the directions of the smallest face that holds the flow w.reduced.

    A face of the polytope of flows is given by its edges without flow.  Its directions are the circulations of the
    others: as much arrives at each node as leaves it.  What is subtracted is a difference of potentials.
    """
    tally(graph, w.reduced, FACE, w.row, w.imbalance, w.system)
    solve_at_nodes(graph, w.reduced, FACE, w.system, w.imbalance, w.potential)
    change(w.row, graph, w.potential, w.trial)
    for e in range(len(w.trial)):
        w.row[e] = w.trial[e] if w.reduced[e] > FACE else 0.0

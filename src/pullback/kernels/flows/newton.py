"""The flow nearest to given scores, by Newton's method on the potentials of the nodes.

    argmin ½‖μ − s‖²   over μ ≥ 0 with  out(v) − in(v) = [v = source] − [v = sink]

The dual has one potential π for each node:

    D(π) = ½ Σ max(0, r_e)² + π_sink − π_source,    r_e = s_e + π_tail − π_head,    μ_e = max(0, r_e)

It is convex and piecewise quadratic.  Its gradient is the imbalance out(v) − in(v) of the nodes, with the unit that
enters at the source and leaves at the sink; its Hessian is the Laplacian of the active edges, those with r > 0.  A step
solves a Laplacian system (`laplacian`), then gives the nodes without flow new potentials (`silent`), which makes half a
dozen steps enough.  Where a step leaves source and sink without a path of active edges, the potentials are moved on
until there is one (`_open`).  Steps are shortened until D decreases enough, so the search ends, after finitely many
faces, at the exact solution.

After each step the scores are replaced by r: potentials change the score of every path by the same amount, hence no
answer, and no digits are lost to large ones.  What is left at the end proves the answer: r − μ ≤ 0, so no path is
better than μ by more than the imbalance, which is rounding.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.flows.graph import SLACK, mark_core
from pullback.kernels.flows.laplacian import System, assemble, new_system, solve
from pullback.kernels.flows.passes import change_and_reach, change_and_tally
from pullback.kernels.flows.runs import keep
from pullback.kernels.flows.silent import Bounds, new_bounds, settle
from pullback.kernels.flows.start import start, threshold
from pullback.kernels.tools import borrowing, fmax, inner, summing

STEPS = 200  # two dozen are the most that was ever seen
BALANCED = 1e-12  # flow lost or won at a node that counts as rounding
ZERO = 1e-12  # flow on an edge that is rounding
ROUNDING = 1e-15  # of the potentials, at silent nodes, which have large ones
DECREASE = 1e-3  # of what the slope promises; with less, `settle` could undo a step for ever


class Workspace(NamedTuple):
    """Arrays of one search: three for the edges, four for the nodes, and those of the parts."""

    reduced: np.ndarray
    trial: np.ndarray
    row: np.ndarray
    imbalance: np.ndarray
    direction: np.ndarray
    potential: np.ndarray
    core: np.ndarray
    bounds: Bounds
    system: System


@inner
def new_workspace(graph, nodes):
    """Arrays for `graph` and for whatever graph is a part of it; `nodes` counts all last nodes."""
    edges, nodes = graph.edge[-1], nodes + SLACK
    return Workspace(
        np.empty(edges),
        np.empty(edges),
        np.empty(edges + 4),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        new_bounds(nodes),
        new_system(nodes, graph),
    )


@borrowing
def nearest_flow(scores, graph, w):
    """Writes the flow nearest to `scores` into w.reduced; returns the number of steps, −1 if they lead nowhere.

    There must be a finite path, and edges on none must be −∞ (`forbid_dead_ends`).
    """
    sink = graph.sink
    size = start(scores, graph, w.direction, w.trial, w.imbalance, w.system.degree)
    w.imbalance[: sink + 1] = 0.0
    value = np.inf
    source, reduced = scores, w.reduced
    for steps in range(STEPS):
        value = _search(source, graph, w, reduced, value)
        if _is_balanced(graph.sink, w.core, w.imbalance):
            w.potential[:] = 0.0
            change_and_reach(reduced, graph, w.potential, reduced, w.core)
            mark_core(reduced, graph, w.core)  # it has grown where silent nodes were settled
            outside = _write_flow(graph, reduced, w.core, w.row)
            if outside <= ROUNDING * size and _is_balanced(graph.sink, w.core, w.imbalance):
                for e in range(len(w.reduced)):
                    w.reduced[e] = w.row[e]
                return steps
        if value == np.inf:
            return -1
        solve_at_nodes(graph, reduced, 0.0, w.system, w.imbalance, w.direction)
        source, reduced = reduced, w.trial if steps % 2 == 0 else w.reduced
    return -1


@borrowing
def _is_balanced(sink, core, imbalance):
    """Whether as much leaves each node of the core as arrives."""
    for v in range(sink + 1):
        if core[v] == 2.0 and abs(imbalance[v]) > BALANCED:
            return False
    return True


@borrowing
def _write_flow(graph, reduced, core, flow):
    """Writes max(0, r) for the edges of the core and 0 for others, of which it returns the largest r."""
    first, head, edge, _, sink = graph
    largest = -np.inf
    for u in range(sink):
        mark = 2.0 if core[u] == 2.0 else -1.0
        for r in range(first[u], first[u + 1]):
            outside = keep(reduced, edge[r], ZERO, mark, core, head[r], edge[r + 1] - edge[r], flow)
            largest = max(largest, outside)
    return largest


@borrowing
def _evaluate(scores, graph, w, reduced, settled):
    """Writes r, the active edges' tally and the imbalance at w.potential; if `settled`, silent nodes are settled first.

    Where no path of active edges leads to the sink, more nodes are opened until one does.  Returns ½ Σ max(0, r)² and
    how far the sink was lowered.
    """
    lowered, silent = 0.0, 0
    change_and_reach(scores, graph, w.potential, reduced, w.core)
    for _ in range(graph.sink + 2):  # each time, one more node is reached
        connected, silent = mark_core(reduced, graph, w.core)
        if connected:
            break
        lowered += _open(reduced, graph, w.core, w.potential, w.row)
        change_and_reach(reduced, graph, w.potential, reduced, w.core)
    w.potential[:] = 0.0
    if settled and silent > 0:
        settle(reduced, graph, w.core, w.potential, w.bounds)
    change_and_tally(reduced, graph, w.potential, reduced, w.imbalance, w.system)
    w.imbalance[0] -= 1.0
    w.imbalance[graph.sink] += 1.0
    return 0.5 * _squares(reduced, graph.edge[graph.first[graph.sink]]), lowered


@summing
def _squares(reduced, edges):
    """Σ max(0, r)²."""
    total = 0.0
    for e in range(edges):
        flow = fmax(reduced[e], 0.0)
        total += flow * flow
    return total


@borrowing
def _open(reduced, graph, core, potential, row):
    """Lowers all nodes that no active path from the source reaches, until one unit flows to them; returns how far.

    D decreases by that: its slope is the flow to them, less what flows back and less one.
    """
    first, head, edge, _, sink = graph
    count = 0
    for u in range(sink):
        if core[u] > 0.0:
            for r in range(first[u], first[u + 1]):
                for e in range(edge[r], edge[r + 1]):
                    if core[head[r] + e - edge[r]] == 0.0:
                        row[count] = reduced[e]
                        count += 1
    row[count : count + 3] = -np.inf
    depth = -threshold(row, 0, (count + 3) // 4 * 4, 1.0, 50)[0]
    for v in range(len(potential)):
        potential[v] = -depth if core[v] == 0.0 else 0.0
    return depth


@borrowing
def solve_at_nodes(graph, value, least, system, imbalance, x):
    """Solves Laplacian · x = −imbalance for the edges whose value is above `least`; x is 0 at nodes without any."""
    sink = graph.sink
    unknowns = assemble(graph, value, least, system)
    for i in range(unknowns):
        system.rows[i] = -imbalance[system.node[i]]
    x[:sink] = 0.0
    x[sink:] = solve(sink, unknowns, system, -imbalance[sink])
    for i in range(unknowns):
        x[system.node[i]] = system.rows[i]


@summing
def _slope(direction, imbalance, nodes):
    """⟨direction, imbalance⟩, and the size of the direction, at least 1."""
    slope, size = 0.0, 1.0
    for v in range(nodes):
        slope += direction[v] * imbalance[v]
        size = fmax(abs(direction[v]), size)
    return slope, size


@borrowing
def _search(scores, graph, w, reduced, value):
    """Goes along w.direction until D decreases enough; returns the new ½ Σ max(0, r)², ∞ if it never does.

    Each length is tried with the silent nodes settled and, if that spoils it, without.
    """
    sink, direction = graph.sink, w.direction
    slope, size = _slope(direction, w.imbalance, sink + 1)
    rise = direction[sink] - direction[0]
    length = 1.0
    for _ in range(30):
        for settled in (True, False):
            for v in range(len(direction)):
                w.potential[v] = length * direction[v]
            new, lowered = _evaluate(scores, graph, w, reduced, settled)
            if (new - value) + (length * rise - lowered) <= DECREASE * length * slope + 1e-14 * (value + size):
                return new
        length *= 0.5
    return np.inf

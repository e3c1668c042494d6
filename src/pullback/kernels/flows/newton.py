"""The flow nearest to given scores, by Newton's method on the potentials of the nodes.

    argmin ½‖μ − s‖²   over μ ≥ 0 with  out(v) − in(v) = [v = source] − [v = sink]

The dual has one potential π for each node:

    D(π) = ½ Σ max(0, r_e)² + π_sink − π_source,    r_e = s_e + π_tail − π_head,    μ_e = max(0, r_e)

It is convex and piecewise quadratic.  Its gradient is the imbalance out(v) − in(v) of the nodes, with the unit that
enters at the source and leaves at the sink; its Hessian is the Laplacian of the active edges, those with r > 0.  A step
solves a Laplacian system (`laplacian`), then gives the nodes without flow new potentials (`silent`), which makes half a
dozen steps enough.  Steps are shortened until D decreases enough, so the search ends, after finitely many faces, at the
exact solution.

After each step the scores are replaced by r: potentials change the score of every path by the same amount, hence no
answer, and no digits are lost to large ones.  What is left at the end proves the answer: r − μ ≤ 0, so no path is
better than μ by more than the imbalance, which is rounding.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.flows.graph import Active, collect, mark_core, new_active
from pullback.kernels.flows.laplacian import System, assemble, capacity, new_system, solve
from pullback.kernels.flows.silent import Bounds, new_bounds, settle
from pullback.kernels.tools import fmax, inner, summing

STEPS = 100  # a dozen is the most that was ever seen
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
    active: Active
    bounds: Bounds
    system: System


@inner
def new_workspace(graph, nodes, edges):
    """Arrays for `graph` and for whatever graph is a part of it; `nodes` counts all last nodes."""
    return Workspace(
        np.empty(edges),
        np.empty(edges),
        np.empty(edges),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes, np.int64),
        new_active(nodes, edges),
        new_bounds(nodes),
        new_system(nodes, capacity(graph)),
    )


@inner
def nearest_flow(scores, graph, w):
    """Writes the flow nearest to `scores` into w.reduced; returns the number of steps, −1 if they lead nowhere.

    There must be a finite path, and edges on none must be −∞ (`forbid_dead_ends`).
    """
    reduced, trial = w.reduced, w.trial
    rounding = ROUNDING * _start(scores, graph, w)
    value = _evaluate(scores, graph, w, reduced, np.bool_(True))  # a literal would be compiled separately
    steps = 0
    while value < np.inf and steps < STEPS:
        if _is_solved(graph.sink, reduced, w, rounding):
            _write_flow(graph.sink, reduced, w)
            return steps
        solve_at_nodes(graph.sink, w, w.direction)
        value = _search(reduced, graph, w, trial, value)
        reduced, trial = trial, reduced
        steps += 1
    return -1


@inner
def _is_solved(sink, reduced, w, rounding):
    """Whether the core is in balance and nothing but rounding flows elsewhere."""
    begin, head, edge = w.active
    core = w.core
    for settled in (False, True):
        for v in range(sink + 1):
            if core[v] == 2 and abs(w.imbalance[v]) > BALANCED:
                return False
        if not settled:
            mark_core(sink, w.active, core)  # settled nodes may have joined it
    for u in range(sink):
        for k in range(begin[u], begin[u + 1]):
            if reduced[edge[k]] > rounding and (core[u] < 2 or core[head[k]] < 2):
                return False
    return True


@inner
def _write_flow(sink, reduced, w):
    """Writes max(0, r) for the edges of the core and 0 for others into w.reduced, which `reduced` may be itself."""
    begin, head, edge = w.active
    for e in range(len(reduced)):
        w.reduced[e] = reduced[e] if reduced[e] > ZERO else 0.0
    for u in range(sink):
        for k in range(begin[u], begin[u + 1]):
            if w.core[u] < 2 or w.core[head[k]] < 2:
                w.reduced[edge[k]] = 0.0


@inner
def _reduce(score, here, there, reduced):
    """r for the edges of one run; potentials first, because their difference may be exact."""
    for k in range(len(score)):
        reduced[k] = score[k] + (here - there[k])


@inner
def _move(scores, graph, potential, reduced, active):
    """Writes r at these potentials and lists the active edges."""
    first, head, edge, length, sink = graph
    for u in range(sink):
        for r in range(first[u], first[u + 1]):
            h, e, n = head[r], edge[r], length[r]
            _reduce(scores[e : e + n], potential[u], potential[h : h + n], reduced[e : e + n])
    collect(graph, reduced, 0.0, active)


@inner
def _evaluate(scores, graph, w, reduced, settled):
    """Writes r, the active edges and the imbalance at w.potential; if `settled`, silent nodes are settled first.

    Returns ½ Σ max(0, r)², or ∞ if no path of active edges leads to the sink.
    """
    sink, active, imbalance = graph.sink, w.active, w.imbalance
    _move(scores, graph, w.potential, reduced, active)
    connected, silent = mark_core(sink, active, w.core)
    if not connected:
        return np.inf
    if settled and silent > 0:
        w.potential[:] = 0.0
        settle(reduced, graph, w.core, w.potential, w.bounds)
        _move(reduced, graph, w.potential, reduced, active)
    imbalance[: sink + 1] = 0.0
    imbalance[0], imbalance[sink] = -1.0, 1.0
    squares = 0.0
    for u in range(sink):
        out = 0.0
        for k in range(active.begin[u], active.begin[u + 1]):
            flow = reduced[active.edge[k]]
            out += flow
            imbalance[active.head[k]] -= flow
            squares += flow * flow
        imbalance[u] += out
    return 0.5 * squares


@inner
def solve_at_nodes(sink, w, x):
    """Solves Laplacian · x = −w.imbalance for the active edges; x is 0 at nodes without any."""
    system = w.system
    unknowns = assemble(sink, w.active, system)
    for i in range(unknowns):
        system.x[i] = -w.imbalance[system.node[i]]
    x[:sink] = 0.0
    x[sink:] = solve(sink, unknowns, system, -w.imbalance[sink])
    for i in range(unknowns):
        x[system.node[i]] = system.x[i]


@inner
def _search(scores, graph, w, reduced, value):
    """Goes along w.direction until D decreases enough; returns the new ½ Σ max(0, r)², ∞ if it never does.

    Each length is tried with the silent nodes settled and, if that spoils it, without.
    """
    sink = graph.sink
    slope, size = 0.0, 1.0
    for v in range(sink + 1):
        slope += w.direction[v] * w.imbalance[v]
        size = max(size, abs(w.direction[v]))
    rise = w.direction[sink] - w.direction[0]
    length = 1.0
    for _ in range(30):
        for settled in (True, False):
            for v in range(len(w.potential)):
                w.potential[v] = length * w.direction[v]
            new = _evaluate(scores, graph, w, reduced, settled)
            if (new - value) + length * rise <= DECREASE * length * slope + 1e-14 * (value + size):
                return new
        length *= 0.5
    return np.inf


@inner
def _start(scores, graph, w):
    """First potentials: from the sink backward, each such that its node sends out a flow of one; returns their size."""
    first, head, edge, length, sink = graph
    potential, row = w.potential, w.row
    potential[sink:] = 0.0
    size = 1.0
    for u in range(sink - 1, -1, -1):
        degree = 0
        for r in range(first[u], first[u + 1]):
            h, e, n = head[r], edge[r], length[r]
            _reduce(scores[e : e + n], 0.0, potential[h : h + n], row[degree : degree + n])
            degree += n
        threshold = _threshold(row[:degree])
        potential[u] = -threshold if threshold > -np.inf else 0.0
        size = max(size, abs(potential[u]))
    for v in range(sink):  # to multiples of one power of two: now their differences are exact
        potential[v] = (potential[v] + 4.0 * size) - 4.0 * size
    return size


@inner
def _threshold(row):
    """τ with Σ max(0, xₖ − τ) = 1, by Newton's method from the left of a convex function; −∞ if no xₖ is finite."""
    largest = -np.inf
    for k in range(len(row)):
        largest = fmax(row[k], largest)
    threshold = largest - 1.0
    for _ in range(50):
        total, count = _sum_above(row, threshold)
        if not total > 1.0 + 1e-12 * count:
            break
        threshold += (total - 1.0) / count
    return min(threshold, largest - 1e-3)  # at least a trickle


@summing
def _sum_above(row, threshold):
    """Σ max(0, xₖ − threshold) and the number of positive terms."""
    total, count = 0.0, 0.0
    for k in range(len(row)):
        flow = row[k] - threshold
        total += max(flow, 0.0)
        count += 1.0 if flow > 0.0 else 0.0
    return total, count

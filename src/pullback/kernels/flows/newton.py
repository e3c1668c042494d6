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

from pullback.kernels.flows.graph import Active, collect, mark_core, new_active
from pullback.kernels.flows.laplacian import System, assemble, capacity, new_system, solve
from pullback.kernels.flows.silent import Bounds, bound_below, new_bounds, place, settle
from pullback.kernels.tools import fmax, inner, summing

STEPS = 200  # two dozen are the most that was ever seen
BALANCED = 1e-12  # flow lost or won at a node that counts as rounding
ZERO = 1e-12  # flow on an edge that is rounding
ROUNDING = 1e-15  # of the potentials, at silent nodes, which have large ones
DECREASE = 1e-3  # of what the slope promises; with less, `settle` could undo a step for ever


class Workspace(NamedTuple):
    """Arrays of one search: three for the edges, five for the nodes, and those of the parts.

    `share` is not touched by a search: the flow with which it begins, see `_start`.
    """

    reduced: np.ndarray
    trial: np.ndarray
    row: np.ndarray
    imbalance: np.ndarray
    direction: np.ndarray
    potential: np.ndarray
    share: np.ndarray
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
        _shares(graph, nodes),
        np.empty(nodes, np.int64),
        new_active(nodes, edges),
        new_bounds(nodes),
        new_system(nodes, capacity(graph)),
    )


@inner
def _shares(graph, nodes):
    """The square root of the flow through each node if every node divided it equally among its edges."""
    share = np.zeros(nodes)
    share[0] = 1.0
    for u in range(graph.sink):
        degree = 0
        for r in range(graph.first[u], graph.first[u + 1]):
            degree += graph.length[r]
        for r in range(graph.first[u], graph.first[u + 1]):
            for k in range(graph.length[r]):
                share[graph.head[r] + k] += share[u] / degree
    for v in range(nodes):
        share[v] = np.sqrt(share[v])
    return share


@inner
def nearest_flow(scores, graph, w, is_near):
    """Writes the flow nearest to `scores` into w.reduced; returns the number of steps, −1 if they lead nowhere.

    There must be a finite path, and edges on none must be −∞ (`forbid_dead_ends`).  If `is_near`, w.row holds a flow
    that is near the answer, from which the search begins.
    """
    rounding = ROUNDING * (_start_near(scores, graph, w) if is_near else _start(scores, graph, w))
    w.imbalance[: graph.sink + 1] = 0.0
    value = np.inf
    source, reduced = scores, w.reduced
    for steps in range(STEPS):
        value = _search(source, graph, w, reduced, value)
        if _is_solved(graph.sink, reduced, w, rounding):
            _write_flow(graph.sink, reduced, w)
            return steps
        if value == np.inf:
            return -1
        solve_at_nodes(graph.sink, w, w.direction)
        source, reduced = reduced, w.trial if steps % 2 == 0 else w.reduced
    return -1


@inner
def _is_solved(sink, reduced, w, rounding):
    """Whether the core is in balance and nothing but rounding flows elsewhere."""
    begin, head, edge = w.active
    core = w.core
    for v in range(sink + 1):
        if core[v] == 2 and abs(w.imbalance[v]) > BALANCED:
            return False
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

    Where no path of active edges leads to the sink, more nodes are opened until one does.  Returns ½ Σ max(0, r)² and
    how far the sink was lowered.
    """
    sink, active, imbalance = graph.sink, w.active, w.imbalance
    source, lowered = scores, 0.0
    for _ in range(sink + 3):  # each time, one more node is reached; then, nodes are settled
        _move(source, graph, w.potential, reduced, active)
        source = reduced
        connected, silent = mark_core(sink, active, w.core)
        if not connected:
            lowered += _open(reduced, graph, w)
        elif settled and silent > 0:
            w.potential[:] = 0.0
            settle(reduced, graph, w.core, w.potential, w.bounds)
            settled = False
        else:
            break
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
    return 0.5 * squares, lowered


@inner
def _open(reduced, graph, w):
    """Lowers all nodes that no active path from the source reaches, until one unit flows to them; returns how far.

    D decreases by that: its slope is the flow to them, less what flows back and less one.
    """
    first, head, edge, length, sink = graph
    count = 0
    for u in range(sink):
        if w.core[u] > 0:
            for r in range(first[u], first[u + 1]):
                for k in range(length[r]):
                    if w.core[min(head[r] + k, sink)] == 0:
                        w.row[count] = reduced[edge[r] + k]
                        count += 1
    depth = -_threshold(w.row[:count], 1.0)
    for v in range(len(w.potential)):
        w.potential[v] = -depth if w.core[min(v, sink)] == 0 else 0.0
    return depth


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
            new, lowered = _evaluate(scores, graph, w, reduced, settled)
            if (new - value) + (length * rise - lowered) <= DECREASE * length * slope + 1e-14 * (value + size):
                return new
        length *= 0.5
    return np.inf


@inner
def _start(scores, graph, w):
    """First potentials: from the sink backward, each such that its node sends out its share; returns their size.

    A node sends all of the flow if the scores are large, a part that only depends on the graph if they are small; its
    share is the geometric mean.
    """
    first, head, edge, length, sink = graph
    potential, row = w.direction, w.row
    potential[sink:] = 0.0
    for u in range(sink - 1, -1, -1):
        degree = 0
        for r in range(first[u], first[u + 1]):
            h, e, n = head[r], edge[r], length[r]
            _reduce(scores[e : e + n], 0.0, potential[h : h + n], row[degree : degree + n])
            degree += n
        threshold = _threshold(row[:degree], w.share[u])
        potential[u] = -threshold if threshold > -np.inf else 0.0
    return _round(potential, sink)


@inner
def _start_near(scores, graph, w):
    """First potentials from the flow μ in w.row: those of the best paths for s − μ; returns their size.

    They attain D up to the gap, what the best path is better than μ.  Half the gap is spread over the paths that may
    have to carry flow.
    """
    rest, potential, core, lower = w.trial, w.direction, w.core, w.bounds.lower
    attained = 0.0
    for r in range(graph.first[graph.sink]):
        for e in range(graph.edge[r], graph.edge[r] + graph.length[r]):
            rest[e] = scores[e] - w.row[e]
            attained += rest[e] * w.row[e] if w.row[e] > 0.0 else 0.0
    core[:] = 0
    core[0] = core[graph.sink] = 2
    potential[:] = 0.0
    bound_below(rest, graph, core, potential, w.bounds)
    best = -np.inf
    for v in range(graph.sink, len(lower)):
        best = max(best, lower[v])
    potential[graph.sink :] = 0.5 * (best + attained)
    place(rest, graph, core, potential, w.bounds)
    return _round(potential, graph.sink)


@inner
def _round(potential, sink):
    """Rounds potentials to multiples of one power of two, so that their differences are exact; returns their size."""
    size = 1.0
    for v in range(sink + 1):
        size = max(size, abs(potential[v]))
    for v in range(len(potential)):
        potential[v] = (potential[v] + 4.0 * size) - 4.0 * size
    return size


@inner
def _threshold(row, flow):
    """τ with Σ max(0, xₖ − τ) = flow, by Newton's method from the left of a convex function; −∞ if no xₖ is finite."""
    largest = -np.inf
    for k in range(len(row)):
        largest = fmax(row[k], largest)
    threshold = largest - flow
    for _ in range(50):
        total, count = _sum_above(row, threshold)
        if not total > flow * (1.0 + 1e-12 * count):
            break
        threshold += (total - flow) / count
    return min(threshold, largest - max(1e-3 * flow, 4e-16 * abs(largest)))  # at least a trickle


@summing
def _sum_above(row, threshold):
    """Σ max(0, xₖ − threshold) and the number of positive terms."""
    total, count = 0.0, 0.0
    for k in range(len(row)):
        flow = row[k] - threshold
        total += max(flow, 0.0)
        count += 1.0 if flow > 0.0 else 0.0
    return total, count

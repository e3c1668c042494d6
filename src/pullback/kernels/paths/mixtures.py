"""SparseMAP over paths by the active-set method: the nearest point of their hull and the paths it mixes.

A path enters a node once at most, and all edges that take a part enter the same one: so slot v − 1 holds the part with
which the path enters node v, −1 if it does not.  An instance is known by its code: 0 if its path is empty, else b + 1.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.paths.best import best_edge, sweep
from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.tools import inner, kernel


class Own(NamedTuple):
    """What the argmax needs: the scores of edges, and the best paths from each node on."""

    weight: np.ndarray
    chart: np.ndarray


@inner
def _workspace(scores, options):
    graphs, _ = options
    return Own(np.empty(graphs.shape[2]), np.empty(last_node(graphs) + 1))


@inner
def _load(scores, b, code, options, own, out):
    """Copies the scores in use; there is a slot for each node but the first, and for the sink if parts lead there."""
    graphs, sinks = options
    lattice = lattice_of(graphs, sinks, b)
    if not load(scores[b], lattice, len(own.chart) - 1, own.weight):
        return -1
    for e in range(lattice.first[lattice.sink]):
        if lattice.part[e] >= 0 and lattice.head[e] <= lattice.sink:
            out[lattice.part[e]] = own.weight[e]
    edges = lattice.first[lattice.sink]
    return lattice.sink - (edges > 0 and lattice.part[edges - 1] < 0)


@inner
def best_path(rest, code, options, own, parts):
    """Writes the parts of the best path; False if there is none."""
    if code == 0:
        return True
    graphs, sinks = options
    lattice = lattice_of(graphs, sinks, code - 1)
    load(rest, lattice, len(own.chart) - 1, own.weight)
    sweep(own.weight, lattice, own.chart)
    if own.chart[0] == -np.inf:
        return False
    for slot in range(len(parts)):
        parts[slot] = -1
    u = 0
    while u < lattice.sink:
        e = best_edge(own.weight, lattice, own.chart, u)
        u = lattice.head[e]
        if lattice.part[e] >= 0:
            parts[u - 1] = lattice.part[e]
    return True


_mixture, _mixture_backward = mixture_over(_workspace, _load, best_path)


@inner
def _codes(sinks):
    codes = np.empty(len(sinks), np.int64)
    for b in range(len(sinks)):
        codes[b] = b + 1 if sinks[b] != 0 else 0
    return codes


@kernel
def mixture(
    scores, graphs, sinks, start, tolerance, max_iterations,
    point, vertices, probabilities, size, gap, iterations, lo, hi,
):  # fmt: skip
    """The nearest mixture of paths: `mixture_over` says what is written where.

    scores (batch, parts), graphs and sinks as in `argmax`, which every round calls; there are as many slots as the
    largest sink.
    """
    return _mixture(
        scores, _codes(sinks), (graphs, sinks), start, tolerance, max_iterations,
        point, vertices, probabilities, size, gap, iterations, lo, hi,
    )  # fmt: skip


@kernel
def mixture_backward(scores, graphs, sinks, vertices, size, gradient, product, lo, hi):
    """The Jacobian of `mixture`, which is symmetric, times `gradient`; from the paths that `mixture` wrote.

    Instances with a sink below 0 are left alone.
    """
    codes = _codes(sinks)
    for b in range(lo, hi):
        if sinks[b] < 0:
            codes[b] = -1
    return _mixture_backward(scores, codes, (graphs, sinks), vertices, size, gradient, product, lo, hi)

"""Exact samples of paths, drawn from node 0 to the sink.

`sums.look_ahead` has summed over all that may follow: at node u, a path takes edge e with probability share[e].
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.paths.sums import look_ahead
from pullback.kernels.tools import inner, kernel, uniform


@inner
def _draw(lattice, share, u, random):
    """An edge that leaves u, drawn with the probability share[e]."""
    left = uniform(random)
    chosen = -1
    for e in range(lattice.first[u], lattice.first[u + 1]):
        if share[e] > 0.0:  # rounding may leave a remainder behind the last one
            chosen = e
            left -= share[e]
            if left < 0.0:
                break
    return chosen


@kernel
def sample(scores, graphs, sinks, seeds, count, drawn, lo, hi):
    """Independent exact samples, `count` for each instance: drawn (batch, count, parts), zeros and ones.

    scores, graphs, sinks and the answer as in `sums`; seeds (batch,), int64: seeds[b] decides all samples of instance
    b.
    """
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, chart, ahead = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        drawn[b] = 0.0
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        if look_ahead(weight, lattice, chart, ahead, share) == -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for draw in range(count):
            u = 0
            while u < lattice.sink:
                e = _draw(lattice, share, u, random)
                if lattice.part[e] >= 0:
                    drawn[b, draw, lattice.part[e]] = 1.0
                u = lattice.head[e]
    return -1

"""SparseMAP for linear chains: the nearest mixture of tag sequences.

    argmin ½‖μ − s‖²   over the convex hull of the sequences, each the indicator of its parts (i, a, b):
                       tag a at position i − 1, tag b at position i

A sequence is a path from a source through one node for each position and tag, its parts are the edges, so the mixtures
are the flows through this lattice (`flows`).  The tags of the last position, where nothing follows, count as one node,
the sink.  Newton's method takes about as long for any scores, the active-set method (`mixtures`) as long as there are
sequences to mix: one if the scores are large, hundreds if they are small.  So the active set runs first, and gives up
when its gap tells that there are too many (`attempt`, in the active set's `mixtures`).  If that took as many rounds as
there are tags, Newton's method begins at the mixture they led to; after fewer, its own start is as good.
"""

import numpy as np

from pullback.kernels.chain.mixtures import attempt
from pullback.kernels.flows import Graph, forbid_dead_ends, nearest_flow, new_workspace, project_on_face
from pullback.kernels.tools import inner, kernel

PATIENCE = 3.0, 0.3  # of the active set, and more of it for each tag: they make Newton's steps longer
EXACT = 1e-12  # the gap at which the active set ends; with a larger one it might be on a neighboring face


@kernel
def project(scores, lengths, point, lo, hi):
    """The nearest mixture of tag sequences of each instance.

    scores, point (batch, n, t, t): score[i, a, b] of tag a at i − 1 and tag b at i; at position 0 only row 0 is read.
    lengths (batch,): 0 … n.  What is not read may be NaN and gets 0; −∞ forbids a part.  O(n t²) if one sequence is the
    answer, at most about half a dozen steps of O(n t³).
    Returns the first instance without a sequence, with a score of NaN or +∞ or a length out of range, −2 − b if the
    search on instance b did not converge, else −1.
    """
    for b in range(lo, hi):
        if lengths[b] < 0 or lengths[b] > scores.shape[1]:
            return b
    rounds = np.empty(len(lengths), np.int64)
    patience = PATIENCE[0] + PATIENCE[1] * scores.shape[2]
    refused = attempt(scores, lengths, (), EXACT, patience, point, rounds, lo, hi)
    return refused if refused >= 0 else finish_as_flows(scores, lengths, rounds, point, lo, hi)


@kernel
def project_as_flows(scores, lengths, point, lo, hi):
    """`project`, always by Newton's method."""
    return finish_as_flows(scores, lengths, np.full(len(lengths), np.int64(-1)), point, lo, hi)


@kernel
def finish_as_flows(scores, lengths, rounds, point, lo, hi):
    """`project` where `rounds` is not 0; where it is t or more, `point` holds a mixture near the answer."""
    n, t = scores.shape[1:3]
    whole = lattice(n, t)
    w = new_workspace(whole, 1 + n * t, n * t * t)
    score = np.empty(n * t * t)
    for b in range(lo, hi):
        if rounds[b] == 0:
            continue
        if lengths[b] > 0:
            graph = shorten(whole, lengths[b], t)
            valid, masked = _read(scores[b], lengths[b], score)
            if not valid or (masked and not forbid_dead_ends(score, graph, w.core, w.active.begin)):
                return b
            if rounds[b] >= t:
                _read(point[b], lengths[b], w.row)
            if nearest_flow(score[: lengths[b] * t * t], graph, w, rounds[b] >= t) < 0:
                return -2 - b
        point[b] = 0.0
        _write(w.reduced, lengths[b], point[b])
    return -1


@kernel
def project_backward(lengths, point, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    point, gradient, product (batch, n, t, t).  Parts that are not read may be NaN and get 0.  O(n t³) at most, less
    where the point is sparse.
    """
    n, t = point.shape[1:3]
    whole = lattice(n, t)
    w = new_workspace(whole, 1 + n * t, n * t * t)
    for b in range(lo, hi):
        if lengths[b] < 0 or lengths[b] > n:
            return b
        product[b] = 0.0
        if lengths[b] > 0:
            _read(point[b], lengths[b], w.reduced)
            _read(gradient[b], lengths[b], w.row)
            project_on_face(shorten(whole, lengths[b], t), w)
            _write(w.row, lengths[b], product[b])
    return -1


@inner
def lattice(n, t):
    """The graph of chains of n positions; edges are numbered like parts, (i t + a) t + b."""
    first = np.arange(n * t + 2)
    head, edge = np.empty(n * t + 1, np.int64), np.empty(n * t + 1, np.int64)
    head[0], edge[0] = 1, 0
    for u in range(1, n * t + 1):
        head[u] = ((u - 1) // t + 1) * t + 1
        edge[u] = (u - 1 + t) * t
    return shorten(Graph(first, head, edge, np.full(n * t + 1, t), 0), n, t)


@inner
def shorten(graph, n, t):
    """The graph of chains of n positions, from that of longer ones."""
    return Graph(graph.first, graph.head, graph.edge, graph.length, 1 + (n - 1) * t)


@inner
def _read(parts, n, flat):
    """Copies the parts in use; returns whether none is NaN or +∞ and whether some are −∞."""
    t = parts.shape[1]
    valid, masked = True, False
    for i in range(n):
        for a in range(t if i > 0 else 1):
            row = flat[(i * t + a) * t : (i * t + a + 1) * t]
            for c in range(t):
                row[c] = parts[i, a, c]
                valid &= row[c] < np.inf
                masked |= row[c] == -np.inf
    return valid, masked


@inner
def _write(flat, n, parts):
    t = parts.shape[1]
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for c in range(t):
                parts[i, a, c] = flat[(i * t + a) * t + c]

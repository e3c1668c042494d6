"""SparseMAP for linear chains: the nearest mixture of tag sequences.

    argmin ½‖μ − s‖²   over the convex hull of the sequences, each the indicator of its parts (i, a, b):
                       tag a at position i − 1, tag b at position i

A sequence is a path from a source through one node for each position and tag, its parts are the edges, so the mixtures
are the flows through this lattice (`flows`).  The tags of the last position, where nothing follows, count as one node,
the sink.  Newton's method takes about as long for any scores, the active-set method (`mixtures`) as long as there are
sequences to mix: one if the scores are large, hundreds if they are small.  So the active set runs first, and gives up
when its gap tells that there are too many (`attempt`, in the active set's `mixtures`).
"""

import numpy as np

from pullback.kernels.chain.mixtures import attempt
from pullback.kernels.flows import Graph, forbid_dead_ends, nearest_flow, new_workspace, project_on_face
from pullback.kernels.tools import inlined, inner, kernel

PATIENCE = 3.0, 0.3  # of the active set, and more of it for each tag: they make Newton's steps longer
EXACT = 1e-12  # the gap at which the active set ends; with a larger one it might be on a neighboring face


def project(scores, lengths, point, lo, hi):
    """The nearest mixture of tag sequences of each instance.

    scores, point (batch, n, t, t): score[i, a, b] of tag a at i − 1 and tag b at i; at position 0 only row 0 is read.
    lengths (batch,): 0 … n.  What is not read may be NaN and gets 0; −∞ forbids a part.  O(n t²) if one sequence is the
    answer, at most about half a dozen steps of O(n t³).
    Returns the first instance without a sequence, with a score of NaN or +∞ or a length out of range, −2 − b if the
    search on instance b did not converge, else −1.

    Not one kernel but two: each takes long to compile, and where scores are large, the first is enough.
    """
    wrong = np.flatnonzero((lengths[lo:hi] < 0) | (lengths[lo:hi] > scores.shape[1]))
    if len(wrong):
        return lo + int(wrong[0])
    left = np.zeros(len(lengths), np.bool_)
    patience = PATIENCE[0] + PATIENCE[1] * scores.shape[2]
    refused = attempt(scores, lengths, (), EXACT, patience, point, left, lo, hi)
    if refused >= 0 or not left[lo:hi].any():
        return refused
    return finish_as_flows(scores, lengths, left, point, lo, hi)


def project_as_flows(scores, lengths, point, lo, hi):
    """`project`, always by Newton's method."""
    return finish_as_flows(scores, lengths, np.ones(len(lengths), np.bool_), point, lo, hi)


@kernel
def finish_as_flows(scores, lengths, left, point, lo, hi):
    """`project` of the instances that are left."""
    n, t = scores.shape[1:3]
    longest = lattice(n, t)
    w, score = new_workspace(longest, 4 + n * row_length(t)), np.empty(n * t * row_length(t))
    for b in range(lo, hi):
        if not left[b]:
            continue
        if lengths[b] > 0:
            graph = _until(longest, lengths[b], t)
            valid, masked = _read(scores[b], lengths[b], -np.inf, score)
            if not valid or (masked and not forbid_dead_ends(score, graph, w.core, w.potential)):
                return b
            if nearest_flow(score, graph, w) < 0:
                return -2 - b
        _write(w.reduced, lengths[b], point[b])
    return -1


@kernel
def project_backward(lengths, point, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: its orthogonal projection on the point's face.

    point, gradient, product (batch, n, t, t).  Parts that are not read may be NaN and get 0.  O(n t³) at most, less
    where the point is sparse.
    """
    n, t = point.shape[1:3]
    longest = lattice(n, t)
    w = new_workspace(longest, 4 + n * row_length(t))
    for b in range(lo, hi):
        if lengths[b] < 0 or lengths[b] > n:
            return b
        if lengths[b] > 0:
            _read(point[b], lengths[b], 0.0, w.reduced)
            _read(gradient[b], lengths[b], 0.0, w.row)
            project_on_face(_until(longest, lengths[b], t), w)
        _write(w.row, lengths[b], product[b])
    return -1


@inner
def row_length(t):
    """The length of t numbers in groups of four."""
    return (t + 3) // 4 * 4


@inner
def lattice(n, t):
    """The graph of chains of n positions: a run of edges for position 0, then one for each position and tag before.

    The nodes of position i begin at 4 + i · row_length(t), where four neighbors are together in memory; those between
    have no edges.
    """
    n, width = max(n, 1), row_length(t)
    sink = 4 + (n - 1) * width
    first = np.empty(sink + 1, np.int64)
    head, edge, share = np.empty(1 + (n - 1) * t, np.int64), np.empty(2 + (n - 1) * t, np.int64), np.empty(sink)
    runs = np.int64(0)
    for u in range(sink):
        first[u], share[u] = runs, t**-0.5
        if u == 0 or (u >= 4 and (u - 4) % width < t):
            head[runs], edge[runs] = (u + width - 4) // width * width + 4, runs * width
            runs += 1
    first[sink], edge[runs], share[0] = runs, runs * width, 1.0
    return Graph(first, head, edge, share, sink)


@inner
def _until(graph, n, t):
    """The graph of the first n positions: what lies behind counts as the sink."""
    return Graph(graph.first, graph.head, graph.edge, graph.share, 4 + (n - 1) * row_length(t))


@inlined
def _read(parts, n, padding, flat):
    """Copies the parts in use into rows of edges; returns whether none is NaN or +∞ and whether some are −∞."""
    t = parts.shape[1]
    width, valid, masked = row_length(t), True, False
    e = 0
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for c in range(t):
                score = np.float64(parts[i, a, c])
                flat[e + c] = score
                valid &= score < np.inf
                masked |= score == -np.inf
            for c in range(t, width):
                flat[e + c] = padding
            e += width
    return valid, masked


@inlined
def _write(flat, n, parts):
    """The reverse; parts that are not in use become 0."""
    t = parts.shape[1]
    parts[:1] = 0.0
    parts[n:] = 0.0
    e = 0
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for c in range(t):
                parts[i, a, c] = flat[e + c]
            e += row_length(t)

"""Sums over all spanning trees: log-partition, marginals, their derivative and exact samples.

Directed away from node 0, a spanning tree is a dependency tree whose root is node 0, and each edge is one of two arcs
of the same score.  So the sums are those of `trees`, which stay accurate whatever the scores, and the marginal of an
edge is what its two arcs have together.  The score of an edge is the mean of its two entries, so the derivative in each
entry is half of that in the edge; derivatives are written by entries.

There are no sums over forests of several trees.  The matrix-tree theorem counts such a forest as often as its trees can
be given roots; to count every forest once is #P-hard (Jaeger, Vertigan and Welsh, 1990).
"""

import numpy as np

from pullback.kernels import trees
from pullback.kernels.tools import kernel


@kernel
def _direct(scores, arcs, lo, hi):
    """Writes the mean of the two entries of each edge of the instances lo … hi to both halves of `arcs`, from 0 on."""
    for b in range(lo, hi):
        for i in range(scores.shape[1]):
            for j in range(i):
                arcs[b - lo, i, j] = arcs[b - lo, j, i] = 0.5 * scores[b, i, j] + 0.5 * scores[b, j, i]
            arcs[b - lo, i, i] = 0.0
    return -1


@kernel
def _undirect(arcs, edges, lo, hi):
    """Shares the two arcs of each edge between the two entries, in the instances lo … hi."""
    for b in range(lo, hi):
        for i in range(edges.shape[1]):
            for j in range(i):
                edges[b, i, j] = edges[b, j, i] = 0.5 * (arcs[b - lo, i, j] + arcs[b - lo, j, i])
            edges[b, i, i] = 0.0
    return -1


@kernel
def _draw_edges(heads, lengths, vertices, lo, hi):
    """Writes the trees of `heads`, from 0 on, as the edges of the instances lo … hi."""
    for b in range(lo, hi):
        vertices[b] = 0.0
        for draw in range(heads.shape[1]):
            for m in range(1, lengths[b]):
                h = heads[b - lo, draw, m]
                vertices[b, draw, h, m] = vertices[b, draw, m, h] = 1.0
    return -1


def _directed(scores, lengths, lo, hi):
    """The scores of both arcs of each edge, and the number of words; a graph without nodes is like one of a single."""
    size = max(scores.shape[1], 1)
    arcs = np.empty((hi - lo, size, size), scores.dtype)
    _direct(scores, arcs, lo, hi)
    return arcs, np.maximum(lengths[lo:hi] - 1, 0)


def log_partition(scores, lengths, value, lo, hi):
    """log Σ exp(score) over the spanning trees of each instance.  O(n³) each.

    scores (batch, N, N), −∞ in one half or both where there is no edge; the diagonal is not read.  lengths (batch,):
    the number of nodes, at most N.  value (batch,).
    Returns the first instance without a tree or with a score of NaN or +∞, or −1.
    """
    arcs, words = _directed(scores, lengths, lo, hi)
    report = trees.log_partition(arcs, words, False, value[lo:hi], 0, hi - lo)
    return -1 if report == -1 else report + lo


def partition(scores, lengths, value, gradient, lo, hi):
    """The log-partition of each instance and its gradient, in each half half the probability of an edge.  O(n³) each.

    gradient (batch, N, N): zero on the diagonal and in the padding.  Otherwise as `log_partition`.
    """
    arcs, words = _directed(scores, lengths, lo, hi)
    halves = np.empty_like(arcs)
    report = trees.partition(arcs, words, False, value[lo:hi], halves, 0, hi - lo)
    return _undirect(halves, gradient, lo, hi) if report == -1 else report + lo


def hessian_product(scores, lengths, direction, product, lo, hi):
    """The derivative of each instance's gradient along `direction`: the Hessian of the log-partition times it.

    product (batch, N, N): the same in both halves.  O(n³) each.  Otherwise as `log_partition`.
    """
    arcs, words = _directed(scores, lengths, lo, hi)
    along, _ = _directed(direction, lengths, lo, hi)
    halves = np.empty_like(along)
    report = trees.hessian_product(arcs, words, False, along, halves, 0, hi - lo)
    return _undirect(halves, product, lo, hi) if report == -1 else report + lo


def sample(scores, lengths, seeds, count, vertices, lo, hi):
    """Independent exact samples of spanning trees, vertices[b, draw]; seeds[b] decides all those of instance b.

    seeds (batch,), int64; vertices (batch, count, N, N).  O(n³) once, about O(n²) for each sample, whatever the scores.
    Otherwise as `log_partition`.
    """
    arcs, words = _directed(scores, lengths, lo, hi)
    heads = np.empty((hi - lo, count, arcs.shape[1]), np.int64)
    report = trees.sample(arcs, words, False, seeds[lo:hi], heads, 0, hi - lo)
    return _draw_edges(heads, lengths, vertices, lo, hi) if report == -1 else report + lo

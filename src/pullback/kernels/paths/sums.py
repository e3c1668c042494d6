"""Distributions over paths: log-partition, marginals and their derivative, each in one pass forth or back.

p(path) ∝ exp of the sum of its scores.  From the sink to node 0, with future[sink] = 0,

    share[e]  = exp(score[e] + future[head] − peak)           peak: the largest exponent among the edges that leave u
    total[u]  = Σ share[e] over the edges that leave u
    future[u] = peak + log total[u]                           of node 0: log Z

so a path that has reached u takes edge e with probability share / total.  From node 0 to the sink, with mass[0] = 1,

    p[e] = mass[tail] · share / total,        mass[v] = Σ p[e] over the edges that lead to v

`future` is a logarithm and every other number a probability, of which only those underflow that do not matter; so
scores may be of any size.
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.tools import exp, fmax, inner, kernel, log, summing

_LOWEST = -np.finfo(np.float64).max  # stands for −∞ as a peak: −∞ less −∞ would be NaN
_NO_MASS = 1e-200  # a mean over paths that are less probable has no digits left, and does not matter


@summing
def _exponentiate(x, peak):
    """x becomes exp(x − peak); returns the sum."""
    total = 0.0
    for k in range(x.shape[0]):
        x[k] = exp(x[k] - peak)
        total += x[k]
    return total


@inner
def look_ahead(weight, lattice, future, share, total):
    """Fills share and total, and returns log Z; −∞ if no path has a finite score."""
    first, head, _, sink = lattice
    future[:] = -np.inf
    future[sink] = 0.0
    for u in range(sink - 1, -1, -1):
        peak = _LOWEST
        for e in range(first[u], first[u + 1]):
            share[e] = weight[e] + future[head[e]]
            peak = fmax(share[e], peak)
        total[u] = _exponentiate(share[first[u] : first[u + 1]], peak)
        if total[u] > 0.0:
            future[u] = peak + log(total[u])
    return future[0]


@kernel
def log_partition(scores, graphs, sinks, value, lo, hi):
    """log Σ exp(score) over the paths of each instance; one number each, 0 for the empty path.  O(edges).

    Every kernel of this file returns the first instance without a path, or with a score of NaN or +∞ or a sink out of
    range, or −1.  scores (batch, parts); for graphs and sinks see `graph`.
    """
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, total, future = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        result = look_ahead(weight, lattice, future, share, total)
        if result == -np.inf:
            return b
        value[b] = result
    return -1


@kernel
def partition(scores, graphs, sinks, value, marginals, lo, hi):
    """The log-partition and its gradient, the probability of each part, shaped like scores.  O(edges)."""
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, total, future = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    mass = np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        result = look_ahead(weight, lattice, future, share, total)
        if result == -np.inf:
            return b
        value[b] = result
        marginals[b] = 0.0
        _carry(lattice, share, total, mass, marginals[b])
    return -1


@inner
def _carry(lattice, share, total, mass, marginals):
    """Fills mass[v] and adds p[e] to the marginals of the parts."""
    first, head, part, sink = lattice
    mass[:] = 0.0
    mass[0] = 1.0
    for u in range(sink):
        if mass[u] > 0.0:
            reach = mass[u] / total[u]
            for e in range(first[u], first[u + 1]):
                p = reach * share[e]
                mass[head[e]] += p
                if part[e] >= 0:
                    marginals[part[e]] += p


@kernel
def hessian_product(scores, graphs, sinks, direction, product, lo, hi):
    """The derivative of the marginals along `direction`: the Hessian of the log-partition times it, Cov(z) · g.

    direction, product (batch, parts).  The Hessian is symmetric, so this is also the backward pass of the marginals.
    """
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, total, future = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    surprise, mass, moved = np.empty(width), np.empty(last + 1), np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        if look_ahead(weight, lattice, future, share, total) == -np.inf:
            return b
        product[b] = 0.0
        _expect(lattice, share, total, direction[b], future, surprise)
        _covary(lattice, share, total, surprise, mass, moved, product[b])
    return -1


@inner
def _expect(lattice, share, total, direction, after, surprise):
    """By how much edge e changes what ⟨g, z⟩ is expected to be, given that the path has reached its tail.

    after[u] is what is expected of the rest of a path from u on; surprise[e] = g[e] + after[head] − after[tail].
    """
    first, head, part, sink = lattice
    after[sink] = 0.0
    for u in range(sink - 1, -1, -1):
        mean = 0.0
        for e in range(first[u], first[u + 1]):
            surprise[e] = 0.0
            if share[e] > 0.0:  # the direction of an impossible part may be anything
                surprise[e] = after[head[e]]
                if part[e] >= 0:
                    surprise[e] += direction[part[e]]
                mean += share[e] * surprise[e]
        after[u] = mean / total[u] if total[u] > 0.0 else 0.0
        for e in range(first[u], first[u + 1]):
            surprise[e] -= after[u]


@inner
def _covary(lattice, share, total, surprise, mass, moved, product):
    """Cov(z[e], ⟨g, z⟩) = p[e] · (what surprised before the tail, on average, + surprise[e]); later ones average 0."""
    first, head, part, sink = lattice
    mass[:] = 0.0
    moved[:] = 0.0
    mass[0] = 1.0
    for u in range(sink):
        if mass[u] > _NO_MASS:
            reach, before = mass[u] / total[u], moved[u] / mass[u]
            for e in range(first[u], first[u + 1]):
                if share[e] > 0.0:
                    p = reach * share[e]
                    change = p * (before + surprise[e])
                    mass[head[e]] += p
                    moved[head[e]] += change
                    if part[e] >= 0:
                        product[part[e]] += change

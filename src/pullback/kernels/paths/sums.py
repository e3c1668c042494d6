"""Distributions over paths: log-partition, marginals and their derivative, in a few passes over the edges.

p(path) ∝ exp of the sum of its scores.  With chart[u], the score of the best path from u to the sink (`best`),

    excess[e] = exp(score[e] + chart[head] − chart[tail])               at most 1, and 1 for the best edge of each node
    ahead[u]  = Σ excess[e] · ahead[head] over the edges that leave u,   ahead[sink] = 1
    share[e]  = excess[e] · ahead[head] / ahead[tail]                    how probable e is once a path has reached u

and log Z = chart[0] + log ahead[0].  `ahead` counts paths by how near they are to the best one: at least 1, at most
their number, whatever the scale of the scores.  Only where there are more than 10³⁰⁰ paths a sum may overflow; then
logarithms take its place, which takes longer (`_look_ahead_in_logarithms`).  From node 0 to the sink, with mass[0] = 1,

    p[e] = mass[tail] · share[e],        mass[v] = Σ p[e] over the edges that lead to v
"""

import numpy as np

from pullback.kernels.paths.graph import last_node, lattice_of, load
from pullback.kernels.tools import exp, fmax, inner, kernel, log

_LOWEST = -np.finfo(np.float64).max  # stands for −∞ as a peak: −∞ less −∞ would be NaN
_NO_MASS = 1e-200  # a mean over paths that are less probable has no digits left, and does not matter


@inner
def look_ahead(weight, lattice, chart, ahead, share):
    """Fills share[e], 0 where no path leads on, and returns log Z; −∞ if no path has a finite score."""
    first, head, _, sink = lattice
    _exceed(weight, lattice, chart, share)
    if chart[0] == -np.inf:
        return -np.inf
    ahead[:] = 0.0
    ahead[sink] = 1.0
    for u in range(sink - 1, -1, -1):
        total = 0.0
        for e in range(first[u], first[u + 1]):
            share[e] *= ahead[head[e]]
            total += share[e]
        ahead[u] = total
        scale = 1.0 / total if total > 0.0 else 0.0
        for e in range(first[u], first[u + 1]):
            share[e] *= scale
    if ahead[0] < np.inf:
        return chart[0] + log(ahead[0])
    return _look_ahead_in_logarithms(weight, lattice, ahead, share)


@inner
def _exceed(weight, lattice, chart, excess):
    """Fills chart[u] and excess[e] = exp(score[e] + chart[head] − chart[tail]), 0 where no path leads on."""
    first, head, _, sink = lattice
    chart[:] = -np.inf
    chart[sink] = 0.0
    for u in range(sink - 1, -1, -1):
        best = -np.inf
        for e in range(first[u], first[u + 1]):
            excess[e] = weight[e] + chart[head[e]]
            best = fmax(excess[e], best)
        chart[u] = best
        shift = fmax(best, _LOWEST)
        for e in range(first[u], first[u + 1]):
            excess[e] -= shift
    for e in range(first[sink]):
        excess[e] = exp(excess[e])


@inner
def _look_ahead_in_logarithms(weight, lattice, future, share):
    """`look_ahead` with future[u] = log Σ exp(score) over the paths from u to the sink."""
    first, head, _, sink = lattice
    future[:] = -np.inf
    future[sink] = 0.0
    for u in range(sink - 1, -1, -1):
        peak = _LOWEST
        for e in range(first[u], first[u + 1]):
            share[e] = weight[e] + future[head[e]]
            peak = fmax(share[e], peak)
        total = 0.0
        for e in range(first[u], first[u + 1]):
            share[e] = exp(share[e] - peak)
            total += share[e]
        if total > 0.0:
            future[u] = peak + log(total)
            for e in range(first[u], first[u + 1]):
                share[e] /= total
    return future[0]


@kernel
def log_partition(scores, graphs, sinks, value, lo, hi):
    """log Σ exp(score) over the paths of each instance; one number each, 0 for the empty path.  O(edges).

    Every kernel of this file returns the first instance without a path, or with a score of NaN or +∞ or a sink out of
    range, or −1.  scores (batch, parts); for graphs and sinks see `graph`.
    """
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, chart, ahead = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        result = look_ahead(weight, lattice, chart, ahead, share)
        if result == -np.inf:
            return b
        value[b] = result
    return -1


@kernel
def partition(scores, graphs, sinks, value, marginals, lo, hi):
    """The log-partition and its gradient, the probability of each part, shaped like scores.  O(edges)."""
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, chart, ahead = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    mass = np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        result = look_ahead(weight, lattice, chart, ahead, share)
        if result == -np.inf:
            return b
        value[b] = result
        marginals[b] = 0.0
        _carry(lattice, share, mass, marginals[b])
    return -1


@inner
def _carry(lattice, share, mass, marginals):
    """Fills mass[v] and adds p[e] to the marginals of the parts."""
    first, head, part, sink = lattice
    mass[:] = 0.0
    mass[0] = 1.0
    for u in range(sink):
        reach = mass[u]
        if reach > 0.0:
            for e in range(first[u], first[u + 1]):
                p = reach * share[e]
                mass[head[e]] += p
                if part[e] >= 0:
                    marginals[part[e]] = -fmax(-marginals[part[e]] - p, -1.0)  # a sum may round above 1


@kernel
def hessian_product(scores, graphs, sinks, direction, product, lo, hi):
    """The derivative of the marginals along `direction`: the Hessian of the log-partition times it, Cov(z) · g.

    direction, product (batch, parts).  The Hessian is symmetric, so this is also the backward pass of the marginals.
    """
    last, width = last_node(graphs), graphs.shape[2]
    weight, share, chart, ahead = np.empty(width), np.empty(width), np.empty(last + 1), np.empty(last + 1)
    surprise, mass, moved = np.empty(width), np.empty(last + 1), np.empty(last + 1)
    for b in range(lo, hi):
        lattice = lattice_of(graphs, sinks, b)
        if not load(scores[b], lattice, last, weight):
            return b
        if look_ahead(weight, lattice, chart, ahead, share) == -np.inf:
            return b
        product[b] = 0.0
        _expect(lattice, share, direction[b], ahead, surprise)
        _covary(lattice, share, surprise, mass, moved, product[b])
    return -1


@inner
def _expect(lattice, share, direction, after, surprise):
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
        after[u] = mean
        for e in range(first[u], first[u + 1]):
            surprise[e] -= after[u]


@inner
def _covary(lattice, share, surprise, mass, moved, product):
    """Cov(z[e], ⟨g, z⟩) = p[e] · (what surprised before the tail, on average, + surprise[e]); later ones average 0."""
    first, head, part, sink = lattice
    mass[:] = 0.0
    moved[:] = 0.0
    mass[0] = 1.0
    for u in range(sink):
        reach = mass[u]
        if reach > _NO_MASS:
            before = moved[u] / reach
            for e in range(first[u], first[u + 1]):
                if share[e] > 0.0:
                    p = reach * share[e]
                    change = p * (before + surprise[e])
                    mass[head[e]] += p
                    moved[head[e]] += change
                    if part[e] >= 0:
                        product[part[e]] += change

"""The derivative of the marginals of tags and transitions: the covariance of a random sequence, times a direction.

Let ⟨g, z⟩ be what a direction gives a sequence, g[i, b] for each tag and h[a, b] for each transition.  Then

    Cov(tag b at i, ⟨g, z⟩) = p(tag b at i) · (the mean of ⟨g, z⟩ given this tag, less the mean of all)

and given a tag, past and future are independent: the mean is that of the past up to i and that of the future.

    before[i, b]    = g[i, b] + the mean of before[i − 1, a] + h[a, b]            over a, given b at i
    after[i − 1, a] = the mean of h[a, b] + g[i, b] + after[i, b]                 over b, given a at i − 1

The mean of each position is taken off at once, so small numbers keep their digits.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels import chain
from pullback.kernels.tagging.lattice import add_outer, backward, forward, new_lattice
from pullback.kernels.tagging.tables import add_up, copy_ends, join, write_pairs
from pullback.kernels.tools import add_product, inner, kernel, row_product, summing

_NOTHING = 1e-290  # a tag that is reached, or leads on, less than that has no digits left, and does not matter

# direction: g where a tag is possible;  before, after: see above;  left, right: factors of the products of pairs;
# tilted, tilted_back: steps times h, where a transition is possible.
Means = namedtuple("Means", ["direction", "before", "after", "left", "right", "tilted", "tilted_back", "sums"])


@kernel
def hessian_product(scores, table, lengths, direction, along, product, product_uses, lo, hi):
    """The Hessian of the log-partition of `sums`, times a direction for scores and one for the table.

    direction, product (batch, n, t); along, product_uses (batch, t + 2, t).  It is symmetric, so this is also the
    backward pass of the marginals.  O(n t²).
    """
    n, t = scores.shape[1:]
    l, means = new_lattice(n, t), _new_means(n, t)
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        product_uses[b] = 0.0
        product[b, lengths[b] :] = 0.0
        if lengths[b] == 0:
            continue
        value = forward(scores[b], table[b], lengths[b], l)
        if value > -np.inf and backward(lengths[b], l):
            moves = _load(direction[b], along[b], lengths[b], l, means)
            _look_back(lengths[b], moves, l, means)
            _look_ahead(lengths[b], moves, l, means)
            _write(lengths[b], along[b], moves, l, means, product[b], product_uses[b])
        elif not _from_pairs(scores[b], table[b], lengths[b], direction[b], along[b], product[b], product_uses[b]):
            return b
    return -1


@inner
def _new_means(n, t):
    return Means(
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty((t, t)),
        np.empty((t, t)),
        np.empty((t, t)),
    )


@inner
def _load(direction, along, n, l, means):
    """Copies the directions; those of tags and transitions that are impossible may be anything, and count as 0.

    Returns whether a transition moves.
    """
    t = direction.shape[1]
    join(direction, along, n, means.direction)
    reach, ahead, copied = l.reach.reshape(-1), l.ahead.reshape(-1), means.direction.reshape(-1)
    for j in range(n * t):
        copied[j] = copied[j] if reach[j] * ahead[j] > 0.0 else 0.0
    moves = False
    for a in range(t):
        for b in range(t):
            tilted = l.step[a, b] * along[a, b] if l.step[a, b] > 0.0 else 0.0
            means.tilted[a, b] = means.tilted_back[b, a] = tilted
            moves |= tilted != 0.0
    return moves


@summing
def _center(x, reach, ahead):
    """Takes the mean off."""
    mean = 0.0
    for b in range(x.shape[0]):
        mean += x[b] * (reach[b] * ahead[b])
    for b in range(x.shape[0]):
        x[b] -= mean


@inner
def _look_back(n, moves, l, means):
    means.before[0] = means.direction[0]
    _center(means.before[0], l.reach[0], l.ahead[0])
    for i in range(1, n):
        before, reach, weight, direction = means.before[i], l.reach[i], l.weight[i], means.direction[i]
        last, reached, past = means.before[i - 1], l.reach[i - 1], means.left[i]
        for a in range(past.shape[0]):
            past[a] = reached[a] * last[a]
        row_product(past, l.step, before)
        if moves:
            add_product(l.reach[i - 1 : i], means.tilted, means.before[i : i + 1])
        scale = l.scale[i]
        for b in range(before.shape[0]):
            total = reach[b] * scale
            before[b] = direction[b] + before[b] * weight[b] / total if total > _NOTHING else 0.0
        _center(before, reach, l.ahead[i])


@summing
def _mean(x, weight):
    mean = 0.0
    for a in range(x.shape[0]):
        mean += weight[a] * x[a]
    return mean


@inner
def _look_ahead(n, moves, l, means):
    """Also fills left[i] and right[i], the factors by which the pairs of positions i − 1 and i move."""
    means.after[n - 1] = 0.0
    for i in range(n - 1, 0, -1):
        after, right, pull, left, direction = (
            means.after[i],
            means.right[i],
            l.pull[i],
            means.left[i],
            means.direction[i],
        )
        for b in range(right.shape[0]):
            right[b] = pull[b] * (direction[b] + after[b]) if pull[b] > 0.0 else 0.0
        earlier, ahead, reach, before = means.after[i - 1], l.ahead[i - 1], l.reach[i - 1], means.before[i - 1]
        row_product(right, l.back, earlier)
        if moves:
            add_product(l.pull[i : i + 1], means.tilted_back, means.after[i - 1 : i])
        mean = _mean(earlier, reach)
        for a in range(earlier.shape[0]):
            left[a] = reach[a] * (before[a] - mean)
            earlier[a] = earlier[a] / ahead[a] if ahead[a] > _NOTHING else 0.0
        _center(earlier, reach, ahead)


@inner
def _write(n, along, moves, l, means, product, product_uses):
    """product = marginal · (before + after), and that of pairs summed over the positions."""
    t = product.shape[1]
    reach, ahead, out = l.reach.reshape(-1), l.ahead.reshape(-1), product.reshape(-1)
    before, after = means.before.reshape(-1), means.after.reshape(-1)
    for j in range(n * t):
        marginal = reach[j] * ahead[j]
        out[j] = marginal * (before[j] + after[j]) if marginal > 0.0 else 0.0
    means.sums[:] = 0.0
    if moves:
        add_outer(l.reach[: n - 1], l.pull[1:n], means.sums)
        for a in range(t):
            for b in range(t):
                means.sums[a, b] *= along[a, b] if l.step[a, b] > 0.0 else 0.0
    add_outer(means.left[1:n], l.pull[1:n], means.sums)
    add_outer(l.reach[: n - 1], means.right[1:n], means.sums)
    for a in range(t):
        step, sums, out = l.step[a], means.sums[a], product_uses[a]
        for b in range(t):
            out[b] = step[b] * sums[b]
    copy_ends(product, n, product_uses)


@inner
def _from_pairs(scores, table, n, direction, along, product, product_uses):
    """The same on logarithms, for the pairs of neighbors; False if there is no sequence."""
    t = scores.shape[1]
    pairs, joint, moved = np.empty((1, n, t, t)), np.empty((1, n, t, t)), np.empty((1, n, t, t))
    write_pairs(scores, table, n, pairs[0])
    if chain.partition(pairs, np.full(1, n), np.empty(1), joint, 0, 1) != -1:
        return False
    joined = np.empty((n, t))
    join(direction, along, n, joined)
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for b in range(t):
                step = along[a, b] if i > 0 else 0.0
                pairs[0, i, a, b] = joined[i, b] + step
    chain.hessian_product(joint, np.full(1, n), pairs, moved, 0, 1)
    add_up(moved[0], n, product, product_uses)
    return True

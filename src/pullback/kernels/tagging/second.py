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
from pullback.kernels.chain import add_columns
from pullback.kernels.tagging.lattice import add_outer, add_up, backward, forward, new_lattice, write_pairs
from pullback.kernels.tools import inner, kernel, summing

_NOTHING = 1e-290  # a tag that is reached, or leads on, less than that has no digits left, and does not matter

# direction: g where a tag is possible;  before, after: see above;  left, right: factors of the products of pairs.
Means = namedtuple("Means", ["direction", "before", "after", "left", "right", "tilted", "tilted_back", "row", "sums"])


@kernel
def hessian_product(scores, transitions, lengths, direction, along, product, product_steps, lo, hi):
    """The Hessian of the log-partition of `sums`, times a direction for scores and one for transitions.

    direction, product (batch, n, t); along, product_steps (batch, t, t).  It is symmetric, so this is also the backward
    pass of the marginals.  O(n t²).
    """
    n, t = scores.shape[1:]
    l, means = new_lattice(n, t), _new_means(n, t)
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        product[b], product_steps[b] = 0.0, 0.0
        if lengths[b] == 0:
            continue
        value, _ = forward(scores[b], transitions[b], lengths[b], l)
        if value > -np.inf and backward(lengths[b], l):
            _load(direction[b], along[b], lengths[b], l, means)
            moves = _any(means.tilted)
            _look_back(lengths[b], moves, l, means)
            _look_ahead(lengths[b], moves, l, means)
            _write(lengths[b], along[b], l, means, product[b], product_steps[b])
        elif not _from_pairs(
            scores[b], transitions[b], lengths[b], direction[b], along[b], product[b], product_steps[b]
        ):
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
        np.empty(t),
        np.empty((t, t)),
    )


@inner
def _any(x):
    found = False
    for a in range(x.shape[0]):
        for b in range(x.shape[1]):
            found |= x[a, b] != 0.0
    return found


@inner
def _load(direction, along, n, l, means):
    """Copies the directions; those of tags and transitions that are impossible may be anything, and count as 0."""
    t = along.shape[0]
    for i in range(n):
        for b in range(t):
            possible = l.reach[i, b] * l.ahead[i, b] > 0.0
            means.direction[i, b] = direction[i, b] if possible else 0.0
    for a in range(t):
        for b in range(t):
            tilted = l.step[a, b] * along[a, b] if l.step[a, b] > 0.0 else 0.0
            means.tilted[a, b] = means.tilted_back[b, a] = tilted


@summing
def _center(x, reach, ahead):
    """Takes the mean off."""
    mean = 0.0
    for b in range(x.shape[0]):
        mean += x[b] * (reach[b] * ahead[b])
    for b in range(x.shape[0]):
        x[b] -= mean


@inner
def _add_products(x, y, matrix, other, moves, row, out):
    """out = x · matrix, and y · other besides if it moves."""
    add_columns(x, matrix, out)
    if moves:
        add_columns(y, other, row)
        for b in range(out.shape[0]):
            out[b] += row[b]


@inner
def _look_back(n, moves, l, means):
    for i in range(n):
        before, reach, weight, direction = means.before[i], l.reach[i], l.weight[i], means.direction[i]
        if i == 0:
            before[:] = direction
        else:
            last, reached, past = means.before[i - 1], l.reach[i - 1], means.left[i]
            for a in range(past.shape[0]):
                past[a] = reached[a] * last[a]
            _add_products(past, reached, l.step, means.tilted, moves, means.row, before)
            for b in range(before.shape[0]):
                total = reach[b] * l.scale[i]
                before[b] = direction[b] + before[b] * weight[b] / total if total > _NOTHING else 0.0
        _center(before, reach, l.ahead[i])


@inner
def _look_ahead(n, moves, l, means):
    """Also fills left[i] and right[i], the factors by which the pairs of positions i − 1 and i move."""
    means.after[n - 1] = 0.0
    for i in range(n - 1, 0, -1):
        after, right, pull, left = means.after[i], means.right[i], l.pull[i], means.left[i]
        for b in range(right.shape[0]):
            right[b] = pull[b] * (means.direction[i, b] + after[b]) if pull[b] > 0.0 else 0.0
        earlier, ahead, reach = means.after[i - 1], l.ahead[i - 1], l.reach[i - 1]
        _add_products(right, pull, l.back, means.tilted_back, moves, means.row, earlier)
        mean = 0.0
        for a in range(earlier.shape[0]):
            mean += reach[a] * earlier[a]
        for a in range(earlier.shape[0]):
            left[a] = reach[a] * (means.before[i - 1, a] - mean)
            earlier[a] = earlier[a] / ahead[a] if ahead[a] > _NOTHING else 0.0
        _center(earlier, reach, ahead)


@inner
def _write(n, along, l, means, product, product_steps):
    """product = marginal · (before + after), and that of pairs summed over the positions."""
    t = along.shape[0]
    for i in range(n):
        for b in range(t):
            marginal = l.reach[i, b] * l.ahead[i, b]
            product[i, b] = marginal * (means.before[i, b] + means.after[i, b]) if marginal > 0.0 else 0.0
    for a in range(t):
        for b in range(t):
            means.sums[a, b] = 0.0
    add_outer(l.reach[: n - 1], l.pull[1:n], means.sums)
    for a in range(t):
        for b in range(t):
            means.sums[a, b] *= along[a, b] if l.step[a, b] > 0.0 else 0.0
    add_outer(means.left[1:n], l.pull[1:n], means.sums)
    add_outer(l.reach[: n - 1], means.right[1:n], means.sums)
    for a in range(t):
        for b in range(t):
            product_steps[a, b] = l.step[a, b] * means.sums[a, b]


@inner
def _from_pairs(scores, transitions, n, direction, along, product, product_steps):
    """The same on logarithms, for the pairs of neighbors; False if there is no sequence."""
    t = transitions.shape[0]
    pairs, joint, moved = np.empty((1, n, t, t)), np.empty((1, n, t, t)), np.empty((1, n, t, t))
    write_pairs(scores, transitions, n, pairs[0])
    if chain.partition(pairs, np.full(1, n), np.empty(1), joint, 0, 1) != -1:
        return False
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for b in range(t):
                step = along[a, b] if i > 0 else 0.0
                pairs[0, i, a, b] = direction[i, b] + step
    chain.hessian_product(joint, np.full(1, n), pairs, moved, 0, 1)
    add_up(moved[0], n, product, product_steps)
    return True

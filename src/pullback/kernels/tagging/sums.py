"""Distributions over sequences of tags: log-partition and marginals.

p(sequence) ∝ exp(Σ_i score[i, tag i] + Σ_i transition[tag i − 1, tag i] + start[tag 0] + end[tag n − 1]).  Scores are
(batch, n, t), tables (batch, t + 2, t) as in `tables`; lengths (batch,) say how many positions are in use.  Every
kernel returns the first instance whose length is not in 0 … n, that has a NaN or +∞ among the scores in use, or no
sequence above −∞; else −1.
"""

import numpy as np

from pullback.kernels import chain
from pullback.kernels.tagging.lattice import add_outer, are_high, backward, forward, new_lattice
from pullback.kernels.tagging.tables import add_up, copy_ends, write_pairs
from pullback.kernels.tools import fmax, inner, kernel


@kernel
def log_partition(scores, table, lengths, value, lo, hi):
    """log Σ exp(score) over the sequences of each instance; one number each, 0 for an empty sequence.  O(n t²)."""
    n, t = scores.shape[1:]
    l = new_lattice(n, t)
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        value[b] = 0.0
        if lengths[b] > 0:
            result = forward(scores[b], table[b], lengths[b], l)
            if not (result > -np.inf and (are_high(lengths[b], l) or backward(lengths[b], l))):
                result = _value_of_pairs(scores[b], table[b], lengths[b])
            if not result > -np.inf:
                return b
            value[b] = result
    return -1


@kernel
def partition(scores, table, lengths, value, marginals, uses, lo, hi):
    """The log-partition and its gradient: the probability of each tag, how often each score of the table is used.

    marginals (batch, n, t) and uses (batch, t + 2, t).  O(n t²).
    """
    n, t = scores.shape[1:]
    l = new_lattice(n, t)
    sums = np.empty((t, t))
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        value[b], uses[b] = 0.0, 0.0
        marginals[b, lengths[b] :] = 0.0
        if lengths[b] == 0:
            continue
        result = forward(scores[b], table[b], lengths[b], l)
        if result > -np.inf and backward(lengths[b], l):
            _write(lengths[b], l, sums, marginals[b], uses[b])
        else:
            result = _partition_of_pairs(scores[b], table[b], lengths[b], marginals[b], uses[b])
            if not result > -np.inf:
                return b
        value[b] = result
    return -1


@kernel
def weigh(weights, marginals, uses, weighted, total, lo, hi):
    """The marginals of each instance times its weight; total = the uses times theirs, summed over instances.

    weights (batch,), weighted (batch, n, t), total (t + 2, t).  The gradient of a weighted sum of log-partitions, where
    all instances have one table.
    """
    rows, t = uses.shape[1:]
    sums = np.zeros(rows * t)
    for b in range(lo, hi):
        weight, given, out, used = weights[b], marginals[b].reshape(-1), weighted[b].reshape(-1), uses[b].reshape(-1)
        for j in range(len(given)):
            out[j] = weight * given[j]
        for j in range(len(used)):
            sums[j] += np.float64(weight) * used[j]
    total[:] = sums.reshape(rows, t)
    return -1


@inner
def _write(n, l, sums, marginals, uses):
    t = marginals.shape[1]
    reach, ahead, out = l.reach.reshape(-1), l.ahead.reshape(-1), marginals.reshape(-1)
    for j in range(n * t):
        out[j] = -fmax(-reach[j] * ahead[j], -1.0)  # a product may round above 1
    sums[:] = 0.0
    add_outer(l.reach[: n - 1], l.pull[1:n], sums)
    for a in range(t):
        step, total, out = l.step[a], sums[a], uses[a]
        for b in range(t):
            out[b] = step[b] * total[b]
    copy_ends(marginals, n, uses)


# ---- on logarithms


@inner
def _value_of_pairs(scores, table, n):
    t = scores.shape[1]
    pairs, value = np.empty((1, n, t, t)), np.empty(1)
    taken = write_pairs(scores, table, n, pairs[0])
    return taken + value[0] if chain.log_partition(pairs, np.full(1, n), value, 0, 1) == -1 else np.nan


@inner
def _partition_of_pairs(scores, table, n, marginals, uses):
    t = scores.shape[1]
    pairs, joint, value = np.empty((1, n, t, t)), np.empty((1, n, t, t)), np.empty(1)
    taken = write_pairs(scores, table, n, pairs[0])
    if chain.partition(pairs, np.full(1, n), value, joint, 0, 1) != -1:
        return np.nan
    add_up(joint[0], n, marginals, uses)
    for i in range(n):
        for b in range(t):
            marginals[i, b] = min(marginals[i, b], 1.0)
    copy_ends(marginals, n, uses)
    return taken + value[0]

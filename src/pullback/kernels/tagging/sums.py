"""Distributions over sequences of tags: log-partition and marginals.

p(sequence) ∝ exp(Σ_i score[i, tag i] + Σ_i transition[tag i − 1, tag i]).  Scores are (batch, n, t), transitions
(batch, t, t) by [tag before, tag]; lengths (batch,) say how many positions are in use.  Every kernel returns the first
instance whose length is not in 0 … n, that has a NaN or +∞ among the scores in use, or no sequence above −∞; else −1.
"""

import numpy as np

from pullback.kernels import chain
from pullback.kernels.tagging.lattice import add_outer, add_up, backward, forward, new_lattice, write_pairs
from pullback.kernels.tools import inner, kernel


@kernel
def log_partition(scores, transitions, lengths, value, lo, hi):
    """log Σ exp(score) over the sequences of each instance; one number each, 0 for an empty sequence.  O(n t²)."""
    n, t = scores.shape[1:]
    l = new_lattice(n, t)
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        value[b] = 0.0
        if lengths[b] > 0:
            result, exact = forward(scores[b], transitions[b], lengths[b], l)
            if not exact and not (result > -np.inf and backward(lengths[b], l)):
                result = _value_of_pairs(scores[b], transitions[b], lengths[b])
            if not result > -np.inf:
                return b
            value[b] = result
    return -1


@kernel
def partition(scores, transitions, lengths, value, marginals, steps, lo, hi):
    """The log-partition and its gradient: the probability of each tag, the expected number of each transition.

    marginals (batch, n, t) and steps (batch, t, t).  O(n t²).
    """
    n, t = scores.shape[1:]
    l = new_lattice(n, t)
    sums = np.empty((t, t))
    for b in range(lo, hi):
        if not 0 <= lengths[b] <= n:
            return b
        value[b], marginals[b], steps[b] = 0.0, 0.0, 0.0
        if lengths[b] == 0:
            continue
        result, _ = forward(scores[b], transitions[b], lengths[b], l)
        if result > -np.inf and backward(lengths[b], l):
            _write(lengths[b], l, sums, marginals[b], steps[b])
        else:
            result = _partition_of_pairs(scores[b], transitions[b], lengths[b], marginals[b], steps[b])
            if not result > -np.inf:
                return b
        value[b] = result
    return -1


@inner
def _write(n, l, sums, marginals, steps):
    for i in range(n):
        reach, ahead, out = l.reach[i], l.ahead[i], marginals[i]
        for b in range(out.shape[0]):
            out[b] = reach[b] * ahead[b]
    sums[:] = 0.0
    add_outer(l.reach[: n - 1], l.pull[1:n], sums)
    for a in range(sums.shape[0]):
        for b in range(sums.shape[0]):
            steps[a, b] = l.step[a, b] * sums[a, b]


# ---- on logarithms


@inner
def _value_of_pairs(scores, transitions, n):
    t = transitions.shape[0]
    pairs, value = np.empty((1, n, t, t)), np.empty(1)
    taken = write_pairs(scores, transitions, n, pairs[0])
    return taken + value[0] if chain.log_partition(pairs, np.full(1, n), value, 0, 1) == -1 else np.nan


@inner
def _partition_of_pairs(scores, transitions, n, marginals, steps):
    t = transitions.shape[0]
    pairs, joint, value = np.empty((1, n, t, t)), np.empty((1, n, t, t)), np.empty(1)
    taken = write_pairs(scores, transitions, n, pairs[0])
    if chain.partition(pairs, np.full(1, n), value, joint, 0, 1) != -1:
        return np.nan
    add_up(joint[0], n, marginals, steps)
    return taken + value[0]

"""A label for each arc of given trees: the best, or one drawn at random."""

import numpy as np

from pullback.kernels.tools import exp, inner, kernel, uniform

_OTHER_STREAM = np.uint64(0xD1342543DE82EF95)  # so that labels do not repeat the numbers that drew the tree


@kernel
def choose(scores, lengths, heads, labels, lo, hi):
    """labels[b, m] = the best label of the arc from heads[b, m] to m, for the words m = 1 … lengths[b]."""
    for b in range(lo, hi):
        for m in range(1, lengths[b] + 1):
            row, best = scores[b, heads[b, m], m], 0
            for k in range(1, len(row)):
                if row[k] > row[best]:
                    best = k
            labels[b, m] = best
    return -1


@inner
def _draw_label(row, random):
    """A label with probability ∝ exp of its score; never one at −∞."""
    best = -np.inf
    for k in range(len(row)):
        best = max(best, row[k])
    total = 0.0
    for k in range(len(row)):
        total += exp(row[k] - best)
    left, last = uniform(random) * total, 0
    for k in range(len(row)):
        share = exp(row[k] - best)
        if share > 0.0:
            last = k
            left -= share
            if left < 0.0:
                break
    return last


@kernel
def draw(scores, lengths, seeds, heads, labels, lo, hi):
    """labels[b, sample, m] for trees heads[b, sample, m]; seeds[b] decides all those of instance b."""
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        random[0] = np.uint64(seeds[b]) ^ _OTHER_STREAM
        for sample in range(heads.shape[1]):
            for m in range(1, lengths[b] + 1):
                labels[b, sample, m] = _draw_label(scores[b, heads[b, sample, m], m], random)
    return -1


@kernel
def write_arcs(heads, labels, lengths, arcs, lo, hi):
    """arcs[b, h, m, k] = 1 where heads[b, m] = h and labels[b, m] = k, for words m = 1 … lengths[b]; 0 elsewhere."""
    for b in range(lo, hi):
        arcs[b] = 0
        for m in range(1, lengths[b] + 1):
            arcs[b, heads[b, m], m, labels[b, m]] = 1
    return -1

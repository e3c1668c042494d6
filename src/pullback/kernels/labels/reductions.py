"""The best label of every arc.

Scores are [head, modifier, label]; arcs into node 0 and the diagonal are never read.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel


@inner
def best_labels(scores, n, best, label):
    """The best label of every arc over n words and its score; −∞ where there is no arc.

    False if a score is NaN or +∞.
    """
    valid = True
    for head in range(n + 1):
        best[head, 0] = -np.inf
        for modifier in range(1, n + 1):
            best[head, modifier], label[head, modifier] = -np.inf, 0
            if head != modifier:
                for k in range(scores.shape[2]):
                    score = scores[head, modifier, k]
                    valid &= score < np.inf
                    if score > best[head, modifier]:
                        best[head, modifier], label[head, modifier] = score, k
    return valid


@kernel
def largest(scores, lengths, best, lo, hi):
    """best[b, head, modifier] = max over labels of scores[b, head, modifier, label].

    Returns the first instance with a score of NaN or +∞, or −1.
    """
    label = np.empty(best.shape[1:], np.int64)
    for b in range(lo, hi):
        if not best_labels(scores[b], lengths[b], best[b], label):
            return b
    return -1


@inner
def best_into(scores, n, modifier):
    """The best score of an arc into a word, whatever its head and label; NaN if one is NaN or +∞."""
    best, valid = -np.inf, True
    for head in range(n + 1):
        if head != modifier:
            for k in range(scores.shape[2]):
                valid &= scores[head, modifier, k] < np.inf
                best = max(best, scores[head, modifier, k])
    return best if valid else np.nan


@inner
def load_relative(scores, b, n, options, own, out):
    """Copies the scores of the arcs over n words, each relative to the best into its word: the number of slots, or −1.

    Arcs into node 0 and the diagonal become −∞.
    """
    for modifier in range(n + 1):
        best = best_into(scores[b], n, modifier) if modifier > 0 else 0.0
        if np.isnan(best):
            return -1
        for head in range(n + 1):
            for k in range(scores.shape[3]):
                exists = modifier > 0 and head != modifier and best > -np.inf
                out[head, modifier, k] = scores[b, head, modifier, k] - best if exists else -np.inf
    return n + 1


@inner
def heads_to_parts(n, scores, label, heads):
    """The labelled arcs of a tree as indices into the flattened scores, in place of its heads."""
    heads[0] = -1
    for m in range(1, n + 1):
        head = heads[m]
        heads[m] = (head * scores.shape[1] + m) * scores.shape[2] + label[head, m]

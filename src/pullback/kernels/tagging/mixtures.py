"""SparseMAP over sequences of tags whose transitions have scores but no coordinates.

    max ⟨s, μ⟩ + Σ p_z worth(z) − ½‖μ‖²     over   μ = Σ p_z z,   worth(z) = Σ_i transition[tag i − 1, tag i]

By the active-set method; the argmax is Viterbi's, in O(n t²).  A position chooses a tag: of scores (batch, n, t), slot
i holds the part i · t + tag.  The transitions (batch, t, t) are the only option.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.chain import largest
from pullback.kernels.tagging.viterbi import is_valid, read_sequence, sweep
from pullback.kernels.tools import inner


@inner
def _workspace(scores, options):
    """Viterbi's chart, and the transitions of an instance."""
    return np.empty((scores.shape[1], scores.shape[2])), np.empty((scores.shape[2], scores.shape[2]))


@inner
def _load(scores, b, n, options, own, out):
    """Copies scores and transitions, those of a position relative to its best, these relative to the best of all."""
    given, transitions = options[0][b], own[1]
    if not 0 <= n <= scores.shape[1] or not is_valid(scores[b], n) or not is_valid(given, len(given)):
        return -1
    for i in range(n):
        best = largest(scores[b, i])
        shift = best if best > -np.inf else 0.0
        for c in range(scores.shape[2]):
            out[i, c] = scores[b, i, c] - shift
    best = -np.inf
    for a in range(len(given)):
        best = max(best, largest(given[a]))
    shift = best if best > -np.inf else 0.0
    for a in range(len(given)):
        for c in range(len(given)):
            transitions[a, c] = given[a, c] - shift
    return n


@inner
def best_tags(rest, n, options, own, parts):
    if n == 0:
        return True
    sweep(rest, own[1], n, own[0])
    return read_sequence(own[1], n, own[0], parts)


@inner
def _worth(own, n, vertex):
    transitions, total = own[1], 0.0
    for i in range(1, n):
        total += transitions[vertex[i - 1] % len(transitions), vertex[i] % len(transitions)]
    return total


@inner
def _spread(weight, n, vertex, product):
    """Adds `weight` to each transition of a sequence."""
    for i in range(1, n):
        product[vertex[i - 1] % len(product), vertex[i] % len(product)] += weight


mixture, mixture_backward = mixture_over(_workspace, _load, best_tags, _worth, _spread)

"""SparseMAP over sequences of tags whose transitions have scores but no coordinates.

    max ⟨s, μ⟩ + Σ p_z worth(z) − ½‖μ‖²     over   μ = Σ p_z z,   worth(z) = Σ_i transition[tag i − 1, tag i]

By the active-set method; the argmax is Viterbi's, in O(n t²).  A position chooses a tag: of scores (batch, n, t), slot
i holds the part i · t + tag.  The table (batch, t + 2, t), as in `tables`, is the only option; the scores of a first
and a last tag count as scores of these tags.
"""

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.tagging.tables import are_valid, join
from pullback.kernels.tagging.viterbi import read_sequence, sweep
from pullback.kernels.tools import inner, maximum


@inner
def _workspace(scores, options):
    """Viterbi's chart, and the transitions of an instance."""
    return np.empty((scores.shape[1], scores.shape[2])), np.empty((scores.shape[2], scores.shape[2]))


@inner
def _load(scores, b, n, options, own, out):
    """Copies scores and transitions, those of a position relative to its best, these relative to the best of all."""
    table, transitions = options[0][b], own[1]
    t = scores.shape[2]
    if not 0 <= n <= scores.shape[1] or not are_valid(scores[b], n) or not are_valid(table, t + 2):
        return -1
    if n > 0:
        join(scores[b], table, n, out)
    for i in range(n):
        best = maximum(out[i])
        out[i] -= best if best > -np.inf else 0.0
    best = -np.inf
    for a in range(t):
        best = max(best, maximum(table[a]))
    shift = best if best > -np.inf else 0.0
    for a in range(t):
        for c in range(t):
            transitions[a, c] = table[a, c] - shift
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
    """Adds `weight` to every score of the table that a sequence uses."""
    t = product.shape[1]
    for i in range(1, n):
        product[vertex[i - 1] % t, vertex[i] % t] += weight
    if n > 0:
        product[t, vertex[0] % t] += weight
        product[t + 1, vertex[n - 1] % t] += weight


mixture, mixture_backward = mixture_over(_workspace, _load, best_tags, _worth, _spread)

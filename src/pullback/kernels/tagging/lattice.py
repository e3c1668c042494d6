"""One sequence of tags in products of weights: how far each tag is reached, and what lies ahead of it.

    step[a, b]   = exp(transition[a, b] − the largest)             weight[i, b] = exp(score[i, b] − the largest of i)
    reach[i, b]  = weight[i, b] Σ_a reach[i−1, a] step[a, b] / scale[i]        scale[i] makes position i sum to one
    pull[i, b]   = weight[i, b] ahead[i, b] / scale[i]
    ahead[i−1, a] = Σ_b step[a, b] pull[i, b]                                  1 at the last position

so log Z is the sum of log scale and of what was taken off, the marginals are reach[i, b] ahead[i, b], and those of
pairs reach[i−1, a] step[a, b] pull[i, b].  Only the scores are exponentiated, everything else is products: O(n t²).

Scale: what underflows on the way is below 1e-308, and counts `ahead / scale` times in the end.  While that stays below
1e260, nothing that matters is lost; otherwise, as for scores in the hundreds, the pairs of neighbors are written out
and `chain` does the same on logarithms.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.chain import add_columns, largest
from pullback.kernels.tools import exp, fmax, inner, log, summing

_SAFE = 1e260
_LOW = 1e-140  # where nothing is below, no product of two underflows

# Numbers of one instance; `back` is the transpose of `step`.
Lattice = namedtuple("Lattice", ["step", "back", "weight", "reach", "scale", "ahead", "pull"])


@inner
def new_lattice(n, t):
    return Lattice(
        np.empty((t, t)),
        np.empty((t, t)),
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty(n),
        np.empty((n, t)),
        np.empty((n, t)),
    )


@inner
def _exponentiate(x, out):
    """out = exp(x − max x), and max x; NaN where there is a NaN or +∞."""
    top = largest(x)
    shift = top if top > -np.inf else 0.0
    for j in range(x.shape[0]):
        out[j] = x[j] - shift
    for j in range(x.shape[0]):
        out[j] = exp(out[j])
    return top


@summing
def _multiply(x, factor):
    """x *= factor; the sum of the products."""
    total = 0.0
    for j in range(x.shape[0]):
        x[j] *= factor[j]
        total += x[j]
    return total


@inner
def _normalize(x, total):
    """x /= total; the smallest of them."""
    lowest, factor = -1.0, 1.0 / total
    for j in range(x.shape[0]):
        x[j] *= factor
        lowest = fmax(-x[j], lowest)
    return -lowest


@inner
def forward(scores, transitions, n, l):
    """Fills step, weight, reach and scale: (log Z, whether it is exact without a look at what lies ahead).

    NaN where no weight is left at some position, or one is NaN.
    """
    t = transitions.shape[0]
    flat = l.step.reshape(t * t)
    top = _exponentiate(transitions.reshape(t * t), flat)
    value = (n - 1) * top if n > 1 else 0.0
    exact = True
    for i in range(n):
        value += _exponentiate(scores[i], l.weight[i])
        reach = l.reach[i]
        if i > 0:
            add_columns(l.reach[i - 1], l.step, reach)
        else:
            reach[:] = 1.0
        total = _multiply(reach, l.weight[i])
        if not total > 1e-290:
            return np.nan, False
        lowest = _normalize(reach, total)
        exact &= total > _LOW and lowest > _LOW
        l.scale[i] = total
        value += log(total)
    return value, exact


@inner
def _pull(weight, ahead, scale, pull):
    """pull = weight · ahead / scale; the largest of ahead / scale."""
    top, factor = -np.inf, 1.0 / scale
    for b in range(ahead.shape[0]):
        x = ahead[b] * factor
        top = fmax(x, top)
        pull[b] = weight[b] * x
    return top


@inner
def backward(n, l):
    """Fills ahead and pull; whether nothing that matters was lost."""
    t = l.step.shape[0]
    for a in range(t):
        for b in range(t):
            l.back[b, a] = l.step[a, b]
        l.ahead[n - 1, a] = 1.0
    for i in range(n - 1, -1, -1):
        if not _pull(l.weight[i], l.ahead[i], l.scale[i], l.pull[i]) < _SAFE:
            return False
        if i > 0:
            add_columns(l.pull[i], l.back, l.ahead[i - 1])
    return True


@inner
def add_outer(x, y, out):
    """out[a, b] += Σ_i x[i, a] y[i, b], four rows at a time."""
    n = x.shape[0]
    for i in range(0, n - 3, 4):
        first, second, third, fourth = y[i], y[i + 1], y[i + 2], y[i + 3]
        for a in range(out.shape[0]):
            p, q, r, s, row = x[i, a], x[i + 1, a], x[i + 2, a], x[i + 3, a], out[a]
            for b in range(row.shape[0]):
                row[b] += (p * first[b] + q * second[b]) + (r * third[b] + s * fourth[b])
    for i in range(n - n % 4, n):
        first = y[i]
        for a in range(out.shape[0]):
            p, row = x[i, a], out[a]
            for b in range(row.shape[0]):
                row[b] += p * first[b]


@inner
def write_pairs(scores, transitions, n, pairs):
    """The scores of pairs of neighbors as `chain` reads them, pairs[i, a, b], each relative to the best tag of i.

    Returns what was taken off.
    """
    taken = 0.0
    for i in range(n):
        top = largest(scores[i])
        shift = top if top > -np.inf else 0.0
        taken += shift
        for a in range(transitions.shape[0] if i > 0 else 1):
            for b in range(transitions.shape[0]):
                step = np.float64(transitions[a, b]) if i > 0 else 0.0
                pairs[i, a, b] = (scores[i, b] - shift) + step
    return taken


@inner
def add_up(pairs, n, tags, steps):
    """Numbers of pairs, as numbers of tags (n, t) and of transitions (t, t)."""
    t = steps.shape[0]
    tags[:n] = 0.0
    steps[:] = 0.0
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for b in range(t):
                tags[i, b] += pairs[i, a, b]
                if i > 0:
                    steps[a, b] += pairs[i, a, b]

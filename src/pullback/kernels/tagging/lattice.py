"""One sequence of tags in products of weights: how far each tag is reached, and what lies ahead of it.

    step[a, b]   = exp(transition[a, b] − the largest)             weight[i, b] = exp(score[i, b] − the largest of i)
    reach[i, b]  = weight[i, b] Σ_a reach[i−1, a] step[a, b] / scale[i]        scale[i] makes position i sum to one
    pull[i, b]   = weight[i, b] ahead[i, b] / scale[i]
    ahead[i−1, a] = Σ_b step[a, b] pull[i, b]                                  1 at the last position

where the scores of the first and the last position are with those of a first and a last tag.  So log Z is the sum of
log scale and of what was taken off, the marginals are reach[i, b] ahead[i, b], and those of pairs
reach[i−1, a] step[a, b] pull[i, b].  Only the scores are exponentiated, everything else is products: O(n t²).

Scale: what underflows on the way is below 1e-308, and counts `ahead / scale` times in the end.  While that stays below
1e260, nothing that matters is lost; otherwise, as for scores in the hundreds, the pairs of neighbors are written out
and `chain` does the same on logarithms.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tagging.tables import join
from pullback.kernels.tools import add_product, exponentiate, fmax, inner, log, maximum, row_product, summing

_SAFE = 1e260
_SMALL = 1e-30  # a sum below is divided by at once: products with what is not would underflow too early
_LOW = 1e-140  # where nothing is below, no product of two underflows
_TOGETHER = 32  # positions whose numbers stay in the fastest memory

# Numbers of one instance; `given` are the transitions that `step` is made of, `top` the largest of them, and `back` is
# the transpose of `step`.
Lattice = namedtuple("Lattice", ["given", "top", "step", "back", "weight", "reach", "scale", "ahead", "pull"])


@inner
def new_lattice(n, t):
    return Lattice(
        np.full((t, t), np.nan),
        np.empty(1),
        np.empty((t, t)),
        np.empty((t, t)),
        np.empty((n, t)),
        np.empty((n, t)),
        np.empty(n),
        np.empty((n, t)),
        np.empty((n, t)),
    )


@inner
def _relative(x):
    """Takes the largest of x off, and returns it; NaN is ignored."""
    top = maximum(x)
    shift = top if top > -np.inf else 0.0
    for j in range(x.shape[0]):
        x[j] -= shift
    return top


@inner
def _are_given(transitions, l):
    """Whether they are those of the instance before, as they mostly are."""
    same = True
    for a in range(transitions.shape[1]):
        row, given = transitions[a], l.given[a]
        for b in range(row.shape[0]):
            same &= row[b] == given[b]
    return same


@inner
def _load_steps(transitions, l):
    """Fills given, top, step and back."""
    t = transitions.shape[1]
    for a in range(t):
        for b in range(t):
            l.given[a, b] = l.step[a, b] = transitions[a, b]
    flat = l.step.reshape(t * t)
    l.top[0] = _relative(flat)
    exponentiate(flat)
    for a in range(t):
        for b in range(t):
            l.back[b, a] = l.step[a, b]


@summing
def _multiply(x, weight, factor):
    """x *= weight · factor; the sum of the products."""
    t = x.shape[0]
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0  # a row of ten is too short for a compiler to do this
    for j in range(0, t - 3, 4):
        p, q = x[j] * (weight[j] * factor), x[j + 1] * (weight[j + 1] * factor)
        r, s = x[j + 2] * (weight[j + 2] * factor), x[j + 3] * (weight[j + 3] * factor)
        x[j], x[j + 1], x[j + 2], x[j + 3] = p, q, r, s
        first, second, third, fourth = first + p, second + q, third + r, fourth + s
    for j in range(t - t % 4, t):
        x[j] *= weight[j] * factor
        first += x[j]
    return (first + second) + (third + fourth)


@inner
def _scale(x, factor):
    for j in range(x.shape[0]):
        x[j] *= factor


@inner
def are_high(n, l):
    """Whether log Z is exact without a look at what lies ahead: no number from `forward` is near an underflow."""
    lowest = -1.0
    for numbers in (l.reach.reshape(-1)[: n * l.reach.shape[1]], l.scale[:n]):
        for j in range(len(numbers)):
            lowest = fmax(-numbers[j], lowest)
    return -lowest > _LOW


@inner
def forward(scores, table, n, l):
    """Fills step, back, weight, reach and scale; returns log Z, NaN where no weight is left or one is NaN."""
    t = scores.shape[1]
    if not _are_given(table, l):
        _load_steps(table, l)
    value = (n - 1) * l.top[0] if n > 1 else 0.0
    join(scores, table, n, l.weight)
    for i in range(n):
        value += _relative(l.weight[i])
    exponentiate(l.weight.reshape(-1)[: n * t])  # in one go, because a row may be short
    product, factor = 1.0, 1.0
    for i in range(n):
        reach = l.reach[i]
        if i > 0:
            row_product(l.reach[i - 1], l.step, reach)  # which does not wait for the sum and the quotient
            _scale(l.reach[i - 1], factor)
        else:
            reach[:] = 1.0
        total = _multiply(reach, l.weight[i], factor)
        if not total > 1e-290:
            return np.nan
        factor = 1.0 / total
        if total < _SMALL:
            _scale(reach, factor)
            factor = 1.0
        l.scale[i] = total
        if product > 1e200 or product < 1e-200 or total < 1e-90:  # so that one logarithm does for many scales
            value, product = value + log(product), 1.0
        product *= total
    _scale(l.reach[n - 1], factor)
    return value + log(product)


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
    l.ahead[n - 1] = 1.0
    for i in range(n - 1, -1, -1):
        if not _pull(l.weight[i], l.ahead[i], l.scale[i], l.pull[i]) < _SAFE:
            return False
        if i > 0:
            row_product(l.pull[i], l.back, l.ahead[i - 1])
    return True


@inner
def add_outer(x, y, out):
    """out[a, b] += Σ_i x[i, a] y[i, b]."""
    for i in range(0, x.shape[0], _TOGETHER):
        add_product(x[i : i + _TOGETHER].T, y[i : i + _TOGETHER], out)

"""The forward and backward sweeps over one linear chain, which give log Z and the probability of every pair of tags.

A sequence takes the pair (a, b), tag a at position i − 1 and tag b at position i, at the score s[i, a, b]; position 0 has
no tag before it and uses row 0.  With the weights w[i, a, b] = exp(s[i, a, b] − max s[i]) and 1 for all tags at the end,

    prefix[i, b] = Σ_a prefix[i−1, a] w[i, a, b] / norm[i]          norm[i] makes prefix[i] sum to 1
    suffix[i, b] = Σ_c w[i+1, b, c] suffix[i+1, c] / norm[i]
    log Z        = Σ_i log norm[i] + max s[i]
    p[i, a, b]   = prefix[i−1, a] w[i, a, b] suffix[i, b]

in O(n t²), with one exponential for each score.

Scale: a positive number that is too small is raised to FLOOR instead of being lost, so a product of two never underflows
and every sum is an upper bound.  What was added can be bounded as well: raising one weight, prefix or suffix adds at most
FLOOR · Σ_b suffix[i, b] to the probabilities.  If that is below FLOOR · CEILING everywhere, the answer is right to the last
digit.  (Dropping small numbers would allow no such proof: a sequence that is dropped twice may be the best, and no
sum would show it.)  Otherwise the same sweeps run on logarithms, at about three times the cost.
"""

import numpy as np

from pullback.kernels.chain import logarithmic
from pullback.kernels.chain.parts import largest, total
from pullback.kernels.tools import exp, inner, summing

_LOWEST = -345.0
FLOOR = np.exp(_LOWEST)  # 1e-150
CEILING = 1e120


@inner
def workspace(n, t):
    """weight[i, a, b], prefix[i, b], suffix[i, b] and norm[i] for chains of up to n tags."""
    return np.empty((n, t, t)), np.empty((n, t)), np.empty((n, t)), np.empty(n)


@inner
def _weigh(score, top, weight):
    """weight = exp(score − top), at least FLOOR, but zero where the score is −∞; NaN stays NaN."""
    for i in range(score.shape[0]):
        x = np.float64(score[i]) - top
        raised = exp(_LOWEST if x < _LOWEST else x)
        weight[i] = 0.0 if x == -np.inf else raised


@inner
def _step(prefix, weight, after):
    """after[b] = Σ_a prefix[a] weight[a, b], four rows at a time."""
    t = prefix.shape[0]
    after[:] = 0.0
    for a in range(0, t - 3, 4):
        p, q, r, s = prefix[a], prefix[a + 1], prefix[a + 2], prefix[a + 3]
        first, second, third, fourth = weight[a], weight[a + 1], weight[a + 2], weight[a + 3]
        for b in range(after.shape[0]):
            after[b] += (p * first[b] + q * second[b]) + (r * third[b] + s * fourth[b])
    for a in range(t - t % 4, t):
        p, first = prefix[a], weight[a]
        for b in range(after.shape[0]):
            after[b] += p * first[b]


@summing
def _step_back(weight, suffix, before):
    """before[a] = Σ_b weight[a, b] suffix[b]."""
    for a in range(before.shape[0]):
        row = weight[a]
        result = 0.0
        for b in range(suffix.shape[0]):
            result += row[b] * suffix[b]
        before[a] = result


@inner
def _divide(x, norm):
    """x /= norm; what is positive stays at least FLOOR."""
    factor = 1.0 / norm
    for i in range(x.shape[0]):
        quotient = x[i] * factor
        raised = FLOOR if quotient < FLOOR else quotient
        x[i] = raised if x[i] > 0.0 else 0.0


@inner
def forward(scores, n, weight, prefix, norm):
    """Fills weight, prefix and norm; returns log Z, which is NaN or −∞ if a score is not fit or no sequence is found."""
    t = scores.shape[1]
    value = 0.0
    for i in range(n):
        if i == 0:
            top = largest(scores[0, 0])
            _weigh(scores[0, 0], top, weight[0, 0])
            prefix[0] = weight[0, 0]
        else:
            top = largest(scores[i].reshape(t * t))
            _weigh(scores[i].reshape(t * t), top, weight[i].reshape(t * t))
            _step(prefix[i - 1], weight[i], prefix[i])
        norm[i] = total(prefix[i])
        _divide(prefix[i], norm[i])
        value += top + np.log(norm[i])
    return value


@inner
def backward(n, weight, norm, suffix):
    """Fills suffix; returns whether what was raised to FLOOR, here and in `forward`, is too little to matter."""
    for i in range(n - 1, -1, -1):
        if i == n - 1:
            suffix[i] = 1.0
        else:
            _step_back(weight[i + 1], suffix[i + 1], suffix[i])
        _divide(suffix[i], norm[i])
        if not total(suffix[i]) < CEILING:
            return False
    return True


@inner
def _multiply(n, weight, prefix, suffix, marginals):
    """p[i, a, b] from both sweeps; position 0 writes row 0 alone."""
    t = weight.shape[1]
    for i in range(n):
        after = suffix[i]
        for a in range(t if i > 0 else 1):
            before = prefix[i - 1, a] if i > 0 else 1.0
            row, out = weight[i, a], marginals[i, a]
            for b in range(out.shape[0]):
                out[b] = before * row[b] * after[b]


@inner
def log_partition_of(scores, n, work):
    """log Z of one chain, and whether `work` holds its sweeps; otherwise the logarithms have to do without them.

    The value is NaN or −∞ if there is no answer.
    """
    weight, prefix, suffix, norm = work
    value = forward(scores, n, weight, prefix, norm)
    if value > -np.inf and backward(n, weight, norm, suffix):
        return value, True
    return logarithmic.forward(scores, n, prefix, norm), False


@inner
def marginals_of(scores, n, work, marginals):
    """log Z of one chain; writes p[i, a, b], and zero into rows a > 0 of position 0 and from position n on."""
    weight, prefix, suffix, norm = work
    value, is_linear = log_partition_of(scores, n, work)
    marginals[n:] = 0.0
    if n > 0:
        marginals[0, 1:] = 0.0
    if is_linear:
        _multiply(n, weight, prefix, suffix, marginals)
    elif value > -np.inf:
        logarithmic.backward(scores, n, prefix, norm, marginals)
    return value

"""Sums over all subsets of n items whose size lies between two counts: partition function, marginals, samples.

Dynamic programming over (item, count), in the linear domain at any scale of the scores, because the scores are tilted
first.  Take every item independently with probability pᵢ = σ(sᵢ − τ), and let N be the number taken; then

    Σ exp⟨s, z⟩ over sizes a … b  =  Π (1 + exp(sᵢ − τ)) · Σⱼ exp(τ j) P(N = j),   j = a … b,

for every τ.  We choose τ as a projection does: 0 where the mean of N already lies between the counts, else such that
the mean meets the violated count k.  Then P(N = k) is never small, everything else is a probability, and nothing is
subtracted.  Where fewer items can be left out than taken, the program counts those instead.
"""

import numpy as np

from pullback.kernels.subset.selection import list_allowed, select_largest
from pullback.kernels.tools import exp, inner, kernel, summing

_TINY = 1e-150  # products of two numbers above it are normal, and a probability below it never matters


@summing
def _size(score, tau):
    """Mean and variance of the number of items when each is taken with probability σ(sᵢ − τ)."""
    mean, variance = 0.0, 0.0
    for i in range(len(score)):
        x = score[i] - tau
        e = exp(-abs(x))
        likelier = 1.0 / (1.0 + e)
        mean += likelier if x > 0.0 else e * likelier
        variance += e * likelier * likelier
    return mean, variance


@inner
def _tilt(score, k, spare):
    """center + τ with |Σ σ(sᵢ − center − τ) − k| at most half a standard deviation (plus 0.1), for 0 < k < n.

    center is the k-th largest score, which bounds τ; the scores become relative to it.  Bracketed Newton, O(n) a step.
    """
    for i in range(len(score)):
        spare[i] = score[i]
    center = select_largest(spare, k)
    for i in range(len(score)):
        score[i] -= center
    tau, right = 0.0, np.log(len(score)) + 3.0
    left = -right
    for _ in range(60):
        mean, variance = _size(score, tau)
        excess = mean - k
        if excess * excess <= 0.25 * variance + 0.01:
            break
        if excess > 0.0:
            left = tau
        else:
            right = tau
        tau += excess / variance
        if not left < tau < right:
            tau = 0.5 * (left + right)
    return center, tau


@inner
def _tilted(scores, low, high, item, work, weight):
    """One instance as a walk over counts: item i of the m allowed ones is counted with probability p[i].

    work: (4, n), p and q = 1 − p in its first two rows; weight: what a walk is worth that ends at count j ≤ high.
    Returns m (−1 if infeasible), the largest count, whether the items left out are counted, and what to add to the
    logarithm of the expected weight to have the log-partition function.
    """
    m = list_allowed(scores, item, work[2])
    if m < low:
        return -1, 0, False, 0.0
    p, q, score, spare = work[0, :m], work[1, :m], work[2, :m], work[3, :m]
    high = min(high, m)
    left_out = m - low < high
    if left_out:
        low, high = m - high, m - low
        for i in range(m):
            score[i] = -score[i]
    mean, _ = _size(score, 0.0)
    k, center, tau = low, 0.0, 0.0
    if high == 0:
        tau = np.inf
    elif not low <= mean <= high:
        k = low if mean < low else high
        center, tau = _tilt(score, k, spare)
    best, spread, likely = 0.0, 0.0, 0
    for i in range(m):
        x = score[i] - tau
        e = exp(-abs(x))
        more, less = 1.0 / (1.0 + e), e / (1.0 + e)
        less = less if less > _TINY else 0.0
        p[i], q[i] = (more, less) if x > 0.0 else (less, more)
        likely += x > 0.0
        spread += np.log1p(e)
        if (x > 0.0) != left_out:
            best += scores[item[i]]
    if likely != k:
        best += center * (k - likely)  # apart from τ, so that large scores may cancel exactly
        spread += tau * (k - likely)
    for j in range(high + 2):
        weight[j] = 0.0
        if low <= j <= high:
            weight[j] = 1.0 if j == k else exp((center + tau) * (j - k))
    return m, high, left_out, best + spread


@inner
def _complete(p, q, weight, table):
    """table[i, j]: the expected weight at the end of a walk that stands at count j before item i."""
    m, last = len(p), table.shape[1] - 1
    for j in range(last + 1):
        table[m, j] = weight[j]
    for i in range(m - 1, -1, -1):
        a, b = p[i], q[i]
        go, stay, here = table[i + 1, 1:], table[i + 1, :last], table[i, :last]
        for j in range(last):
            x = a * go[j] + b * stay[j]
            here[j] = x if x > _TINY else 0.0
        table[i, last] = 0.0


@inner
def _complete_tangent(p, q, g, table, tangent):
    """The derivative of `table` when the score of item i moves at the speed g[i], and so p[i] at p q g."""
    m, last = len(p), table.shape[1] - 1
    for j in range(last + 1):
        tangent[m, j] = 0.0
    for i in range(m - 1, -1, -1):
        a, b, speed = p[i], q[i], p[i] * q[i] * g[i]
        go, stay, here = table[i + 1, 1:], table[i + 1, :last], tangent[i, :last]
        go_tangent, stay_tangent = tangent[i + 1, 1:], tangent[i + 1, :last]
        for j in range(last):
            x = a * go_tangent[j] + b * stay_tangent[j] + speed * (go[j] - stay[j])
            here[j] = x if abs(x) > _TINY else 0.0
        tangent[i, last] = 0.0


@summing
def _marginals(p, q, table, item, left_out, row, marginals):
    """Writes the probability that each item is chosen: reach it, take it or leave it, complete.

    One row of `row` holds the probabilities to stand at each count before item i, at counts shifted by one; the
    other takes those after it.
    """
    last = table.shape[1] - 1
    for j in range(last + 1):
        row[0, j], row[1, j] = 0.0, 0.0
    row[0, 1] = 1.0
    for i in range(len(p)):
        a, b = p[i], q[i]
        go, stay = table[i + 1, 1:], table[i + 1, :last]
        less, reach, after = row[i % 2, :last], row[i % 2, 1:], row[1 - i % 2, 1:]
        counted, passed = 0.0, 0.0
        for j in range(last):
            counted += reach[j] * go[j]
            passed += reach[j] * stay[j]
            x = a * less[j] + b * reach[j]
            after[j] = x if x > _TINY else 0.0
        counted, passed = a * counted, b * passed
        marginals[item[i]] = (passed if left_out else counted) / (counted + passed)


@summing
def _marginals_tangent(p, q, g, table, tangent, item, row, row_tangent, out):
    """Writes the derivative of the marginals; `row_tangent` is that of `row` in `_marginals`."""
    last = table.shape[1] - 1
    for j in range(last + 1):
        row[0, j], row[1, j], row_tangent[0, j], row_tangent[1, j] = 0.0, 0.0, 0.0, 0.0
    row[0, 1] = 1.0
    growth = tangent[0, 0] / table[0, 0]
    for i in range(len(p)):
        a, b, speed = p[i], q[i], p[i] * q[i] * g[i]
        go, go_tangent = table[i + 1, 1:], tangent[i + 1, 1:]
        less, reach, after = row[i % 2, :last], row[i % 2, 1:], row[1 - i % 2, 1:]
        less_tangent, reach_tangent = row_tangent[i % 2, :last], row_tangent[i % 2, 1:]
        after_tangent = row_tangent[1 - i % 2, 1:]
        counted, moved = 0.0, 0.0
        for j in range(last):
            counted += reach[j] * go[j]
            moved += reach_tangent[j] * go[j] + reach[j] * go_tangent[j]
        for j in range(last):
            x = a * less[j] + b * reach[j]
            after[j] = x if x > _TINY else 0.0
            x = a * less_tangent[j] + b * reach_tangent[j] + speed * (less[j] - reach[j])
            after_tangent[j] = x if abs(x) > _TINY else 0.0
        out[item[i]] = a * (counted * (b * g[i] - growth) + moved) / table[0, 0]


@inner
def _largest_count(low, high, n):
    """The largest count that a walk of these instances needs."""
    largest = 0
    for b in range(len(low)):
        largest = max(largest, min(high[b], n - low[b]))
    return largest


@kernel
def partition(scores, low, high, value, marginals, lo, hi):
    """log Σ exp⟨s, z⟩ over the subsets with low … high items, and its gradient, the expected subset.

    scores, marginals: (batch, n); low, high, value: (batch,).  O(n · min(high, n − low)) time and memory.
    Returns the first instance with a NaN score or fewer than `low` allowed items, else −1.
    """
    n = scores.shape[1]
    size = _largest_count(low[lo:hi], high[lo:hi], n) + 2
    item, work, weight = np.empty(n, np.int64), np.empty((4, n)), np.empty(size)
    space, rows = np.empty((n + 1) * size), np.empty(2 * size)
    for b in range(lo, hi):
        value[b] = 0.0
        marginals[b] = 0.0
        m, last, left_out, log_scale = _tilted(scores[b], low[b], high[b], item, work, weight)
        if m < 0:
            return b
        p, q = work[0, :m], work[1, :m]
        table = space[: (m + 1) * (last + 2)].reshape(m + 1, last + 2)
        _complete(p, q, weight, table)
        value[b] = log_scale + np.log(table[0, 0])
        row = rows[: 2 * (last + 2)].reshape(2, last + 2)
        _marginals(p, q, table, item, left_out, row, marginals[b])
    return -1


@kernel
def sample(scores, low, high, uniforms, z, lo, hi):
    """Independent subsets from p(z) ∝ exp⟨s, z⟩, exactly.

    scores: (batch, n); low, high: (batch,); uniforms in [0, 1), z: (batch, draws, n).
    One table as in `log_partition`, then O(n) a draw.  Returns as `log_partition` does.
    """
    n = scores.shape[1]
    size = _largest_count(low[lo:hi], high[lo:hi], n) + 2
    item, work, weight = np.empty(n, np.int64), np.empty((4, n)), np.empty(size)
    space = np.empty((n + 1) * size)
    for b in range(lo, hi):
        z[b] = 0.0
        m, last, left_out, _ = _tilted(scores[b], low[b], high[b], item, work, weight)
        if m < 0:
            return b
        p, q = work[0, :m], work[1, :m]
        table = space[: (m + 1) * (last + 2)].reshape(m + 1, last + 2)
        _complete(p, q, weight, table)
        for draw in range(z.shape[1]):
            j = 0
            for i in range(m):
                counted, passed = p[i] * table[i + 1, j + 1], q[i] * table[i + 1, j]
                chosen = passed if left_out else counted
                is_chosen = uniforms[b, draw, item[i]] * (counted + passed) < chosen
                if is_chosen:
                    z[b, draw, item[i]] = 1.0
                j += is_chosen != left_out
    return -1


@kernel
def hessian_product(scores, low, high, g, out, lo, hi):
    """The Hessian of the log-partition function, the covariance of the items, times g: the backward of the marginals.

    scores, g, out: (batch, n); low, high: (batch,).  The derivative of `log_partition`'s program in the direction g,
    at about three times its cost.  Returns as `log_partition` does.
    """
    n = scores.shape[1]
    size = _largest_count(low[lo:hi], high[lo:hi], n) + 2
    item, work, weight, gradient = np.empty(n, np.int64), np.empty((4, n)), np.empty(size), np.empty(n)
    space, rows = np.empty((2, (n + 1) * size)), np.empty(4 * size)
    for b in range(lo, hi):
        for i in range(n):
            out[b, i] = 0.0
        m, last, _, _ = _tilted(scores[b], low[b], high[b], item, work, weight)
        if m < 0:
            return b
        for i in range(m):
            gradient[i] = g[b, item[i]]
        p, q = work[0, :m], work[1, :m]
        table = space[0, : (m + 1) * (last + 2)].reshape(m + 1, last + 2)
        tangent = space[1, : (m + 1) * (last + 2)].reshape(m + 1, last + 2)
        row = rows[: 4 * (last + 2)].reshape(2, 2, last + 2)
        _complete(p, q, weight, table)
        _complete_tangent(p, q, gradient, table, tangent)
        _marginals_tangent(p, q, gradient, table, tangent, item, row[0], row[1], out[b])
    return -1

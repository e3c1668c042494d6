"""Distributions over projective trees: log-partition, marginals, their derivative, and exact samples, in O(n³).

p(tree) ∝ exp Σ s[h, m].  The inside sweep of Eisner's recurrences gives Z; the outside sweep runs them backwards, wide
spans first, and gives ∂ log Z / ∂ s, the marginals.  Both consist of dot products and are written once, for four
semirings: the numbers themselves, their logarithms, and either of them as dual numbers.  With weights that move along
g, the slope of the marginals is the Hessian of log Z times g.

Scale: every tree has one arc into each word, so w[h, m] = exp(s[h, m] − max_h s[h, m]) divides out, and no weight
exceeds 1.  A tree is lost to underflow only if its product is below e⁻⁷⁰⁸; there are fewer than 6.75ⁿ = e^{1.91 n}
trees, so none of those lost matters if log Z of the shifted scores is above −708 + 1.91 n + 37 (e⁻³⁷ is the rounding of
one).  Otherwise the logarithms take over, at more than ten times the cost.
"""

import numpy as np

from pullback.kernels.projective_trees.eisner import inside_over, load, reader_over
from pullback.kernels.tools import compiled, draw, draw_log, exp, inner, kernel
from pullback.kernels.tools import semirings as ring


def outside_over(dot, times, add, inverse, reading, zero):
    """The outside sweep over a semiring; `reading` turns the share of an arc into a number."""

    def outside(weight, n, single_root, chart, out):
        """Writes reading(∂ log Z / ∂ log w) into out[:n+1, :n+1], except its diagonal.

        `chart` holds the inside sweep in [0], [1], [2]; the rest is workspace, one row longer than the sentence.
        """
        complete, complete_t, incomplete, incomplete_t = chart[0], chart[1], chart[2], chart[3]
        outer, outer_t, outer_pair = chart[4], chart[5], chart[6]  # adjoints of complete (both ways) and pair
        for i in range(n + 1):
            for j in range(n + 1):
                incomplete_t[j, i] = incomplete[i, j]
        for width in range(n, 0, -1):
            for i in range(n + 1 - width):
                j = i + width
                # complete[i, j] is a last child's half tree, or the left one of a pair; complete[j, i] mirrors it.
                right = add(
                    dot(outer_t[j, :i], incomplete_t[i, :i]),
                    dot(outer_pair[i, j + 1 : n + 1], complete_t[j + 1, j + 1 : n + 1]),
                )
                left = add(
                    dot(outer_t[i, j + 1 : n + 1], incomplete_t[j, j + 1 : n + 1]),
                    dot(outer_pair[j, :i], complete_t[i - 1, :i]),
                )
                if width == n:
                    right = inverse(complete[0, n])
                elif single_root and i == 0:
                    right = zero
                outer[i, j] = outer_t[j, i] = right
                outer[j, i] = outer_t[i, j] = left
                right = dot(outer[i, j : n + 1], complete[j, j : n + 1])
                left = dot(outer[j, : i + 1], complete[i, : i + 1])
                out[i, j] = reading(times(right, incomplete[i, j]))
                out[j, i] = reading(times(left, incomplete[j, i]))
                pair = add(times(right, weight[i, j]), times(left, weight[j, i]))
                outer_pair[i, j] = outer_pair[j, i] = pair

    return compiled(outside, f"outside_{dot.__name__}")


inside_linear = inside_over(ring.dot, ring.times, 0.0, 1.0)
outside_linear = outside_over(ring.dot, ring.times, ring.add, ring.inverse, ring.itself, 0.0)
inside_log = inside_over(ring.log_dot, ring.add, -np.inf, 0.0)
outside_log = outside_over(ring.log_dot, ring.add, ring.log_add, ring.negative, exp, -np.inf)
inside_dual = inside_over(ring.dual_dot, ring.dual_times, 0.0, 1.0)
outside_dual = outside_over(ring.dual_dot, ring.dual_times, ring.add, ring.dual_inverse, ring.slope, 0.0)
inside_dual_log = inside_over(ring.dual_log_dot, ring.add, -np.inf, 0.0)
outside_dual_log = outside_over(
    ring.dual_log_dot, ring.add, ring.dual_log_add, ring.negative, ring.slope_of_exp, -np.inf
)


@inner
def _shift(scores, n, log_weight, weight):
    """log_weight = scores less the largest of each modifier, and its exponential; returns what was taken off.

    NaN stands for scores that are NaN, +∞ or leave a word without a head.
    """
    taken = 0.0
    if not load(scores, n, log_weight):
        return np.nan
    for modifier in range(1, n + 1):
        log_weight[modifier, modifier] = -np.inf
        largest = -np.inf
        for head in range(n + 1):
            largest = max(largest, log_weight[head, modifier])
        if largest == -np.inf:
            return np.nan
        for head in range(n + 1):
            log_weight[head, modifier] -= largest
        taken += largest
    for head in range(n + 1):
        for modifier in range(n + 1):
            weight[head, modifier] = exp(log_weight[head, modifier])
    return taken


@inner
def _trusted(log_partition, n):
    """Whether a log-partition of shifted scores, computed in the linear domain, has lost nothing that matters."""
    return -708.0 + 1.91 * n + 37.0 < log_partition < 700.0


@inner
def _inside(scores, n, single_root, log_weight, weight, chart):
    """The log-partition, and whether the chart is in the linear domain; NaN or −∞ if there is no answer."""
    taken = _shift(scores, n, log_weight, weight)
    if np.isnan(taken):
        return taken, True
    result = np.log(inside_linear(weight, n, single_root, chart))
    linear = _trusted(result, n)
    if not linear:
        result = inside_log(log_weight, n, single_root, chart)
    return taken + result, linear


@kernel
def log_partition(scores, lengths, single_root, value, lo, hi):
    """log Σ exp(score) over the trees of each instance; one number each."""
    size = scores.shape[1]
    log_weight, weight = np.empty((size, size)), np.empty((size, size))
    chart = np.empty((3, size, size))
    for b in range(lo, hi):
        result, _ = _inside(scores[b], lengths[b], single_root, log_weight, weight, chart)
        if not result > -np.inf:
            return b
        value[b] = result
    return -1


@kernel
def partition(scores, lengths, single_root, value, marginals, lo, hi):
    """The log-partition and its gradient, the probability of each arc; about three times `log_partition`."""
    size = scores.shape[1]
    log_weight, weight = np.empty((size, size)), np.empty((size, size))
    chart = np.empty((7, size + 1, size))
    for b in range(lo, hi):
        n = lengths[b]
        marginals[b] = 0.0
        result, linear = _inside(scores[b], n, single_root, log_weight, weight, chart)
        if not result > -np.inf:
            return b
        value[b] = result
        if linear:
            outside_linear(weight, n, single_root, chart, marginals[b])
        else:
            outside_log(log_weight, n, single_root, chart, marginals[b])
    return -1


@inner
def _along(log_weight, weight, direction, n, log_dual, dual):
    """The weights and their logarithms as dual numbers, moving along `direction` where an arc is allowed."""
    for head in range(n + 1):
        dual[head, 0], log_dual[head, 0] = 0.0, -np.inf
        for modifier in range(1, n + 1):
            allowed = log_weight[head, modifier] > -np.inf
            step = np.float64(direction[head, modifier]) if allowed else 0.0
            log_dual[head, modifier] = complex(log_weight[head, modifier], step)
            dual[head, modifier] = complex(weight[head, modifier], step * weight[head, modifier])


@kernel
def hessian_product(scores, lengths, single_root, direction, product, lo, hi):
    """The derivative of the marginals along `direction`: the Hessian of the log-partition times it, Cov(z) · g.

    The Hessian is symmetric, so this is also the backward pass of the marginals.
    """
    size = scores.shape[1]
    log_weight, weight = np.empty((size, size)), np.empty((size, size))
    log_dual, dual = np.empty((size, size), np.complex128), np.empty((size, size), np.complex128)
    chart = np.empty((7, size + 1, size), np.complex128)
    for b in range(lo, hi):
        n = lengths[b]
        product[b] = 0.0
        if np.isnan(_shift(scores[b], n, log_weight, weight)):
            return b
        _along(log_weight, weight, direction[b], n, log_dual, dual)
        if _trusted(np.log(inside_dual(dual, n, single_root, chart).real), n):
            outside_dual(dual, n, single_root, chart, product[b])
        elif inside_dual_log(log_dual, n, single_root, chart).real > -np.inf:
            outside_dual_log(log_dual, n, single_root, chart, product[b])
        else:
            return b
    return -1


read_sample = reader_over(draw)
read_sample_log = reader_over(draw_log)


@kernel
def sample(scores, lengths, single_root, seeds, heads, lo, hi):
    """Independent exact samples, heads[b, sample, m], from one chart per instance; seeds[b] decides them all.

    O(n³) for the chart and O(n²) for each sample.  Heads of padding are zero.
    """
    size = scores.shape[1]
    log_weight, weight = np.empty((size, size)), np.empty((size, size))
    chart = np.empty((3, size, size))
    stack = np.empty((3 * size, 2), np.int64)
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        n = lengths[b]
        heads[b] = 0
        result, linear = _inside(scores[b], n, single_root, log_weight, weight, chart)
        if not result > -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for drawn in range(heads.shape[1]):
            if linear:
                read_sample(n, chart, random, stack, heads[b, drawn])
            else:
                read_sample_log(n, chart, random, stack, heads[b, drawn])
    return -1

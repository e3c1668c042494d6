"""Distributions over binary trees: log-partition, marginals, their derivative, and exact samples, in O(n³).

p(tree) ∝ exp Σ s[i, j].  The inside sweep gives Z; the outside sweep runs the recurrence backwards, wide spans first,
and gives ∂ log Z / ∂ s, the marginals.  Both consist of dot products and are written once, for several semirings: the
numbers themselves, their logarithms, and either of them as dual numbers.  With weights that move along g, the slope of
the marginals is the Hessian of log Z times g.  What training spends its time with, log Z and the marginals in numbers,
is also written for several sentences at a time (`diagonals`), at half the cost.

Scale: every tree has each single word, the whole sentence, and n − 2 spans between them.  So the score of each word,
that of the sentence and n − 2 times the largest of the others divide out, and no weight exceeds 1.  A tree is lost to
underflow only if its product is below e⁻⁷⁰⁸; there are fewer than 4ⁿ = e^{1.39 n} trees, so none of those lost matters
if log Z of the shifted scores is above −708 + 1.39 n + 37 (e⁻³⁷ is the rounding of one).  Otherwise the logarithms
take over, at more than ten times the cost.
"""

import numpy as np

from pullback.kernels.constituency.cky import inside_over, reader_over, write_tree
from pullback.kernels.constituency.diagonals import by_length, in_a_group, inside, outside, pack, unpack
from pullback.kernels.constituency.labels import join, join_direction, share_out, share_out_slopes
from pullback.kernels.tools import compiled, draw, draw_log, exp, fmax, inner, kernel
from pullback.kernels.tools import semirings as ring


def outside_over(dot, times, add, inverse, reading):
    """The outside sweep over a semiring; `reading` turns the share of a span into a number."""

    def outside(weight, n, tree, outer, out):
        """Writes reading(∂ log Z / ∂ log w) into out[i, j] for i ≤ j < n; 1 for single words and for the sentence.

        `tree` comes from the inside sweep, and has one row more than there are words.  `outer` is workspace: the
        adjoints of the sums over splits, symmetric too.
        """
        for i in range(n):
            out[i, i] = 1.0
        out[0, n - 1] = 1.0
        outer[0, n - 1] = outer[n - 1, 0] = times(weight[0, n - 1], inverse(tree[0, n - 1]))
        for width in range(n - 2, 0, -1):
            for i in range(n - width):
                j = i + width
                # The span lies to the left of a split after j, or to the right of one before i.
                total = add(
                    dot(outer[i, j + 1 : n], tree[j + 1, j + 1 : n]),
                    dot(outer[j, :i], tree[i - 1, :i]),
                )
                outer[i, j] = outer[j, i] = times(weight[i, j], total)
                out[i, j] = reading(times(tree[i, j], total))

    return compiled(outside, f"outside_{dot.__name__}")


@inner
def _dual_exp(x):
    return complex(exp(x.real), ring.slope_of_exp(x))


inside_linear = inside_over(ring.dot, ring.times)
inside_log = inside_over(ring.log_dot, ring.add)
outside_log = outside_over(ring.log_dot, ring.add, ring.log_add, ring.negative, exp)
inside_dual = inside_over(ring.dual_dot, ring.dual_times)
outside_dual = outside_over(ring.dual_dot, ring.dual_times, ring.add, ring.dual_inverse, ring.itself)
inside_dual_log = inside_over(ring.dual_log_dot, ring.add)
outside_dual_log = outside_over(ring.dual_log_dot, ring.add, ring.dual_log_add, ring.negative, _dual_exp)


@inner
def _largest_between(joint, n):
    """The largest score of a span that is neither a word nor the sentence; 0 if there is none above −∞."""
    largest = -np.inf
    for i in range(n):
        for j in range(i + 1, n - (i == 0)):
            largest = fmax(joint[i, j], largest)
    return largest if largest > -np.inf else 0.0


@inner
def _in_every_tree(joint, n, between):
    """What all trees over n ≥ 1 words score: the words, the sentence, and n − 2 times the largest between them."""
    total = max(n - 2, 0) * between + (joint[0, n - 1] if n > 1 else 0.0)
    for i in range(n):
        total += joint[i, i]
    return total


@inner
def _log_weights(joint, n, between, log_weight):
    """log w: the joint scores less what every tree has."""
    for i in range(n):
        for j in range(i, n):
            log_weight[i, j] = joint[i, j] - between
        log_weight[i, i] = 0.0
    log_weight[0, n - 1] = 0.0


@inner
def _weights(joint, n, between, weight):
    """w, at most 1."""
    for i in range(n):
        for j in range(i, n):
            weight[i, j] = exp(min(joint[i, j] - between, 0.0))  # words and the sentence may have more, and are 1
        weight[i, i] = 1.0
    weight[0, n - 1] = 1.0


@inner
def _trusted(log_partition, n):
    """Whether a log-partition of shifted scores, computed in the linear domain, has lost nothing that matters."""
    return -708.0 + 1.39 * n + 37.0 < log_partition < 700.0


@inner
def _join(scores, n, joint):
    """Joins labels; returns what all trees score and the largest score between.  NaN or −∞ if there is no answer."""
    if not join(scores, n, joint):
        return np.nan, 0.0
    if n == 0:
        return 0.0, 0.0
    between = _largest_between(joint, n)
    return _in_every_tree(joint, n, between), between


@inner
def _inside_logs(scores, n, joint, weight, tree):
    """The log-partition over n ≥ 1 words, and the chart, by logarithms."""
    taken, between = _join(scores, n, joint)
    _log_weights(joint, n, between, weight)
    return taken + inside_log(weight, n, tree)


@inner
def _inside_group(scores, lengths, group, joint, weight, tree, value):
    """The log-partitions of a group of sentences, and their chart; returns the longest length, 1 at least.

    value[k] is NaN or −∞ if there is no answer, and +∞ if the sentence has to be done again by logarithms.
    """
    longest = max(lengths[group[-1]], 1)
    for k, b in enumerate(group):
        value[k], between = _join(scores[b], lengths[b], joint[k])
        pack(joint[k], lengths[b], between, k, len(group), longest, weight)
    inside(weight, len(group), longest, tree)
    for k, b in enumerate(group):
        result = np.log(tree[longest - 1, k])
        value[k] += result if _trusted(result, lengths[b]) else np.inf  # −∞ + ∞ is NaN
    return longest


@kernel
def log_partition(scores, lengths, value, lo, hi):
    """log Σ exp(score) over the trees of each instance; one number each."""
    size, failed = max(scores.shape[1], 1), hi
    most = in_a_group(size, hi - lo)
    order, results, joint = lo + by_length(lengths[lo:hi]), np.empty(most), np.empty((most, size, size))
    weight, tree = np.empty((size, size * most)), np.empty((size, size * most))
    log_weight, log_tree = np.empty((size, size)), np.empty((size, size))
    for first in range(0, hi - lo, most):
        group = order[first : first + most]
        _inside_group(scores, lengths, group, joint, weight, tree, results)
        for k, b in enumerate(group):
            if results[k] == np.inf:
                results[k] = _inside_logs(scores[b], lengths[b], joint[k], log_weight, log_tree)
            value[b] = results[k]
            if not results[k] > -np.inf:
                failed = min(failed, b)
    return failed if failed < hi else -1


@kernel
def partition(scores, lengths, value, marginals, lo, hi):
    """The log-partition and its gradient, the probability of each labelled span; twice as long as `log_partition`."""
    size, failed = max(scores.shape[1], 1), hi
    most = in_a_group(size, hi - lo)
    order, results, joint = lo + by_length(lengths[lo:hi]), np.empty(most), np.empty((most, size, size))
    weight, tree = np.empty((size, size * most)), np.empty((size, size * most))
    outer, shares = np.empty((size, size * most)), np.empty((size, size * most))
    log_weight, log_tree = np.empty((size, size)), np.empty((size + 1, size))
    log_outer, marginal = np.empty((size, size)), np.empty((size, size))
    for first in range(0, hi - lo, most):
        group = order[first : first + most]
        longest = _inside_group(scores, lengths, group, joint, weight, tree, results)
        outside(weight, len(group), longest, tree, outer, shares)
        for k, b in enumerate(group):
            n = lengths[b]
            if results[k] == np.inf:
                results[k] = _inside_logs(scores[b], n, joint[k], log_weight, log_tree)
                outside_log(log_weight, n, log_tree, log_outer, marginal)
            else:
                unpack(shares, n, k, len(group), marginal)
            value[b], marginals[b] = results[k], 0.0
            share_out(scores[b], joint[k], marginal, n, marginals[b])
            if not results[k] > -np.inf:
                failed = min(failed, b)
    return failed if failed < hi else -1


@inner
def _along(weight, step, n, dual):
    """The weights as dual numbers whose logarithms move along `step`."""
    for i in range(n):
        for j in range(i, n):
            dual[i, j] = complex(weight[i, j], step[i, j] * weight[i, j])


@inner
def _along_log(log_weight, step, n, dual):
    """Their logarithms as dual numbers."""
    for i in range(n):
        for j in range(i, n):
            dual[i, j] = complex(log_weight[i, j], step[i, j])


@kernel
def hessian_product(scores, lengths, direction, product, lo, hi):
    """The derivative of the marginals along `direction`: the Hessian of the log-partition times it, Cov(z) · g.

    The Hessian is symmetric, so this is also the backward pass of the marginals.
    """
    size = scores.shape[1]
    joint, weight, mean = np.empty((size, size)), np.empty((size, size)), np.empty((size, size))
    dual, moving = np.empty((size, size), np.complex128), np.empty((size, size), np.complex128)
    tree, outer = np.empty((size + 1, size), np.complex128), np.empty((size, size), np.complex128)
    for b in range(lo, hi):
        n = lengths[b]
        product[b] = 0.0
        taken, between = _join(scores[b], n, joint)
        if not taken > -np.inf:
            return b
        if n == 0:
            continue
        join_direction(scores[b], joint, direction[b], n, mean)
        _weights(joint, n, between, weight)
        _along(weight, mean, n, dual)
        if _trusted(np.log(inside_dual(dual, n, tree).real), n):
            outside_dual(dual, n, tree, outer, moving)
        else:
            _log_weights(joint, n, between, weight)
            _along_log(weight, mean, n, dual)
            if not inside_dual_log(dual, n, tree).real > -np.inf:
                return b
            outside_dual_log(dual, n, tree, outer, moving)
        share_out_slopes(scores[b], joint, direction[b], mean, moving, n, product[b])
    return -1


@inner
def _inside(scores, n, joint, weight, tree):
    """The log-partition, and whether the chart is in the linear domain; NaN or −∞ if there is no answer."""
    taken, between = _join(scores, n, joint)
    if n == 0 or not taken > -np.inf:
        return taken, True
    _weights(joint, n, between, weight)
    result = np.log(inside_linear(weight, n, tree))
    if _trusted(result, n):
        return taken + result, True
    return _inside_logs(scores, n, joint, weight, tree), False


read_sample = reader_over(draw, draw_log)
read_sample_log = reader_over(draw_log, draw_log)


@kernel
def sample(scores, lengths, seeds, count, vertices, lo, hi):
    """`count` independent exact samples, vertices[b, sample, i, j, label]; seeds[b] decides all of an instance.

    O(n³) for the chart of an instance and O(n²) for each sample.
    """
    size = scores.shape[1]
    joint, weight, tree = np.empty((size, size)), np.empty((size, size)), np.empty((size, size))
    zeros, spans = np.zeros(scores.shape[3]), np.empty((2 * size, 3), np.int64)
    random = np.empty(1, np.uint64)
    for b in range(lo, hi):
        n = lengths[b]
        vertices[b] = 0.0
        result, linear = _inside(scores[b], n, joint, weight, tree)
        if not result > -np.inf:
            return b
        random[0] = np.uint64(seeds[b])
        for drawn in range(count if n > 0 else 0):
            if linear:
                read_sample(scores[b], n, tree, random, zeros, spans)
            else:
                read_sample_log(scores[b], n, tree, random, zeros, spans)
            write_tree(spans, n, vertices[b, drawn])
    return -1

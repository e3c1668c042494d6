"""The permutahedron, the hull of all orders of some values: its best vertex and three projections onto it.

Sort the scores, s₁ ≤ … ≤ sₙ, and the values, w₁ ≤ … ≤ wₙ.  The best vertex gives wᵢ to the item of sᵢ.  The nearest
point gives it sᵢ − vᵢ, where v is the isotonic regression of s − w:

    min Σ (sᵢ − wᵢ − vᵢ)²   over   v₁ ≤ … ≤ vₙ

which is constant on blocks of neighbors.  To find them, take the items one after the other, each a block of its own,
and pool the last two blocks as long as their v is not ascending.  A block shares the sum of its values:

    squared norm    μᵢ = sᵢ − mean(s) + mean(w)        v = mean(s) − mean(w)
    entropy         μᵢ = softmax(s)ᵢ · Σ w             v = log Σ exp(s) − log Σ w
    logarithms      νᵢ = log softmax(s)ᵢ + log Σ eʷ    v = log Σ exp(s) − log Σ eʷ

over the block.  The first minimizes ½‖μ − s‖², the second Σ μ log μ − μ − μ s, for values above 0.  The third is the
logarithm of the second for the values eʷ, of any size, with sums that are logarithms too.  With weights u that
are 1 for the first and μ for the second, and the weighted mean ḡ = Σ u g / Σ u over the block, the derivative turns g
into u (g − ḡ) for the scores, and into ḡ for each of the values.  A block whose values are all the same is *fixed*:
equal scores share it, but μ stays when they change, and the derivative for the scores is 0.

Ties in v are pooled: then the block spans the face that μ lies on.  O(n) after sorting.
Reference: Blondel et al. (2020); Best, Chakravarti and Ubhaya (2000).
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.ranking.order import sort, sorting
from pullback.kernels.tools import compiled, exp, inner, kernel, log

# Numbers in order, and for each block where it begins and two sums over it.
_Rows = namedtuple("_Rows", ["score", "value", "start", "of_scores", "of_values"])


@inner
def _rows(size):
    return _Rows(np.empty(size), np.empty(size), np.empty(size + 1, np.int64), np.empty(size), np.empty(size))


@inner
def _sort_both(scores, values, n, work, order, places, rows):
    """Orders of scores and values, and both in these orders; False if one is NaN or infinite."""
    if not sort(scores, n, work, order) or not sort(values, n, work, places):
        return False
    for i in range(n):
        rows.score[i], rows.value[i] = scores[order[i]], values[places[i]]
    for i in range(n, len(order)):
        order[i] = places[i] = i
    return True


@kernel
def argmax(scores, values, lengths, vertex, lo, hi):
    """The largest value for the highest score, and so on; of each instance the first lengths[b] scores and values.

    Of equal scores, the last has the largest value.  O(n).  Returns the first instance in which one is NaN or infinite,
    or −1.
    """
    size = scores.shape[1]
    work, rows = sorting(size), _rows(size)
    order, places = np.empty(size, np.int32), np.empty(size, np.int32)
    for b in range(lo, hi):
        n = lengths[b]
        if not _sort_both(scores[b], values[b], n, work, order, places, rows):
            return b
        for i in range(n, size):
            vertex[b, i] = 0.0
        for i in range(n):
            vertex[b, order[i]] = rows.value[i]
    return -1


# ---- squared norm


@inner
def _pool_means(rows, block, end):
    """Pools the blocks `block` and `block + 1`, which ends before `end`, unless their v ascends; whether it did."""
    middle = rows.start[block + 1]
    left = (rows.of_scores[block] - rows.of_values[block]) * (end - middle)
    right = (rows.of_scores[block + 1] - rows.of_values[block + 1]) * (middle - rows.start[block])
    if left < right:  # v · the sizes of both blocks
        return False
    rows.of_scores[block] += rows.of_scores[block + 1]
    rows.of_values[block] += rows.of_values[block + 1]
    return True


@inner
def _score_itself(score):
    return score


@inner
def _write_means(rows, block, end, order, point):
    first = rows.start[block]
    mean_score, mean_value = rows.of_scores[block] / (end - first), rows.of_values[block] / (end - first)
    for i in range(first, end):
        point[order[i]] = (rows.score[i] - mean_score) + mean_value


# ---- entropy: a sum over scores is that of exp(s − the last score of the block)


@inner
def _pool_shares(rows, block, end):
    smaller = exp(rows.score[rows.start[block + 1] - 1] - rows.score[end - 1])
    left = smaller * rows.of_scores[block]
    if left * rows.of_values[block + 1] < rows.of_scores[block + 1] * rows.of_values[block]:
        return False
    rows.of_scores[block] = left + rows.of_scores[block + 1]
    rows.of_values[block] += rows.of_values[block + 1]
    return True


@inner
def _one(score):
    return 1.0


@inner
def _write_shares(rows, block, end, order, point):
    share = rows.of_values[block] / rows.of_scores[block]
    for i in range(rows.start[block], end - 1):
        point[order[i]] = share * exp(rows.score[i] - rows.score[end - 1])
    point[order[end - 1]] = share


# ---- logarithms: the sums over scores and values are those of their exponentials


@inner
def _add_logarithms(a, b):
    """log(eᵃ + eᵇ)."""
    return max(a, b) + log(1.0 + exp(-abs(a - b)))


@inner
def _pool_logarithms(rows, block, end):
    left = rows.of_scores[block] - rows.of_values[block]
    if left < rows.of_scores[block + 1] - rows.of_values[block + 1]:
        return False
    rows.of_scores[block] = _add_logarithms(rows.of_scores[block], rows.of_scores[block + 1])
    rows.of_values[block] = _add_logarithms(rows.of_values[block], rows.of_values[block + 1])
    return True


@inner
def _write_logarithms(rows, block, end, order, point):
    for i in range(rows.start[block], end):
        point[order[i]] = (rows.score[i] - rows.of_scores[block]) + rows.of_values[block]


# ---- any of them


def _projection(name, alone, pool, write):
    """The kernel of a projection: what one item alone adds to a sum over scores, how to pool, what a block shares."""

    def project(scores, values, lengths, point, order, places, blocks, lo, hi):
        """The projection of each instance, zero beyond lengths[b], and what its derivative needs.

        order[b, i] and places[b, i] (int32): the item of the i-th lowest score and the place of the i-th lowest value;
        blocks[b, i] (int32): where the block of the i-th lowest score begins, or its complement if the block is fixed.
        Returns the first instance in which a score or value is NaN or infinite, or −1.
        """
        size = scores.shape[1]
        work, rows = sorting(size), _rows(size)
        for b in range(lo, hi):
            n, count = lengths[b], 0
            if not _sort_both(scores[b], values[b], n, work, order[b], places[b], rows):
                return b
            for i in range(n):
                rows.start[count], rows.of_scores[count], rows.of_values[count] = i, alone(rows.score[i]), rows.value[i]
                while count > 0 and pool(rows, count - 1, i + 1):
                    count -= 1
                count += 1
            rows.start[count] = n
            for i in range(n, size):
                point[b, i], blocks[b, i] = 0.0, ~i
            for block in range(count):
                first, end = rows.start[block], rows.start[block + 1]
                write(rows, block, end, order[b], point[b])
                begin = first if rows.value[first] < rows.value[end - 1] else ~first
                for i in range(first, end):
                    blocks[b, i] = begin
        return -1

    return compiled(project, name, decorate=kernel)


project = _projection("project", _score_itself, _pool_means, _write_means)
project_entropic = _projection("project_entropic", _one, _pool_shares, _write_shares)
project_logarithms = _projection("project_logarithms", _score_itself, _pool_logarithms, _write_logarithms)


@kernel
def project_backward(gradient, point, lengths, order, places, blocks, entropic, of_scores, of_values, lo, hi):
    """The derivative of either of the first two with respect to scores and values, times `gradient`.

    It is zero beyond lengths[b].  That of logarithms is written with PyTorch's operations, in `operators`.
    """
    for b in range(lo, hi):
        n, first = lengths[b], 0
        for i in range(n, gradient.shape[1]):
            of_scores[b, i], of_values[b, i] = 0.0, 0.0
        while first < n:
            end, block, total, weights = first, blocks[b, first], 0.0, 0.0
            while end < n and blocks[b, end] == block:
                weight = point[b, order[b, end]] if entropic else 1.0
                total += weight * gradient[b, order[b, end]]
                weights += weight
                end += 1
            mean = total / weights if weights > 0.0 else 0.0
            moves = 1.0 if block >= 0 else 0.0
            for i in range(first, end):
                weight = point[b, order[b, i]] if entropic else 1.0
                of_scores[b, order[b, i]] = moves * weight * (gradient[b, order[b, i]] - mean)
                of_values[b, places[b, i]] = mean
            first = end
    return -1

"""Sums over all dependency trees by elimination without subtraction: log-partition, marginals and their derivative.

The weight of a tree is the product of w[h, m] = exp(score[h, m]) over its arcs.  Each word has one head, so a column
may be scaled at will; scaled to sum to one, Z is the probability that heads drawn independently form a tree.  By the
matrix-tree theorem Z = Π d_k, where eliminating the words k = n … 1 (Grassmann, Taksar and Heyman, 1985) means

    d_k = Σ_{h<k} w[h, k],    p[h, k] = w[h, k] / d_k,    w[h, m] += p[h, k] w[k, m]    for h, m < k.

Sums, products and quotients of positive numbers: Z has full relative accuracy however peaked the scores are, where a
determinant by LU loses all digits.  Backwards, k = 1 … n, with a = ∂ log Z/∂w,

    c_h = Σ_m a[h, m] w[k, m],    a[k, m] = Σ_h p[h, k] a[h, m],    a[h, k] = (1 + c_h − Σ_h p[h, k] c_h) / d_k,

and the marginals are w a.  Since p[h, k] c_h ≤ n, that one difference costs n machine epsilons.

**One root.**  The coefficient of the first power of the root's weights: leave h = 0 out of every d_k but the last, d_1.
A word k whose d_k is then zero cannot be reached from any word left.  If there is a tree, its root word r reaches k,
so r is k itself or was eliminated before it; and since the pivots before were positive, such an r is in turn reached
from k.  So k reaches all words, and exchanging it with word 1 makes every pivot but d_1 positive.  A pivot of zero
after that, or without `single_root`, means that there is no tree.

**Range.**  Weights below 1e-307 are rounded to zero, and so is any term of the sums.  As columns sum to at most one, Z
has a slope of at most one in every number of the elimination, so each rounding takes at most 1e-307 from Z: as long as
Z is above n³ 1e-291 nothing is lost.  With one root the root's own row is not bounded by one but by 1 / Π d_k, the
product of the pivots so far; that product has to stay above 1e-291 too, even if d_1 is large and lifts it again.
Otherwise the instance is done again on logarithms (`logarithmic`).

**Layout.**  `LANES` instances go through the sweeps together, the last axis of every array; shorter sentences are
filled up with words that have no other head than word 1, and change nothing.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel
from pullback.kernels.trees import logarithmic
from pullback.kernels.trees.elimination import adjoint, exchange, factorize, group, smallest_pivot, workspace
from pullback.kernels.trees.hessian import hessian_product, hessian_product_at
from pullback.kernels.trees.lanes import LANES, separate

__all__ = ["hessian_product", "hessian_product_at", "linearize", "log_partition", "partition"]

_NOTHING = np.empty((0, 0, 0))


@inner
def _multiply(w, a, h, count, out, total):
    """Writes row h of w a, and adds it to `total`."""
    for i in range(count):
        x = w[h, i] * a[h, i]
        x = x if x > 0.0 else 0.0  # a slope below zero is one that was rounded
        out[i] = x
        total[i] += x


@inner
def _unpack(x, n, lane, out):
    for h in range(n + 1):
        for m in range(n + 1):
            out[h, m] = x[h, m, lane]


@inner
def _in_logs(scores, n, single_root, marginals):
    """The log-partition of one instance by logarithms; writes its marginals."""
    answer = np.zeros((n + 1, n + 1))
    value = logarithmic.log_partition_and_marginals(scores.astype(np.float64), n, single_root, answer)
    for h in range(n + 1):
        for m in range(1, n + 1):
            marginals[h, m] = answer[h, m]
    return value


@kernel
def log_partition(scores, lengths, single_root, value, lo, hi):
    """log Σ exp(score) over the trees of each instance.  O(n³) each.

    scores (batch, N, N) by [head, modifier], node 0 the root; column 0 and the diagonal are never read.
    lengths (batch,): the number of words, at most N − 1.  value (batch,).
    Returns the first instance without a tree or with a score of NaN or +∞, or -1.
    """
    work = workspace(scores.shape[1])
    z, scale = work.z, work.scale
    members = np.empty(LANES, np.int64)
    for first in range(lo, hi, LANES):
        group(first, hi, members)
        factorize(scores, lengths, single_root, members, work)
        for b in range(first, min(first + LANES, hi)):
            total = scale[b - first] + np.log(z[b - first])
            if z[b - first] == 0.0:
                total = logarithmic.log_partition(scores[b].astype(np.float64), lengths[b], single_root)
            if not total > -np.inf:
                return b
            value[b] = total
    return -1


@kernel
def linearize(scores, lengths, single_root, value, marginals, weights, slopes, lo, hi):
    """`partition`, also leaving what `hessian_product_at` needs.

    weights, slopes (batch, N, N), float64: the factors of the marginals, zero in the padding.  slopes[b, 0, 0] is the
    largest 1/d_k, +∞ where the slopes are out of range.  Nothing is left if they are empty.
    """
    work = workspace(scores.shape[1])
    w, a, z, scale, last = work.w, work.a, work.z, work.scale, work.last
    flat_w, flat_a = w.reshape(len(w), -1), a.reshape(len(a), -1)
    members, product, total = np.empty(LANES, np.int64), work.columns[0].reshape(-1), work.rows[0].reshape(-1)
    for first in range(lo, hi, LANES):
        group(first, hi, members)
        size = factorize(scores, lengths, single_root, members, work)
        adjoint(work, size, single_root)
        shortest = size
        for lane in range(LANES):
            shortest = min(shortest, lengths[members[lane]])
            if lengths[members[lane]] + 1 < scores.shape[1]:
                marginals[members[lane]] = 0.0
            if last[lane] > 1:
                exchange(w, size, last[lane], lane)
                exchange(a, size, last[lane], lane)
        total[:] = 0.0
        for h in range(size + 1):
            _multiply(flat_w, flat_a, h, (size + 1) * LANES, product, total)
            common = shortest + 1 if h <= shortest else 0
            separate(product, 0, marginals, h, members, common)
            for b in members:
                for m in range(common, lengths[b] + 1 if h <= lengths[b] else 0):
                    marginals[b, h, m] = product[m * LANES + b - first]
        for b in range(first, min(first + LANES, hi)):
            lane = b - first
            value[b] = scale[lane] + np.log(z[lane])
            arcs = total[lane : (size + 1) * LANES : LANES].sum()  # an overflow of `a` shows here
            linear = z[lane] > 0.0 and abs(arcs - size) <= 1e-6 * size
            if slopes.size > 0:
                if lengths[b] + 1 < scores.shape[1]:
                    weights[b], slopes[b] = 0.0, 0.0
                _unpack(w, lengths[b], lane, weights[b])
                _unpack(a, lengths[b], lane, slopes[b])
                slopes[b, 0, 0] = 1.0 / smallest_pivot(work.x, size, lane) if linear else np.inf
            if z[lane] >= 0.0 and not linear:
                value[b] = _in_logs(scores[b], lengths[b], single_root, marginals[b])
            if not value[b] > -np.inf:
                return b
    return -1


def partition(scores, lengths, single_root, value, marginals, lo, hi):
    """The log-partition of each instance and its gradient, the probability of every arc.  O(n³) each.

    marginals (batch, N, N): zero in column 0, on the diagonal and in the padding.  Otherwise as `log_partition`.
    """
    return linearize(scores, lengths, single_root, value, marginals, _NOTHING, _NOTHING, lo, hi)

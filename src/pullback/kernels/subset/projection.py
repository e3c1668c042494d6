"""The best subset of n items whose size lies between two counts, and the nearest point of their polytope.

The best by selection; the nearest, μ = clip(s − τ, 0, 1), by a search for the one multiplier τ.  Neither sorts.
"""

import numpy as np

from pullback.kernels.subset.selection import list_allowed, select_largest
from pullback.kernels.tools import fmax, inner, kernel, summing

_LEAST = -np.finfo(np.float64).max


@inner
def _argmax(scores, low, high, best, item, score):
    """Writes the best subset; returns whether there is one."""
    best[:] = 0.0
    m = list_allowed(scores, item, score)
    if m < low:
        return False
    positive = 0
    for i in range(m):
        positive += score[i] > 0.0
    size = min(max(positive, low), high, m)
    if size == 0:
        return True
    threshold = select_largest(score[:m], size)
    for i in range(len(scores)):
        if scores[i] > threshold:
            best[i] = 1.0
            size -= 1
    for i in range(len(scores)):
        if size > 0 and scores[i] == threshold:
            best[i] = 1.0
            size -= 1
    return True


@kernel
def argmax(scores, low, high, best, lo, hi):
    """The best subsets: the `low` best items, then further ones while their score is positive, up to `high`.

    scores, best: (batch, n); low, high: (batch,).  Of equal items the first are taken.  O(n).
    Returns the first instance with a NaN score or fewer than `low` allowed items, else −1.
    """
    n = scores.shape[1]
    item, score = np.empty(n, np.int64), np.empty(n)
    for b in range(lo, hi):
        if not _argmax(scores[b], low[b], high[b], best[b], item, score):
            return b
    return -1


@summing
def _clipped_sum(score, tau):
    """Σ clip(sᵢ − τ, 0, 1) and the number of terms strictly between 0 and 1."""
    total, inside = 0.0, 0.0
    for i in range(len(score)):
        x = score[i] - tau
        total += min(max(x, 0.0), 1.0)
        inside += 1.0 if (x > 0.0) & (x < 1.0) else 0.0
    return total, inside


@inner
def _threshold(score, k, tau, left, right):
    """τ in the bracket [left, right] with Σ clip(sᵢ − τ, 0, 1) = k, by Newton's method from `tau`.

    A step that leaves the bracket is replaced by bisection: the sum is neither convex nor concave in τ.
    Returns τ, whether it is near enough, and what remains of the bracket.
    """
    while True:
        total, inside = _clipped_sum(score, tau)
        if total > k:
            left = tau
        else:
            right = tau
        if abs(total - k) <= 4e-15 * (k + inside) or right - left <= 1e-15:
            return tau, True, left, right
        tau += (total - k) / inside
        if not left < tau < right:
            tau = 0.5 * left + 0.5 * right
            if not left < tau < right:
                return tau, False, left, right


@summing
def _survey(scores, score):
    """Copies the scores; returns their largest and least finite value, how many are allowed, how many invalid.

    Three loops, and a product instead of a choice, because this is what vectorizes.
    """
    largest, least, allowed, invalid = -np.inf, -np.inf, 0.0, 0.0
    for i in range(len(scores)):
        score[i] = scores[i]
    for i in range(len(score)):
        largest = fmax(score[i], largest)
        least = fmax(-score[i] * (1.0 if score[i] > -np.inf else -1.0), least)
    for i in range(len(score)):
        allowed += 1.0 if score[i] > -np.inf else 0.0
        invalid += 0.0 if score[i] < np.inf else 1.0
    return largest, -least, allowed, invalid


@inner
def _project(scores, low, high, point, score):
    """Writes the nearest point of the polytope; returns whether there is one."""
    largest, least, allowed, invalid = _survey(scores, score)
    if invalid > 0 or allowed < low:
        point[:] = 0.0
        return False
    if allowed == 0 or high == 0:
        point[:] = 0.0
        return True
    if allowed == low:  # there is one subset: a search that ends just below 1 would see others
        for i in range(len(score)):
            point[i] = 1.0 if score[i] > -np.inf else 0.0
        return True
    tau = 0.0
    total, _ = _clipped_sum(score, 0.0)
    if not low <= total <= high:
        k = low if total < low else high
        left, right = max(least - 1.0 - 1e-15 * abs(least), _LEAST), largest
        tau, is_found = 0.5 * left + 0.5 * right, False
        if left < right:
            tau, is_found, left, right = _threshold(score, k, tau, left, right)
        while not is_found:  # large scores: no float is near enough to τ, so search relative to the nearest one
            for i in range(len(score)):
                score[i] -= tau
            tau, is_found, left, right = _threshold(score, k, 0.0, min(left - tau, -1.0), right - tau)
    for i in range(len(score)):
        point[i] = min(max(score[i] - tau, 0.0), 1.0)
    return True


@kernel
def project(scores, low, high, point, lo, hi):
    """The points nearest to the scores with 0 ≤ μ ≤ 1 and low ≤ Σμ ≤ high:  μ = clip(s − τ, 0, 1).

    scores, point: (batch, n); low, high: (batch,).  τ is 0 unless a count is violated.  O(n) a step, about six steps.
    Returns the first instance with a NaN score or fewer than `low` allowed items, else −1.
    """
    score = np.empty(scores.shape[1])
    for b in range(lo, hi):
        if not _project(scores[b], low[b], high[b], point[b], score):
            return b
    return -1


@summing
def _project_backward(scores, low, high, point, g, out):
    """Writes the projection of g on the face that holds the point in its interior."""
    gradient, inside = 0.0, 0.0
    for i in range(len(point)):
        is_inside = (point[i] > 0.0) & (point[i] < 1.0)
        gradient += g[i] if is_inside else 0.0
        inside += 1.0 if is_inside else 0.0
    # The sum of the point, once rounded, could not tell a count just met from one just missed; the scores can.
    total, _ = _clipped_sum(scores, 0.0)
    mean = gradient / inside if inside > 0.0 and not low < total < high else 0.0
    for i in range(len(point)):
        out[i] = g[i] - mean if (point[i] > 0.0) & (point[i] < 1.0) else 0.0


@kernel
def project_backward(scores, low, high, point, g, out, lo, hi):
    """The Jacobian of `project` times g: g where 0 < μ < 1, less its mean there if a count is met; 0 elsewhere.

    scores, point, g, out: (batch, n); low, high: (batch,).  O(n).
    """
    for b in range(lo, hi):
        _project_backward(scores[b], low[b], high[b], point[b], g[b], out[b])
    return -1

"""Which items are allowed, and the k-th largest of a list of numbers."""

import numpy as np

from pullback.kernels.tools import fmax, inner, summing


@inner
def list_allowed(scores, item, score):
    """Lists the items that are not forbidden, with their scores; returns how many, −1 if a score is NaN or +∞."""
    m = 0
    for i in range(len(scores)):
        if not scores[i] < np.inf:
            return -1
        if scores[i] > -np.inf:
            item[m], score[m] = i, scores[i]
            m += 1
    return m


@summing
def _count_above(values, level):
    count = 0.0
    for i in range(len(values)):
        count += 1.0 if values[i] > level else 0.0
    return int(count)


@summing
def select_largest(values, k):
    """The k-th largest value, k ≥ 1, in linear time; overwrites the values.

    A few halvings of the range leave few candidates, for counting is ten times faster than exchanging.
    """
    left, right = -np.inf, -np.inf
    for i in range(len(values)):
        right = fmax(values[i], right)
        left = fmax(-values[i], left)
    left, above, reached = -left, 0, len(values)
    for _ in range(8):
        if reached - above <= 32:
            break
        level = 0.5 * left + 0.5 * right
        count = _count_above(values, level)
        if count >= k:
            left, reached = level, count
        else:
            right, above = level, count
    m = 0
    for i in range(len(values)):
        if left <= values[i] <= right:
            values[m] = values[i]
            m += 1
    return _select(values[:m], k - above)


@inner
def _select(values, k):
    """The k-th largest value by Hoare's selection; reorders the values."""
    left, right = 0, len(values) - 1
    while left < right:
        a, b, c = values[left], values[(left + right) // 2], values[right]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = left, right
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if k - 1 <= j:
            right = j
        elif k - 1 >= i:
            left = i
        else:
            break  # between j and i everything equals the pivot
    return values[k - 1]

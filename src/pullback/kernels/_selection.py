"""Which items are allowed, and the k-th largest of a list of numbers."""

import numpy as np

from pullback.kernels._vector import kernel


@kernel
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


@kernel
def select_largest(values, k):
    """The k-th largest value, k ≥ 1, by Hoare's selection in linear time; reorders the values."""
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

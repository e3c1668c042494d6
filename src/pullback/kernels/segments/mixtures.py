"""SparseMAP over labelled segmentations whose transitions have scores but no coordinates.

    max ⟨s, μ⟩ + Σ p_z worth(z) − ½‖μ‖²     over   μ = Σ p_z z,   worth(z) = Σ transition[label before, label]

By the active-set method.  Of scores (batch, n, w, t), a segment is the part (start · w + width − 1) · t + label, which
the slot of its last position holds.  The transitions (batch, t, t) are the only option.  The argmax goes backward, in
O(n w t + n t²), with the best score of what begins at position i:

    begun[i, b] = max_k  s[i, k, b] + ahead[i + k + 1, b]      the first segment has label b
    ahead[i, a] = max_b  transition[a, b] + begun[i, b]        the segment before has label a;  ahead[n, a] = 0
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.active_set import mixture_over
from pullback.kernels.tools import fmax, inner


class Own(NamedTuple):
    """The charts (n + 1, t) and the transitions of an instance."""

    begun: np.ndarray
    ahead: np.ndarray
    transition: np.ndarray


@inner
def _workspace(scores, options):
    n, t = scores.shape[1], scores.shape[3]
    return Own(np.empty((n + 1, t)), np.empty((n + 1, t)), np.empty((t, t)))


@inner
def _load(scores, b, n, options, own, out):
    """Copies scores and transitions; there is a slot for each position."""
    if not 0 <= n <= scores.shape[1]:
        return -1
    valid = True
    for i in range(n):
        for k in range(min(scores.shape[2], n - i)):
            for c in range(scores.shape[3]):
                out[i, k, c] = scores[b, i, k, c]
                valid &= out[i, k, c] < np.inf
    for a in range(scores.shape[3]):
        for c in range(scores.shape[3]):
            own.transition[a, c] = options[0][b, a, c]
            valid &= own.transition[a, c] < np.inf
    return n if valid else -1


@inner
def _sweep(rest, n, own):
    begun, ahead, transition = own
    t = len(transition)
    for a in range(t):
        ahead[n, a] = 0.0
    for i in range(n - 1, -1, -1):
        for b in range(t):
            begun[i, b] = -np.inf
        for k in range(min(rest.shape[1], n - i)):
            for b in range(t):
                begun[i, b] = fmax(rest[i, k, b] + ahead[i + k + 1, b], begun[i, b])
        for a in range(t):
            best = -np.inf
            for b in range(t):
                best = fmax(transition[a, b] + begun[i, b], best)
            ahead[i, a] = best


@inner
def _first(score, goal):
    """The first place of `goal`."""
    for place in range(len(score)):
        if score[place] == goal:
            return place
    return -1


@inner
def best_segments(rest, n, options, own, parts):
    """Writes the parts of the best segmentation; False if there is none."""
    if n == 0:
        return True
    _sweep(rest, n, own)
    begun, ahead, transition = own
    best = begun[0].max()
    if best == -np.inf:
        return False
    for slot in range(len(parts)):
        parts[slot] = -1
    i, b = 0, _first(begun[0], best)
    while i < n:
        k = 0
        while rest[i, k, b] + ahead[i + k + 1, b] != begun[i, b]:
            k += 1
        parts[i + k] = (i * rest.shape[1] + k) * len(transition) + b
        i += k + 1
        if i < n:
            c = 0
            while transition[b, c] + begun[i, c] != ahead[i, b]:
                c += 1
            b = c
    return True


@inner
def _worth(own, n, vertex):
    transition, total, before = own.transition, 0.0, -1
    for i in range(n):
        if vertex[i] >= 0:
            label = vertex[i] % len(transition)
            if before >= 0:
                total += transition[before, label]
            before = label
    return total


@inner
def _spread(weight, n, vertex, product):
    """Adds `weight` to each transition of a segmentation."""
    before = -1
    for i in range(n):
        if vertex[i] >= 0:
            label = vertex[i] % len(product)
            if before >= 0:
                product[before, label] += weight
            before = label


mixture, mixture_backward = mixture_over(_workspace, _load, best_segments, _worth, _spread)

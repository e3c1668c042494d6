"""The face of a mixture of trees: its support, and the sets of words that receive exactly 1.

It tells all that the derivative of the projection needs, and how many trees may mix.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel
from pullback.kernels.tree_cuts.columns import labels_of, tilt
from pullback.kernels.tree_cuts.dual import curvature, newton
from pullback.kernels.tree_cuts.laminar import meet, new_family, penalize, start


@kernel
def project_backward(grad, lengths, point, sets, out, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `grad`: its orthogonal projection on the face's directions.

    These are 0 off the support of `point`, sum to 0 in each column and within each active set.  So center each column
    on its support and solve one small system, whose matrix is the Hessian of the dual.
    """
    N, width = grad.shape[1:]
    family, hessian = new_family(N, width), np.empty((N + 2, N + 2))
    direction, places = np.empty((N, width)), np.empty(width, np.uint32)
    for b in range(lo, hi):
        if lengths[b] < 0:
            continue
        out[b] = 0.0
        number = _unpack(lengths[b], sets[b], family.words, family.sets)
        _project_on_face(lengths[b], number, grad[b], point[b], family, hessian, direction, places, out[b])
    return -1


@inner
def rank(n, number, family, hessian):
    """How many of the sets are independent on the arcs with mass."""
    sets = family.sets
    for k in range(1, number):
        sets[k].free = 1
    _mark_dependent(n, number, family, hessian)
    total = 0
    for k in range(1, number):
        total += not sets[k].dependent
    return total


@inner
def freedom(n, words, arcs):
    """How many arcs have mass, beyond one for each word."""
    total = -n
    for j in range(1, n + 1):
        for c in range(words[j].count):
            total += arcs[j, c].mass > 0.0
    return total


@inner
def write_sets(n, number, family, hessian, active):
    """Write the independent sets of the family that receive exactly 1."""
    words, sets, _ = family
    for k in range(1, number):
        sets[k].free = sets[k].multiplier != 0.0 or sets[k].equality
    _mark_dependent(n, number, family, hessian)
    written = 0
    for k in range(1, number):
        sets[k].row = written
        written += sets[k].free > 0 and not sets[k].dependent
    for j in range(1, n + 1):
        k = words[j].home
        while k > 0:
            if sets[k].free and not sets[k].dependent:
                active[sets[k].row, j >> 6] |= np.int64(1) << np.int64(j & 63)
            k = sets[k].parent


@inner
def _mark_dependent(n, number, family, hessian):
    """Mark the free sets that depend on others."""
    words, sets, arcs = family
    for k in range(1, number):
        sets[k].step = 0.0
    curvature(n, number, words, sets, arcs, hessian)
    newton(number, sets, hessian)


@inner
def _unpack(n, active, words, sets):
    """The family of the active sets, all free; returns the number of sets."""
    start(n, False, words, sets)
    sets[1].free = 0
    sets[1].step = 0.0
    number = np.int64(2)
    for q in range(n):
        sets[number].size = 0
        for j in range(1, n + 1):
            if active[q, j >> 6] >> np.int64(j & 63) & 1:
                sets[number].size += 1
                sets[number].parent = words[j].home  # larger sets come first
                words[j].home = number
        if sets[number].size == 0:
            break
        sets[number].free = 1
        number += 1
    return number


@inner
def _project_on_face(n, number, grad, point, family, hessian, direction, places, out):
    """Subtract from the centered columns the centered indicators of the active sets, each with its multiplier."""
    words, sets, arcs = family
    labels = labels_of(point)
    for j in range(1, n + 1):
        words[j].count = 0
    for i in range(n + 1):
        filled = np.uint64(0)
        for m in range(labels, labels * (n + 1)):  # without a branch, which the processor could only guess
            places[filled] = m
            filled += np.uint64(point[i, m] > 0.0)
        for q in range(filled):
            m = np.int64(places[q])
            j = m // labels if labels > 1 else m
            arc = arcs[j, words[j].count]
            arc.head = i
            arc.label = m - labels * j
            arc.mass = 1.0
            direction[j, words[j].count] = grad[i, m]
            words[j].count += 1
    for k in range(number):
        sets[k].gradient = 0.0
    for j in range(1, n + 1):
        meet(j, number, words, sets)
        mean = 0.0
        for c in range(words[j].count):
            mean += direction[j, c] / words[j].count
        for c in range(words[j].count):
            direction[j, c] -= mean
            arcs[j, c].set = sets[words[arcs[j, c].head].home].meet
            sets[arcs[j, c].set].gradient -= direction[j, c]
    for k in range(number - 1, 0, -1):
        sets[sets[k].parent].gradient += sets[k].gradient
    curvature(n, number, words, sets, arcs, hessian)
    newton(number, sets, hessian)
    penalize(number, sets)
    for j in range(1, n + 1):
        count = words[j].count
        tilt(words[j], sets, arcs[j])
        mean = 0.0
        for c in range(count):
            mean += arcs[j, c].slope / count
        for c in range(count):
            out[arcs[j, c].head, labels * j + arcs[j, c].label] = direction[j, c] + arcs[j, c].slope - mean

"""Prices in the middle of all that belong to a best matching.

The prices that `assign` ends with are extreme: many pairs outside the matching are tight by accident.  All the prices
of a best matching satisfy, for a column j that row i has,

    v_j − v_k ≤ c_jk = s_ij − s_ik   for all columns k,        v_k = 0 for a column that nobody has

and, if rows may stay idle, 0 ≤ u_i = s_ij − v_j and v_j ≥ s_kj for idle rows k.  So shortest paths between columns
tell how far v_j may rise, to a node that stands for 0, and how far it may fall, from that node.  Where every column has
a row any of them may stand for 0, since only differences matter.  The middle of both bounds satisfies all inequalities
too.
"""

import numpy as np

from pullback.kernels.tools import inner


@inner
def center(score, optional, a, row_price):
    """Replaces a.price and row_price, the prices of the matching in a, by those in the middle."""
    cols = score.shape[1]
    rise, fall = np.empty(cols), np.empty(cols)
    done = np.empty(cols, np.bool_)
    _begin(score, optional, a, row_price, rise, fall)
    _shortest(score, a, row_price, True, rise, done)
    _shortest(score, a, row_price, False, fall, done)
    largest = 0.0
    for j in range(cols):
        for bound in (rise[j], fall[j]):
            if largest < bound < np.inf:
                largest = bound
    for j in range(cols):
        i = a.owner[j]
        if i >= 0:
            # a price without a bound is held by the largest of the others
            shift = 0.5 * (min(rise[j], largest) - min(fall[j], largest))
            a.price[j] += shift
            row_price[i] -= shift


@inner
def _begin(score, optional, a, row_price, rise, fall):
    """Bounds from the node that stands for 0 directly."""
    rows, cols = score.shape
    if rows == cols and not optional:
        rise[:] = np.inf
        fall[:] = np.inf
        rise[0] = fall[0] = 0.0
        return
    for j in range(cols):
        rise[j], fall[j] = np.inf, a.price[j]
        i = a.owner[j]
        if i >= 0:
            rise[j] = row_price[i] if optional else np.inf
            for k in range(cols):
                if a.owner[k] < 0:
                    rise[j] = min(rise[j], row_price[i] - score[i, k])
    for i in range(rows):
        if a.match[i] < 0:
            for j in range(cols):
                fall[j] = min(fall[j], a.price[j] - score[i, j])


@inner
def _shortest(score, a, row_price, rising, distance, done):
    """Dijkstra's algorithm over the columns that have rows; distances are changed in place."""
    cols = score.shape[1]
    for j in range(cols):
        done[j] = a.owner[j] < 0
        distance[j] = max(distance[j], 0.0)
    while True:
        best, k = np.inf, -1
        for j in range(cols):
            if not done[j] and distance[j] < best:
                best, k = distance[j], j
        if k < 0:
            return
        done[k] = True
        if rising:
            for j in range(cols):
                if not done[j]:
                    i = a.owner[j]
                    distance[j] = min(distance[j], best + max(0.0, row_price[i] + a.price[k] - score[i, k]))
        else:
            i = a.owner[k]
            for j in range(cols):
                if not done[j]:
                    distance[j] = min(distance[j], best + max(0.0, row_price[i] + a.price[j] - score[i, j]))

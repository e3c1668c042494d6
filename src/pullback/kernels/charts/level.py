"""Scores that are equal, or nearly so, as they are before training.

If all scores are equal, most hyperedges are tight and yet not in use.  The flow through them falls no faster than τ, so
the path alone would tell them apart late.  But the flow of those in use stays where it is, and long before that the two
kinds lie on either side of √τ.

Let μ(t) be the nearest point to t times the scores s.  It moves along a line as t grows from 0, until a hyperedge
enters or leaves.  For tiny s, with slacks as tiny, that happens far beyond t = 1.  So μ(1) is found by going further:
as a mixture of μ(0) and of μ(t) for a t with which the scores have a size that the path can tell from nothing.  With
θ(t) = ts − μ(t), a mixture is the nearest point if each of the two is on the face of the other,

    ⟨θ(0), z − μ(t)⟩ ≤ 0  and  ⟨θ(t), z − μ(0)⟩ ≤ 0  for every vertex z,

since then θ and μ of all mixtures of the scores are those mixtures.  θ(t) exposes the face of μ(1), and so has its
derivative.
"""

import numpy as np

from pullback.kernels.charts import path
from pullback.kernels.charts.chart import NO_PART
from pullback.kernels.charts.face import find_face
from pullback.kernels.charts.nearest import QUICK, excess, nearest, settle
from pullback.kernels.charts.scores import centered
from pullback.kernels.tools import inner

_LOUD = 1e-3  # the size of scores that the path can tell from nothing
_TINY = 0.5 * _LOUD
_EQUAL = 1e-14  # relative to the largest score: that is rounding
_START, _FIRST, _LAST = 0.1, 1e-3, 2e-6  # τ at first, when a face is looked for first, and last
_BAND = 0.03  # of the hyperedges, those that may lie near √τ then


@inner
def _nearest_of_equal(full, score, words, tolerance, mu, rest):
    """As `nearest`, for scores that differ by nothing but how many parts their groups have."""
    point, room = path.point_for(full, score), path.room_for(full)
    flow = np.empty(len(full.left))
    temperature, last, before = _START, np.inf, np.inf
    while temperature > _LAST:
        if not path.advance(full, point, temperature, last, before, QUICK, QUICK.stage * words, room):
            break
        if temperature <= _FIRST:
            path.flow_of_edges(full, point, flow)
            in_use, above, below = 0.1 * np.sqrt(temperature), 0, 0
            for e in range(len(flow)):
                above += flow[e] > 3.0 * in_use
                below += flow[e] > in_use / 3.0
            if below - above <= _BAND * above:
                found, face, there = find_face(full, score, full, point, in_use)
                if found:
                    gap = settle(full, score, face, there, tolerance, mu, rest)
                    if gap < np.inf:
                        return gap
        before, last = last, temperature
        temperature *= QUICK.factor
    return nearest(full, score, words, tolerance, mu, rest)


@inner
def _size(full, score, equal):
    """The root of the mean square of what sets the scores of parts apart."""
    total, count = 0.0, 0
    for t in range(len(score)):
        total += (score[t] - equal[t]) ** 2
        count += full.group[t] != NO_PART
    return np.sqrt(total / max(count, 1))


@inner
def _nearest_of_tiny(full, flat, equal, loudness, words, tolerance, mu, rest):
    """As `nearest`, where `rest` may be that of the scores made louder."""
    items = len(full.part)
    score, still, kept = centered(full, flat, 1.0), np.empty(items), np.empty(items)
    if nearest(full, centered(full, flat, loudness), words, tolerance, mu, rest) == np.inf:
        return np.inf  # then the path would fail for smaller scores, too
    gap = _nearest_of_equal(full, equal, words, tolerance, still, kept)
    if gap == np.inf or max(excess(full, kept, mu), excess(full, rest, still)) > tolerance:
        return nearest(full, score, words, tolerance, mu, rest)  # the line has a kink
    for t in range(items):
        mu[t] = still[t] + (mu[t] - still[t]) / loudness
        kept[t] = score[t] - mu[t]
    return max(excess(full, kept, mu), 0.0)


@inner
def nearest_of_any(full, is_whole, flat, words, tolerance, mu, rest):
    """The nearest point to the scores `flat` of parts.

    Writes μ and something that exposes its face, s − μ unless scores are tiny; returns the gap, ∞ if it was not found.
    is_whole: whether no part is forbidden.  Otherwise equal scores do not make all vertices tie, the path finds the
    face soon, and the line from 0 is short.
    """
    equal, score = centered(full, flat, 0.0), centered(full, flat, 1.0)
    size, largest = _size(full, score, equal), 1.0
    for t in range(len(full.part)):
        if full.part[t] >= 0:
            largest = max(largest, abs(flat[full.part[t]]))
    if is_whole and size <= _EQUAL * largest:
        return _nearest_of_equal(full, equal, words, tolerance, mu, rest)
    if is_whole and size < _TINY:
        return _nearest_of_tiny(full, flat, equal, _LOUD / size, words, tolerance, mu, rest)
    return nearest(full, score, words, tolerance, mu, rest)

"""SparseMAP over sequences of tags, where very many of them mix, and its derivative; no sequence is listed.

    max ⟨s, μ⟩ + ⟨gains, f⟩ − ½‖μ‖²     over flows f of one unit through the grid of tags, μ what arrives at each tag

By the interior-point method of `paths`, over a `grid` in place of a graph.
"""

import numpy as np

from pullback.kernels.paths import NOTHING, Face, interior_over
from pullback.kernels.tagging import blocks
from pullback.kernels.tagging import grid as grids
from pullback.kernels.tagging.grid import NONE, Grid, over_edges
from pullback.kernels.tagging.tables import are_valid, join
from pullback.kernels.tools import inner, kernel

_TIED = 1e-8  # an edge belongs to the face if the best sequence through it is this close to the best, for scores of 1
_ROUNDING = 1e-12  # but where scores are tiny, or large, no closer than they are computed
_QUIET, _LOUD = 1e-5, 1e-4  # sizes of scores

_INTERIOR = interior_over(
    "taggings",
    __name__,
    grids.begin,
    grids.residuals,
    blocks.room_of,
    blocks.couple,
    blocks.solve,
    grids.take,
    grids.slacks,
    grids.worth,
)
_nearest, _exchange, _tangent = _INTERIOR.nearest, _INTERIOR.exchange, _INTERIOR.tangent


@inner
def _live(scores, table, n):
    """Which tags are in a sequence above −∞."""
    t = scores.shape[1]
    live = np.zeros((n, t), np.bool_)
    for i in range(n):
        for b in range(t):
            if scores[i, b] > -np.inf:
                live[i, b] = i == 0
                for a in range(t if i > 0 else 0):
                    live[i, b] |= live[i - 1, a] and table[a, b] > -np.inf
    for i in range(n - 2, -1, -1):
        for a in range(t):
            leads = False
            for b in range(t):
                leads |= live[i + 1, b] and table[a, b] > -np.inf
            live[i, a] &= leads
    return live


@inner
def _mean(table, t):
    """Of the transitions above −∞."""
    total, count = 0.0, 0
    for a in range(t):
        for b in range(t):
            if table[a, b] > -np.inf:
                total += table[a, b]
                count += 1
    return total / max(count, 1)


@inner
def _grid(live, table):
    """The grid of one sequence; transitions are relative to their mean."""
    n, t = live.shape
    part = np.arange((n + 1) * t)
    part[n * t :] = -1
    grid = Grid(part, np.full((n + 1) * t * t, NONE), n + 1, t)
    gain, mean = over_edges(grid, grid.gain), _mean(table, t)
    for b in range(t):
        gain[0, 0, b] = 0.0 if live[0, b] else NONE
        gain[n, b, 0] = 0.0 if live[n - 1, b] else NONE
    for i in range(1, n):
        for a in range(t):
            for b in range(t):
                if live[i - 1, a] and live[i, b] and table[a, b] > -np.inf:
                    gain[i, a, b] = table[a, b] - mean
    return grid


@inner
def _center(live, scores, score):
    """The scores of live tags relative to the mean of their position, 0 for others."""
    n, t = live.shape
    for i in range(n):
        total, count = 0.0, 0
        for b in range(t):
            if live[i, b]:
                total += scores[i, b]
                count += 1
        for b in range(t):
            score[i * t + b] = scores[i, b] - total / count if live[i, b] else 0.0


@inner
def _sizes(grid, score):
    """(The root of the mean square of scores and gains, the largest of them)."""
    total, count, largest = 0.0, 0, 0.0
    for numbers in (score, grid.gain):
        for k in range(len(numbers)):
            if numbers[k] > NONE:
                total += numbers[k] * numbers[k]
                count += 1
                largest = max(largest, abs(numbers[k]))
    return np.sqrt(total / count), largest


@inner
def _louder(grid, loudness):
    gain = grid.gain.copy()
    for e in range(len(gain)):
        gain[e] *= loudness if gain[e] > NONE else 1.0
    return Grid(grid.part, gain, grid.layers, grid.tags)


@inner
def _nearest_of_any(grid, score, tolerance, taken, rest):
    """As `nearest`; a gap of `tolerance` times the largest score, if that is above 1, will do.

    The edges in use of tiny scores, whose slacks rounding hides, are mostly those of louder ones.
    """
    size, largest = _sizes(grid, score)
    unit = max(1.0, largest)
    if 0.0 < size < _QUIET:
        loudness = _LOUD / size
        loud = _louder(grid, loudness)
        if _nearest(loud, loudness * score, unit, (_LOUD**2 / 10.0, _LOUD**2 / 1000.0), 0.0, taken, rest) < np.inf:
            slack, weight = np.empty(len(grid.gain)), np.zeros(len(grid.gain))
            grids.slacks(loud, rest, slack)
            for e in range(len(slack)):
                if slack[e] <= _ROUNDING:
                    weight[e] = 1e10 / grid.tags
            face = Face(weight, np.zeros(len(slack)), np.zeros(len(score)))
            found = _exchange(grid, score, unit, blocks.room_of(grid), face, taken, rest)
            if found < np.inf:
                return found
    goal = min(max(0.1 * size * size, 1e-13), 1e-7) if size > 0.0 else 1e-7
    goals = (goal, 1e-2 * goal, 1e-4 * goal, 1e-6 * goal)
    return _nearest(grid, score, unit, goals, tolerance * unit, taken, rest)


@kernel
def approach(scores, table, lengths, tolerance, point, rest, gap, lo, hi):
    """The nearest mixture of sequences of each instance that has a length above 0, and its gap.

    scores, point and rest are (batch, n, t), float64; table (batch, t + 2, t); gap (batch,).  `rest` becomes s − μ, all
    that the derivative needs beside the table, −∞ where there is no tag.  Where the gap is above `tolerance` times the
    largest score (if that is above 1), it is ∞.  Some dozen steps of O(n t³).
    """
    most, t = scores.shape[1:]
    joined = np.empty((most, t))
    for b in range(lo, hi):
        n = lengths[b]
        if not 0 < n <= most or not are_valid(scores[b], n) or not are_valid(table[b], t + 2):
            continue
        join(scores[b], table[b], n, joined)
        live = _live(joined, table[b], n)
        if not live[0].any():
            continue
        grid, score = _grid(live, table[b]), np.zeros((n + 1) * t)
        _center(live, joined, score)
        taken, left = np.empty(len(score)), np.empty(len(score))
        found = _nearest_of_any(grid, score, tolerance, taken, left)
        if found <= tolerance * max(1.0, _sizes(grid, score)[1]):
            gap[b] = found
            point[b], rest[b] = 0.0, -np.inf
            for i in range(n):
                for c in range(t):
                    if live[i, c]:
                        mass = taken[i * t + c]
                        point[b, i, c], rest[b, i, c] = mass if mass > NOTHING else 0.0, left[i * t + c]
    return -1


@kernel
def approach_backward(rest, table, lengths, gradient, product, uses, lo, hi):
    """The Jacobian of `approach` times `gradient`: its projection onto the span of the face, and its uses of the table.

    product (batch, n, t), uses (batch, t + 2, t).  Where transitions tie, several flows have this projection; the least
    of them is a mean of those that are left if the ties are broken, in all ways.
    """
    t = rest.shape[2]
    for b in range(lo, hi):
        n = lengths[b]
        product[b], uses[b] = 0.0, 0.0
        if n <= 0:
            continue
        live = _live(rest[b], table[b], n)
        grid, nodes = _grid(live, table[b]), (n + 1) * t
        score, target, taken = np.zeros(nodes), np.zeros(nodes), np.empty(nodes)
        scored, size = 0.0, 0.0
        for i in range(n):
            for c in range(t):
                if live[i, c]:
                    score[i * t + c], target[i * t + c] = rest[b, i, c], gradient[b, i, c]
        for e in range(len(grid.gain)):
            size = max(size, abs(grid.gain[e]) if grid.gain[e] > NONE else 0.0)
        for k in range(nodes):
            scored = max(scored, abs(score[k]))
        tied = max(_TIED * min(1.0, size), _ROUNDING * max(1.0, scored, size)) if size > 0.0 else _TIED
        still, flow = Grid(grid.part, np.zeros(len(grid.gain)), grid.layers, t), np.zeros(len(grid.gain))
        _tangent(grid, still, score, target, tied, np.zeros(nodes), flow, taken)
        flows = over_edges(grid, flow)
        for i in range(1, n):
            for a in range(t):
                for c in range(t):
                    uses[b, a, c] += flows[i, a, c]
        for i in range(n):
            for c in range(t):
                product[b, i, c] = taken[i * t + c]
        for c in range(t):
            uses[b, t, c], uses[b, t + 1, c] = product[b, 0, c], product[b, n - 1, c]
    return -1

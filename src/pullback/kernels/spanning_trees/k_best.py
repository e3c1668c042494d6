"""The k best spanning trees or forests, by splitting the set of those not yet listed.

In a matroid the best basis that avoids an edge e of the best basis T is T − e + f, f the best edge that makes a forest
again.  The forests not yet listed are kept as disjoint sets, each standing for its best: those that contain its
first `fixed` edges and none of its `banned` ones.  To list a forest is to split its set by the first of its other edges
that they lack (Lawler, 1972; Gabow, 1977).
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.spanning_trees.greedy import keep_best, load, spanning_forest
from pullback.kernels.tools import inner, kernel

_Sets = namedtuple(
    "_Sets",
    [
        "value",  # [set]: the score of its best forest
        "low",  # [set, place]: the edges of that forest, each by its lower node
        "high",  # [set, place]: and its higher node
        "fixed",  # [set]: how many of them all its forests have
        "banned",  # [set, place]: the edges none of them has, as low · N + high
        "bans",  # [set]: how many these are
    ],
)


@inner
def _sets(count, size):
    return _Sets(
        np.empty(count),
        np.empty((count, size), np.int64),
        np.empty((count, size), np.int64),
        np.empty(count, np.int64),
        np.empty((count, count), np.int64),
        np.empty(count, np.int64),
    )


@inner
def _copy(source, one, target, other):
    """Makes set `other` of `target` the set `one` of `source`."""
    target.value[other], target.fixed[other], target.bans[other] = (
        source.value[one],
        source.fixed[one],
        source.bans[one],
    )
    for e in range(source.low.shape[1]):
        target.low[other, e], target.high[other, e] = source.low[one, e], source.high[one, e]
    for i in range(source.bans[one]):
        target.banned[other, i] = source.banned[one, i]


@inner
def _label_without(low, high, edges, place, n, label):
    """Labels the nodes by the tree they are in when the edge at `place` is taken out."""
    for v in range(n):
        label[v] = v
    for e in range(edges):
        if e != place:
            a, b = low[e], high[e]
            while label[a] != a:
                label[a] = label[label[a]]
                a = label[a]
            while label[b] != b:
                label[b] = label[label[b]]
                b = label[b]
            label[max(a, b)] = min(a, b)
    for v in range(n):  # a label is never above its node, so those before v are final
        label[v] = label[label[v]]


@inner
def _replacement(score, n, label):
    """The best edge between nodes of different labels, (0, 0) if there is none."""
    best, low, high = -np.inf, 0, 0
    for i in range(n):
        for j in range(i + 1, n):
            if score[i, j] > best and label[i] != label[j]:
                best, low, high = score[i, j], i, j
    return low, high


@inner
def _total(score, low, high, edges):
    total = 0.0
    for e in range(edges):
        total += score[low[e], high[e]]
    return total


@inner
def _split(score, n, edges, given, k, pool, size, label):
    """Splits the set that `given` holds, without its best, into the pool of at most k sets; returns its new size."""
    low, high = given.low[0], given.high[0]
    last = given.bans[0]
    given.bans[0] += 1
    for i in range(last):
        code = given.banned[0, i]
        score[code // len(score), code % len(score)] = -np.inf
    for place in range(given.fixed[0], edges):
        i, j = low[place], high[place]
        _label_without(low, high, edges, place, n, label)
        removed = score[i, j]
        score[i, j] = -np.inf
        low[place], high[place] = _replacement(score, n, label)
        if high[place] > 0:
            score[i, j] = removed
            given.value[0] = _total(score, low, high, edges)
            given.fixed[0], given.banned[0, last] = place, i * len(score) + j
            target = size if size < k else np.argmin(pool.value[:size])
            if target == size or given.value[0] > pool.value[target]:
                _copy(given, 0, pool, target)
                size = max(size, target + 1)
        score[i, j], low[place], high[place] = removed, i, j
    for i in range(last):  # the lower half still has what was banned
        code = given.banned[0, i]
        score[code // len(score), code % len(score)] = score[code % len(score), code // len(score)]
    return size


@inner
def _begin(n, edges, left, parent, value, pool):
    """Makes the pool one set, of all forests."""
    keep_best(n, edges, left, parent, value)
    pool.value[0] = 0.0
    for e in range(edges):
        v = left[e]
        pool.low[0, e], pool.high[0, e] = min(v, parent[v]), max(v, parent[v])
        pool.value[0] += value[v]
    pool.fixed[0] = pool.bans[0] = 0


@inner
def _write(low, high, edges, vertex):
    for e in range(edges):
        vertex[low[e], high[e]] = vertex[high[e], low[e]] = 1.0


@kernel
def topk(scores, lengths, components, k, vertices, size, lo, hi):
    """The k best forests of each instance, best first, all different: vertices[b, rank] is shaped like scores[b].

    size[b] says how many there are, fewer than k only if there are no more; vertices are zero beyond.  Without edges
    there is one, all zeros.  O(k n³) each.  Otherwise as `argmax`.
    """
    nodes = scores.shape[1]
    score, value = np.empty((nodes, nodes)), np.empty(nodes)
    left, parent, label = np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    pool, given = _sets(k, nodes), _sets(k, nodes)
    for b in range(lo, hi):
        n = lengths[b]
        vertices[b] = 0.0
        edges = max(n, 1) - components
        if not load(scores[b], n, score) or not 0 <= edges <= spanning_forest(score, n, left, parent, value):
            return b
        _begin(n, edges, left, parent, value, pool)
        count, waiting = 0, 1
        while waiting > 0:
            best = np.argmax(pool.value[:waiting])
            _write(pool.low[best], pool.high[best], edges, vertices[b, count])
            count += 1
            if count == k:
                break
            _copy(pool, best, given, 0)
            waiting -= 1
            _copy(pool, waiting, pool, best)
            waiting = _split(score, n, edges, given, k - count, pool, waiting, label)
        size[b] = count
    return -1

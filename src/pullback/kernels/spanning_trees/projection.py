"""SparseMAP for spanning trees and forests: the nearest mixture, by splitting the graph at its dense sets.

    argmin ½ Σ_edges (x − s)²   over   x ≥ 0,   x(T) ≤ |T| − 1 for all sets T of nodes,   x(all edges) = n − k,

x(T) the sum over the edges inside T, k the number of trees of the forest.  These are the bases of a polymatroid, so the
solution can be found by splitting (Fujishige, 1980; Groenevelt, 1991).  Let x = max(s − λ, 0), λ such that the sum is
right.  If no set is dense, x(T) > |T| − 1, this is the solution.  Otherwise the sets of the best partition into
dense sets (`dense_sets`) have x(T) = |T| − 1 in the solution, and it falls apart: inside each set it is the
projection onto the trees of that set, and between them that for the graph in which each set is one node.  No set is
ever taken back, so at most n − 1 final parts, called blocks, are found by less than 2n partitions.

Any other λ splits the graph in the same way, if it does split it and the sum between the sets is not above their number
less k.  Edges with s − λ > 1 are dense by themselves, so where scores are peaked, a λ for which half of the best
forest's edges are of this kind halves the graph at once.

**Backward.**  While the dense sets stay the same, so does the sum over each block, and x = s − λ on its positive edges:
the Jacobian subtracts the mean of each block (`blocks`).
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.spanning_trees import blocks as block
from pullback.kernels.spanning_trees import dense_sets
from pullback.kernels.spanning_trees.greedy import keep_best, load, spanning_forest
from pullback.kernels.tools import inner, kernel

_TOLERANCE = 1e-11  # how much too dense a set may be; far above rounding
_ROUNDING = 1e-14  # relative to the scores

_Edges = namedtuple("_Edges", ["low", "high", "score"])  # each by its lower node and its higher node

# The graphs that are still to be solved.
_Graphs = namedtuple(
    "_Graphs",
    [
        "group",  # [graph, node]: the node of the graph that a node belongs to, −1 if none
        "groups",  # [graph]: how many nodes it has
        "components",  # [graph]: how many trees its forests have
        "first",  # [graph]: where its edges begin
        "last",  # [graph]: where they end
    ],
)


@inner
def _edges(size):
    most = size * (size - 1) // 2
    return _Edges(np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most))


@inner
def _graphs(size):
    return _Graphs(
        np.empty((size, size), np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )


@inner
def _begin(score, n, components, edges, graphs):
    """Lists the edges; the first graph is the whole."""
    count = 0
    for i in range(n):
        graphs.group[0, i] = i
        for j in range(i + 1, n):
            if score[i, j] > -np.inf:
                edges.low[count], edges.high[count], edges.score[count] = i, j, score[i, j]
                count += 1
    graphs.groups[0], graphs.components[0], graphs.first[0], graphs.last[0] = n, components, 0, count


@inner
def _threshold(score, total, kept):
    """λ such that Σ max(s − λ, 0) = total, and how many are above it; Newton's method from below (Michelot, 1986).

    λ comes as two numbers, the largest score and what to add to it: their sum would lose digits of large scores.
    """
    top = -np.inf
    for e in range(len(score)):
        top = max(top, score[e])
    count = 0
    for e in range(len(score)):
        x = score[e] - top
        if x > -total:
            kept[count] = x
            count += 1
    while True:
        rest = 0.0
        for e in range(count):
            rest += kept[e]
        shift = (rest - total) / count
        left = 0
        for e in range(count):
            if kept[e] > shift:
                kept[left] = kept[e]
                left += 1
        if left == count or left == 0:
            return top, shift, count
        count = left


@inner
def _halfway(best, count, parent, value, group, rank, kept):
    """A λ that makes half of `rank` edges dense by themselves, the best forest's largest edges between groups.

    `best` lists their nodes, largest edge first.  Again as two numbers, −∞ the first if there is no such edge.
    """
    found = 0
    for place in range(count):
        if found == rank:
            break
        v = best[place]
        if group[v] >= 0 and group[parent[v]] >= 0 and group[v] != group[parent[v]]:
            kept[found] = value[v]
            found += 1
    return kept[found // 2] if found > 0 else -np.inf, -1.5


@inner
def _weigh(edges, first, last, group, groups, base, shift, weight):
    """weight[a, b] = Σ max(s − λ, 0) over the edges between the groups a and b."""
    for a in range(groups):
        for b in range(groups):
            weight[a, b] = 0.0
    for e in range(first, last):
        x = (edges.score[e] - base) - shift
        if x > 0.0:
            a, b = group[edges.low[e]], group[edges.high[e]]
            weight[a, b] += x
            weight[b, a] = weight[a, b]


@inner
def _between(edges, first, last, group, label, base, shift):
    """Σ max(s − λ, 0) over the edges between sets."""
    total = 0.0
    for e in range(first, last):
        if label[group[edges.low[e]]] != label[group[edges.high[e]]]:
            total += max((edges.score[e] - base) - shift, 0.0)
    return total


@inner
def _relabel(label, groups, place):
    """Numbers the sets of a partition from 0 on."""
    for a in range(groups):
        place[a] = -1
    count = 0
    for a in range(groups):
        if place[label[a]] < 0:
            place[label[a]] = count
            count += 1
    for a in range(groups):
        label[a] = place[label[a]]


@inner
def _sort_edges(edges, spare, first, last, group, label, sets, base, shift, end):
    """Sorts the edges by the set they are inside of, those between sets last; writes where each of these parts ends.

    λ only grows inside of a set, so an edge whose score is below it will be 0 there, and is left out.
    """
    for t in range(sets + 1):
        end[t] = 0
    for turn in range(2):  # count, then move
        for e in range(first, last):
            i, j = edges.low[e], edges.high[e]
            t = label[group[i]]
            if t != label[group[j]]:
                t = sets
            elif edges.score[e] - base <= shift:
                continue
            if turn == 1:
                spare.low[end[t]], spare.high[end[t]], spare.score[end[t]] = i, j, edges.score[e]
            end[t] += 1
        if turn == 0:
            start = first
            for t in range(sets + 1):
                start, end[t] = start + end[t], start
    for e in range(first, end[sets]):
        edges.low[e], edges.high[e], edges.score[e] = spare.low[e], spare.high[e], spare.score[e]


@inner
def _split(graphs, top, n, group, groups, components, label, sets, first, end, place):
    """Puts the graph inside of each set on the stack, and the one whose nodes are the sets; returns its new height."""
    for t in range(sets):
        count = 0
        for a in range(groups):
            if label[a] == t:
                place[a] = count
                count += 1
        if count > 1:
            for i in range(n):
                inside = group[i] >= 0 and label[group[i]] == t
                graphs.group[top, i] = place[group[i]] if inside else -1
            graphs.groups[top], graphs.components[top] = count, 1
            graphs.first[top], graphs.last[top] = end[t - 1] if t > 0 else first, end[t]
            top += 1
    if sets > components:
        for i in range(n):
            graphs.group[top, i] = label[group[i]] if group[i] >= 0 else -1
        graphs.groups[top], graphs.components[top] = sets, components
        graphs.first[top], graphs.last[top] = end[sets - 1], end[sets]
        top += 1
    return top


@inner
def _partition(edges, first, last, group, groups, components, trial, tolerance, work, weight, label, kept):
    """The partition of a graph into dense sets at a λ that suits it: (number of sets, λ as two numbers).

    `trial` is a λ to begin with where scores are peaked: where it is above that of the whole graph, or too few edges
    are above the latter to span the graph.  There are as many sets as groups only if the graph needs no splitting.
    """
    rank = groups - components
    top, final, above = _threshold(edges.score[first:last], np.float64(rank), kept)
    base, shift = trial
    if base > -np.inf and (base + shift > top + final or above < rank):
        _weigh(edges, first, last, group, groups, base, shift, weight)
        sets = dense_sets.partition(weight, groups, tolerance, work, label)
        if 1 < sets < groups and _between(edges, first, last, group, label, base, shift) <= sets - components:
            return sets, base, shift
    _weigh(edges, first, last, group, groups, top, final, weight)
    sets = dense_sets.partition(weight, groups, tolerance, work, label)
    return sets if sets > 1 else groups, top, final  # all in one set is rounding: the whole graph is never dense


@inner
def _project(n, best, count, parent, value, graphs, edges, spare, room, work, weight, point, blocks):
    """Solves the graphs on the stack, which holds the whole; `best` lists the `count` edges of its best forest."""
    group, label, place, end, kept = room
    tolerance = _TOLERANCE + _ROUNDING * max(abs(value[best[0]]), abs(value[best[count - 1]]))
    height, number = 1, 1
    while height > 0:
        height -= 1
        groups, components = graphs.groups[height], graphs.components[height]
        first, last = graphs.first[height], graphs.last[height]
        for i in range(n):
            group[i] = graphs.group[height, i]
        trial = _halfway(best, count, parent, value, group, groups - components, kept)
        sets, base, shift = _partition(
            edges, first, last, group, groups, components, trial, tolerance, work, weight, label, kept
        )
        if sets < groups:
            _relabel(label, groups, place)
            _sort_edges(edges, spare, first, last, group, label, sets, base, shift, end)
            height = _split(graphs, height, n, group, groups, components, label, sets, first, end, place)
        else:
            _weigh(edges, first, last, group, groups, base, shift, weight)
            number = block.write(
                edges, first, last, group, groups, components, base, shift, weight, work, number, point, blocks
            )


@kernel
def project(scores, lengths, components, point, blocks, lo, hi):
    """The nearest mixture of spanning forests with the given number of components of each instance, and its blocks.

    scores (batch, N, N): only those above the diagonal are read, −∞ where there is no edge.  lengths (batch,): the
    number of nodes, at most N.  point (batch, N, N): the same in both halves.  blocks (batch, N, N), int32: the number
    of the block that an edge belongs to, 0 where the point is 0.
    Returns the first instance without such a forest or with a score of NaN or +∞, or −1.
    """
    size = scores.shape[1]
    score, value, weight = np.empty((size, size)), np.empty(size), np.empty((size, size))
    best, parent = np.empty(size, np.int64), np.empty(size, np.int64)
    graphs, edges, spare, work = _graphs(size), _edges(size), _edges(size), dense_sets.workspace(size)
    room = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size + 1, np.int64),
        np.empty(size + len(edges.score)),
    )
    for b in range(lo, hi):
        n = lengths[b]
        point[b] = 0.0
        blocks[b] = 0
        rank = max(n, 1) - components
        if not load(scores[b], n, score) or not 0 <= rank <= spanning_forest(score, n, best, parent, value):
            return b
        if rank > 0:
            count = keep_best(n, n, best, parent, value)
            _begin(score, n, components, edges, graphs)
            _project(n, best, count, parent, value, graphs, edges, spare, room, work, weight, point[b], blocks[b])
    return -1

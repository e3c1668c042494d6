"""SparseMAP for spanning trees and forests: the nearest mixture, by splitting the graph at its dense sets.

    argmin ½ Σ_edges (x − s)²   over   x ≥ 0,   x(T) ≤ |T| − 1 for all sets T of nodes,   x(all edges) = n − k,

x(T) the sum over the edges inside T, k the number of trees of the forest.  These are the bases of a polymatroid, so the
solution can be found by splitting (Fujishige, 1980; Groenevelt, 1991).  Let x = max(s − λ, 0), λ such that the sum is
right.  If no set is dense, x(T) > |T| − 1, this is the solution.  Otherwise the sets of the best partition into
dense sets (`dense_sets`) have x(T) = |T| − 1 in the solution, and it falls apart: inside each set it is the
projection onto the trees of that set, and between them that for the graph in which each set is one node.  No set is
ever taken back, so at most n − 1 final parts, called blocks, are found by less than 2n partitions.

The same holds for any larger λ.  Edges with s − λ ≥ 1 are dense by themselves, so with peaked scores a λ for which half
of a maximum spanning tree is of this kind halves the graph at once.

**Backward.**  While the dense sets stay the same, so does the sum over each block, and x = s − λ on its positive edges: the
Jacobian subtracts the mean of each block.  Where the positive edges of a block form several parts that meet in single
nodes, each part has a sum of its own, and is a block of its own.
"""

import numpy as np

from pullback.kernels.spanning_trees import dense_sets
from pullback.kernels.spanning_trees.greedy import load, spanning_forest
from pullback.kernels.tools import inner, kernel

_TOLERANCE = 1e-11  # how much too dense a set may be: far above rounding, which grows with the scores


@inner
def _list_edges(score, nodes, count, group, low, high):
    """Lists the edges between different groups; returns their number."""
    edges = 0
    for p in range(count):
        i = nodes[p]
        for q in range(p + 1, count):
            j = nodes[q]
            if group[i] != group[j] and score[i, j] > -np.inf:
                low[edges], high[edges] = i, j
                edges += 1
    return edges


@inner
def _threshold(score, low, high, edges, total, kept):
    """λ such that Σ max(s − λ, 0) = total, over the edges listed; by Newton's method from below (Michelot, 1986)."""
    top = -np.inf
    for e in range(edges):
        top = max(top, score[low[e], high[e]])
    count = 0
    for e in range(edges):
        x = score[low[e], high[e]] - top
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
            return top + shift
        count = left


@inner
def _weigh(score, low, high, edges, group, groups, shift, weight):
    """weight[a, b] = Σ max(s − λ, 0) over the edges between the groups a and b."""
    for a in range(groups):
        for b in range(groups):
            weight[a, b] = 0.0
    for e in range(edges):
        x = score[low[e], high[e]] - shift
        if x > 0.0:
            a, b = group[low[e]], group[high[e]]
            weight[a, b] += x
            weight[b, a] = weight[a, b]


@inner
def _find(parent, a):
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    return a


@inner
def _span(weight, groups, parent, depth, queue):
    """Trees over the edges with weight, breadth first: parents, −1 at the roots, and depths; returns how many trees."""
    trees = 0
    for a in range(groups):
        depth[a] = -1
    for start in range(groups):
        if depth[start] >= 0:
            continue
        trees += 1
        parent[start], depth[start] = -1, 0
        queue[0], head, tail = start, 0, 1
        while head < tail:
            a = queue[head]
            head += 1
            for b in range(groups):
                if depth[b] < 0 and weight[a, b] > 0.0:
                    parent[b], depth[b] = a, depth[a] + 1
                    queue[tail] = b
                    tail += 1
    return trees


@inner
def _join_cycles(weight, groups, parent, depth, part):
    """part[a] becomes a name of the part that holds the edge from a to its parent.

    Parts meet in single nodes: the edges of any cycle are in the same one.  Of the tree edges that are known to be in
    one part, part[a] leads to one that is nearest to the root, so the next edge to look at starts at its parent.
    """
    for a in range(groups):
        part[a] = a
    for i in range(groups):
        for j in range(i + 1, groups):
            if weight[i, j] > 0.0 and parent[i] != j and parent[j] != i:
                a, b, last = i, j, -1
                while a != b:
                    if depth[a] < depth[b]:
                        a, b = b, a
                    top = _find(part, a)
                    if last >= 0 and top != last:
                        if depth[top] > depth[last]:
                            part[top] = last
                        else:
                            part[last] = top
                            last = top
                    else:
                        last = top
                    a = parent[top]


@inner
def _finish(score, low, high, edges, group, groups, components, shift, weight, work, number, point, blocks):
    """Writes x = max(s − λ, 0) and the blocks of its positive edges, counted from `number` + 1; returns the last."""
    parent, depth, queue, part, name = work.queue, work.level, work.arc, work.order, work.path
    parts_are_tight = _span(weight, groups, parent, depth, queue) == components
    if parts_are_tight:
        _join_cycles(weight, groups, parent, depth, part)
    for a in range(groups):
        name[a] = 0
    first = number + 1
    for e in range(edges):
        i, j = low[e], high[e]
        x = score[i, j] - shift
        if x > 0.0:
            block = first
            if parts_are_tight:
                a, b = group[i], group[j]
                top = _find(part, a if depth[a] > depth[b] else b)
                if name[top] == 0:
                    number += 1
                    name[top] = number
                block = name[top]
            number = max(number, block)
            point[i, j] = point[j, i] = x
            blocks[i, j] = blocks[j, i] = block
    return number


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
def _push(pending, trees, top, n, chosen, group, groups, components):
    """Puts a graph on the stack: groups of the chosen nodes."""
    for i in range(n):
        pending[top, i] = group[i] if chosen[i] else -1
    trees[top, 0], trees[top, 1] = groups, components
    return top + 1


@inner
def _project(score, n, components, rounding, room, point, blocks):
    """Writes the projection of one instance and its blocks."""
    pending, trees, low, high, kept, weight, work, label, nodes, group, inside, place = room
    for i in range(n):
        pending[0, i] = i
    trees[0, 0], trees[0, 1] = n, components
    top, number = 1, 0
    while top > 0:
        top -= 1
        groups, forest = trees[top, 0], trees[top, 1]
        count = 0
        for i in range(n):
            group[i] = pending[top, i]
            if group[i] >= 0:
                nodes[count] = i
                count += 1
        edges = _list_edges(score, nodes, count, group, low, high)
        shift = _threshold(score, low, high, edges, np.float64(groups - forest), kept)
        _weigh(score, low, high, edges, group, groups, shift, weight)
        sets = dense_sets.partition(weight, groups, _TOLERANCE + rounding, work, label)
        if sets == groups or sets == 1:
            _weigh(score, low, high, edges, group, groups, shift, weight)
            number = _finish(
                score, low, high, edges, group, groups, forest, shift, weight, work, number, point, blocks
            )
            continue
        _relabel(label, groups, place)
        top = _split(n, groups, forest, sets, pending, trees, top, group, label, nodes, count, inside, place)


@inner
def _split(n, groups, forest, sets, pending, trees, top, group, label, nodes, count, inside, place):
    """Puts the graph inside each set on the stack, and the one whose nodes are the sets."""
    for t in range(sets):
        members = 0
        for a in range(groups):
            if label[a] == t:
                place[a] = members
                members += 1
        if members > 1:
            for i in range(n):
                a = group[i]
                pending[top, i] = place[a] if a >= 0 and label[a] == t else -1
            trees[top, 0], trees[top, 1] = members, 1
            top += 1
    if sets > forest:
        for i in range(n):
            pending[top, i] = label[group[i]] if group[i] >= 0 else -1
        trees[top, 0], trees[top, 1] = sets, forest
        top += 1
    return top


@kernel
def project(scores, lengths, components, point, blocks, lo, hi):
    """The nearest mixture of spanning forests with the given number of components of each instance, and its blocks.

    scores (batch, N, N): only those above the diagonal are read, −∞ where there is no edge.  lengths (batch,): the
    number of nodes, at most N.  point (batch, N, N): the same in both halves.  blocks (batch, N, N), int32: the number
    of the block that an edge belongs to, 0 where the point is 0.
    Returns the first instance without such a forest or with a score of NaN or +∞, or −1.
    """
    size = scores.shape[1]
    score, value = np.empty((size, size)), np.empty(size)
    left, parent = np.empty(size, np.int64), np.empty(size, np.int64)
    most = size * (size - 1) // 2
    room = (
        np.empty((size + 1, size), np.int64),
        np.empty((size + 1, 2), np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most),
        np.empty((size, size)),
        dense_sets.workspace(size),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    for b in range(lo, hi):
        n = lengths[b]
        point[b] = 0.0
        blocks[b] = 0
        edges = max(n, 1) - components
        if not load(scores[b], n, score) or not 0 <= edges <= spanning_forest(score, n, left, parent, value):
            return b
        if edges > 0:
            largest = 0.0
            for v in range(n):
                if value[v] > -np.inf:
                    largest = max(largest, abs(value[v]))
            _project(score, n, components, 1e-14 * largest, room, point[b], blocks[b])
    return -1


@kernel
def project_backward(blocks, gradient, product, lo, hi):
    """The Jacobian of `project`, which is symmetric, times `gradient`: less its mean in each block, 0 in block 0.

    Only the upper half of the gradient is read; product (batch, N, N) is the same in both halves.  O(n²) each.
    """
    size = blocks.shape[1]
    total, count = np.empty(size + 1), np.empty(size + 1)
    for b in range(lo, hi):
        total[:] = 0.0
        count[:] = 0.0
        for i in range(size):
            for j in range(i + 1, size):
                if blocks[b, i, j] > 0:
                    total[blocks[b, i, j]] += gradient[b, i, j]
                    count[blocks[b, i, j]] += 1.0
        for i in range(size):
            product[b, i, i] = 0.0
            for j in range(i + 1, size):
                k = blocks[b, i, j]
                x = gradient[b, i, j] - total[k] / count[k] if k > 0 else 0.0
                product[b, i, j] = product[b, j, i] = x
    return -1

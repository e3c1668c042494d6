"""The blocks of a projection: sets of edges whose sum stays the same when the scores change a little.

A block is written when its graph has no dense set.  If x(all edges) = |nodes| − 1, then x(T) = |T| − 1 also holds for
the parts of the graph of positive edges that meet in single nodes only, since their |T| − 1 add up to the same.  So
each such part, a biconnected component, is a block of its own.  Likewise in forests with one tree for each component.
"""

import numpy as np

from pullback.kernels.tools import inner, kernel, root_of


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
                    top = root_of(part, a)
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
def write(edges, first, last, group, groups, components, base, shift, weight, work, number, point, blocks):
    """Writes x = max(s − λ, 0) and the blocks of its positive edges, counted from `number` on; returns the next number.

    λ = base + shift.  weight (groups, groups) holds what x has between the groups, which are the nodes of the graph.
    """
    parent, depth, queue, part, name = work.queue, work.level, work.arc, work.order, work.path
    parts_are_tight = _span(weight, groups, parent, depth, queue) == components
    if parts_are_tight:
        _join_cycles(weight, groups, parent, depth, part)
    for a in range(groups):
        name[a] = 0
    for e in range(first, last):
        x = (edges.score[e] - base) - shift
        if x > 0.0:
            i, j = edges.low[e], edges.high[e]
            top = 0
            if parts_are_tight:
                a, b = group[i], group[j]
                top = root_of(part, a if depth[a] > depth[b] else b)
            if name[top] == 0:
                name[top] = number
                number += 1
            point[i, j] = point[j, i] = x
            blocks[i, j] = blocks[j, i] = name[top]
    return number


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

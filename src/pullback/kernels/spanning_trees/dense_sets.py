"""The sets of nodes that hold more weight than a tree has edges, and the partition into the densest of them.

    maximize  Σ_T (w(T) − |T| + 1)   over partitions of the nodes into sets T,    w(T) the weight of the edges inside T.

Nodes enter one after the other.  Among those that have entered no set is dense, w(T) > |T| − 1; if the new node v makes
sets dense, the densest becomes a single node, and again no set is (the greedy algorithm for Dilworth truncations:
Frank and Tardos, 1988; Barahona, 1992).  That takes one flow per node.

**Flow.**  The weight of every edge is shared out among its two ends; a node may carry 1, except that v carries nothing.
That is possible exactly if no set that contains v is dense (Hakimi, 1965).  So give v's edges to their other ends and
pass on what a node has too much: from a to b at most what a carries of the edge ab.  What is left over nowhere finds
room; the nodes it can reach are full, carry all of the edges among them and to v, and none to other nodes.  With v they
are the densest set, too dense by what is left.

Two kinds of nodes need no flow.  If an edge of v weighs more than 1, its ends are a dense set, and become one node.  If
all edges of v to nodes before it weigh at most 1 together, it cannot make a set dense, and just carries them.  Hence
the order: the node with the least weight to the others enters last, and so on.
"""

from collections import namedtuple

import numpy as np

from pullback.kernels.tools import inner

_NONE = 1e-15  # what is not worth passing on

_Work = namedtuple(
    "_Work",
    [
        "carried",  # [a, b]: how much of the edge ab node a carries
        "total",  # [a]: how much it carries of all its edges
        "present",  # [place]: the nodes that have entered, those of a dense set as one
        "order",  # [place]: the nodes as they enter
        "degree",  # [a]: the weight of its edges
        "level",  # [a]: its distance from a node that carries too much, −1 if there is no way
        "queue",
        "arc",  # [a]: the place in `present` up to which its arcs have been used
        "path",
    ],
)


@inner
def workspace(size):
    return _Work(
        np.empty((size, size)),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size + 1, np.int64),
    )


@inner
def _arrange(weight, n, degree, order):
    """Writes the order in which the nodes enter: last the one with the least weight, before it the next in the rest."""
    for a in range(n):
        order[a] = a
        degree[a] = 0.0
        for b in range(n):
            degree[a] += weight[a, b]
    for last in range(n - 1, 0, -1):
        place = 0
        for c in range(1, last + 1):
            if degree[order[c]] < degree[order[place]]:
                place = c
        node = order[place]
        order[place], order[last] = order[last], node
        for c in range(last):
            degree[order[c]] -= weight[node, order[c]]


@inner
def _levels(carried, total, present, count, level, queue):
    """Distances from the nodes that carry too much, as far as the first with room; False if there is none."""
    tail = 0
    for c in range(count):
        level[present[c]] = -1
        if total[present[c]] > 1.0 + _NONE:
            level[present[c]] = 0
            queue[tail] = present[c]
            tail += 1
    head, found = 0, -1
    while head < tail:
        a = queue[head]
        head += 1
        if level[a] == found:
            return True
        for c in range(count):
            b = present[c]
            if level[b] < 0 and carried[a, b] > _NONE:
                level[b] = level[a] + 1
                queue[tail] = b
                tail += 1
                if total[b] < 1.0 - _NONE:
                    found = level[b]
    return found >= 0


@inner
def _pass_along(carried, total, path, length):
    """Passes what the first node of a path carries too much on to the last, as far as all arcs allow."""
    first, last = path[0], path[length - 1]
    amount = min(total[first] - 1.0, 1.0 - total[last])
    for i in range(length - 1):
        amount = min(amount, carried[path[i], path[i + 1]])
    for i in range(length - 1):
        carried[path[i], path[i + 1]] -= amount
        carried[path[i + 1], path[i]] += amount
    total[first] -= amount
    total[last] += amount


@inner
def _use_levels(carried, total, present, count, level, arc, path, start):
    """Passes on what `start` carries too much, each time one level further, until no way is left (Dinic, 1970)."""
    length = 1
    path[0] = start
    while length > 0 and total[start] > 1.0 + _NONE:
        a = path[length - 1]
        if length > 1 and total[a] < 1.0 - _NONE:
            _pass_along(carried, total, path, length)
            length = 1
            continue
        while arc[a] < count:
            b = present[arc[a]]
            if level[b] == level[a] + 1 and carried[a, b] > _NONE:
                path[length] = b
                length += 1
                break
            arc[a] += 1
        else:
            length -= 1
            if length > 0:
                arc[path[length - 1]] += 1


@inner
def _relieve(carried, total, present, count, level, queue, arc, path):
    """Passes on what nodes carry too much; `level` is −1 where what is left over cannot go.  Returns what is left."""
    while _levels(carried, total, present, count, level, queue):
        for c in range(count):
            arc[present[c]] = 0
        for c in range(count):
            if level[present[c]] == 0:
                _use_levels(carried, total, present, count, level, arc, path, present[c])
    rest = 0.0
    for c in range(count):
        rest += max(total[present[c]] - 1.0, 0.0)
    return rest


@inner
def _absorb(weight, label, n, v, t):
    """Makes t a part of v."""
    for a in range(n):
        if label[a] == t:
            label[a] = v
        weight[v, a] += weight[t, a]
        weight[a, v] = weight[v, a]


@inner
def _absorb_neighbors(weight, carried, total, present, count, v, n, most, label):
    """Makes every node with an edge to v that is dense by itself a part of v; returns how many others are present."""
    c = 0
    while c < count:
        t = present[c]
        if weight[v, t] > most:
            count -= 1
            present[c] = present[count]
            for d in range(count):
                total[present[d]] -= carried[present[d], t]
            _absorb(weight, label, n, v, t)
            c = 0
        else:
            c += 1
    return count


@inner
def _absorb_reached(weight, carried, present, count, level, v, n, label):
    """Makes the nodes that what is left over can reach a part of v; returns how many others are present."""
    left = 0
    for c in range(count):
        t = present[c]
        if level[t] < 0:
            present[left] = t
            left += 1
        else:
            _absorb(weight, label, n, v, t)
    for c in range(left):
        b = present[c]
        carried[v, b] = 0.0  # other nodes carry the edges to a dense set
        carried[b, v] = weight[b, v]
    return left


@inner
def partition(weight, n, tolerance, work, label):
    """Writes the partition of n nodes that holds most, label[a] naming a node of a's set; returns the number of sets.

    weight (n, n), symmetric with zeros on the diagonal, is used up.  Sets that are too dense by less than the tolerance
    do not count.  One flow for each node that enters with more than 1.
    """
    carried, total, present, order, degree, level, queue, arc, path = work
    _arrange(weight, n, degree, order)
    count = 0
    for a in range(n):
        label[a] = a
    for place in range(n):
        v = order[place]
        count = _absorb_neighbors(weight, carried, total, present, count, v, n, 1.0 + tolerance, label)
        new = 0.0
        for c in range(count):
            new += weight[v, present[c]]
        light = new <= 1.0 + tolerance
        for c in range(count):
            b = present[c]
            carried[v, b] = weight[v, b] if light else 0.0
            carried[b, v] = 0.0 if light else weight[v, b]
            total[b] += carried[b, v]
        total[v] = new if light else 0.0
        if not light and _relieve(carried, total, present, count, level, queue, arc, path) > tolerance:
            count = _absorb_reached(weight, carried, present, count, level, v, n, label)
        present[count] = v
        count += 1
    return count

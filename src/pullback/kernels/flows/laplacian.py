"""Laplacian systems of a DAG's active edges: the linear algebra of flows.

    Σ over the active edges at v of (x_v − x_w) = b_v   for every node v,   x_source = 0

with w the other end of the edge.  Only nodes that an active edge touches have an unknown.  They keep their topological
order, in which a chain of layers gives a block-tridiagonal matrix and a lattice a banded one, and are taken in groups
of four: the rows of group g in the upper half end with the columns of group last[g], and elimination fills nothing
behind it as long as `last` never decreases.  The sink, which may have neighbors anywhere, is a border: one more column,
kept apart.

All weights being one, a pivot is the conductance between a node and the source or later nodes: at least about
1 / nodes, or zero, up to rounding, where a component without the source ends.  Its last node is then pinned at 0.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.flows.fours import eliminate_within, multiply, subtract
from pullback.kernels.tools import inner

NONE = 1e-9  # pivots below are zero


class System(NamedTuple):
    """Workspace of a Laplacian system; its unknowns are numbered like the nodes they belong to.

    place   (nodes,)       unknown of a node, −1 if it has none
    node    (nodes,)       node of an unknown
    last    (nodes,)       last group of columns of a group of rows
    base    (nodes,)       the four rows of a group are in `rows` from here on, one behind the other, each from the
                           first column of this group to the last one of the last
    rows    (capacity,)    right-hand side, then solution, and border, both as long as the unknowns in groups; then the
                           matrix
    degree  (nodes,)       active edges at a node
    """

    place: np.ndarray
    node: np.ndarray
    last: np.ndarray
    base: np.ndarray
    rows: np.ndarray
    degree: np.ndarray


@inner
def capacity(graph):
    """The size of `rows` that is enough for any set of active edges."""
    total, end, widest = 0, 0, 0
    for u in range(1, graph.sink):
        for r in range(graph.first[u], graph.first[u + 1]):
            end = max(end, min(graph.head[r] + graph.edge[r + 1] - graph.edge[r], graph.sink) - 1)
        total += max(end - u, 0) + 12  # the rows of a group are as long as that of its last node and seven more
        widest = max(widest, end - u)
    return total + 4 * widest + 2 * graph.sink + 64


@inner
def new_system(nodes, size):
    numbers = np.empty((4, nodes), np.int64)
    return System(numbers[0], numbers[1], numbers[2], numbers[3], np.empty(size), np.empty(nodes))


@inner
def _count_edges(sink, active, degree):
    """degree[v]: the number of active edges at node v."""
    degree[: sink + 1] = 0.0
    for k in range(active.size[0]):
        degree[active.tail[k]] += 1.0
        degree[active.head[k]] += 1.0


@inner
def _lay_out(unknowns, furthest, system):
    """Finds the last columns of every group and a place for its rows; all is zero then."""
    place, node, last, base, rows, _ = system
    groups = (unknowns + 3) // 4
    size, end = 8 * groups, 0
    for g in range(groups):
        for i in range(4 * g, min(4 * g + 4, unknowns)):
            if furthest[node[i]] > 0:
                end = max(end, place[furthest[node[i]]])
        last[g], base[g] = max(end // 4, g), size
        size += 16 * (last[g] - g + 1)
    rows[:size] = 0.0
    return groups


@inner
def assemble(sink, active, system):
    """Writes the Laplacian of the active edges; returns the number of unknowns."""
    place, node, last, base, rows, degree = system
    _count_edges(sink, active, degree)
    unknowns = np.int64(0)  # a literal would be compiled separately
    place[0] = -1
    for v in range(1, sink):
        is_touched = degree[v] > 0.0
        place[v] = unknowns if is_touched else -1
        node[unknowns] = v  # stays only if `unknowns` moves on
        unknowns += is_touched
    groups = _lay_out(unknowns, active.furthest, system)
    for i in range(unknowns):
        rows[_row(i, last, base) + i] = degree[node[i]]
    for k in range(active.size[0]):
        i, v = place[active.tail[k]], active.head[k]
        if i >= 0:
            rows[_row(i, last, base) + place[v] if v < sink else 4 * groups + i] -= 1.0
    return unknowns


@inner
def _row(i, last, base):
    """Where column 0 of row i would be."""
    g = i // 4
    return base[g] + 4 * (i - 4 * g) * (last[g] - g + 1) - 4 * g


@inner
def _inverse(pivot):
    return 1.0 / pivot if pivot > NONE else 0.0


@inner
def solve(sink, unknowns, system, sink_x):
    """Solves the assembled system in place: x, the first of system.rows, and, returned, the value of the sink.

    Both hold the right side before.  Gaussian elimination, four rows at a time; the matrix being positive
    semidefinite, any pivot will do.  The diagonal keeps the inverses of the pivots.
    """
    _, _, last, base, rows, degree = system
    corner = degree[sink]
    groups = (unknowns + 3) // 4
    for g in range(groups):
        i, j = 4 * g, 4 * (groups + g)  # x and border of this group
        first, width = base[g], 4 * (last[g] - g + 1)
        a, b, c, d = _pivot(rows, first, width, i, j)
        p, q, r, s = a * rows[i], b * rows[i + 1], c * rows[i + 2], d * rows[i + 3]
        t, u, v, w = a * rows[j], b * rows[j + 1], c * rows[j + 2], d * rows[j + 3]
        corner -= (t * rows[j] + u * rows[j + 1]) + (v * rows[j + 2] + w * rows[j + 3])
        sink_x -= (t * rows[i] + u * rows[i + 1]) + (v * rows[i + 2] + w * rows[i + 3])
        subtract(rows, first + 4, width, width - 4, i + 4, p, q, r, s, j + 4, t, u, v, w)
        for h in range(g + 1, last[g] + 1):
            step, goal = 4 * (last[h] - h + 1), base[h]
            for k in range(first + 4 * (h - g), first + 4 * (h - g) + 4, 2):
                x, y, z = k + width, k + 2 * width, k + 3 * width
                p, q, r, s = a * rows[k], b * rows[x], c * rows[y], d * rows[z]
                t, u, v, w = a * rows[k + 1], b * rows[x + 1], c * rows[y + 1], d * rows[z + 1]
                begin, length = first + 4 * (h - g), width - 4 * (h - g)
                subtract(rows, begin, width, length, goal, p, q, r, s, goal + step, t, u, v, w)
                goal += 2 * step
    sink_x *= _inverse(corner)
    for g in range(groups - 1, -1, -1):
        i, j = 4 * g, 4 * (groups + g)
        o, width = base[g], 4 * (last[g] - g + 1)
        a, b, c, d = multiply(rows, o + 4, width, width - 4, i + 4)
        p, q, r = o + width, o + 2 * width, o + 3 * width
        w = (rows[i + 3] - d - rows[j + 3] * sink_x) * rows[r + 3]
        v = (rows[i + 2] - c - rows[j + 2] * sink_x - rows[q + 3] * w) * rows[q + 2]
        u = (rows[i + 1] - b - rows[j + 1] * sink_x - rows[p + 2] * v - rows[p + 3] * w) * rows[p + 1]
        t = (rows[i] - a - rows[j] * sink_x - rows[o + 1] * u - rows[o + 2] * v - rows[o + 3] * w) * rows[o]
        rows[i], rows[i + 1], rows[i + 2], rows[i + 3] = t, u, v, w
    return sink_x


@inner
def _pivot(rows, o, width, i, j):
    """Eliminates within a group, x and border included; returns the inverses of its pivots, left on the diagonal."""
    p, q, r = o + width, o + 2 * width, o + 3 * width
    a = _inverse(rows[o])
    e, f, g = a * rows[o + 1], a * rows[o + 2], a * rows[o + 3]
    b1, b2, b3 = rows[p + 1] - e * rows[o + 1], rows[p + 2] - e * rows[o + 2], rows[p + 3] - e * rows[o + 3]
    b = _inverse(b1)
    h, k = b * b2, b * b3
    c2 = rows[q + 2] - f * rows[o + 2] - h * b2
    c3 = rows[q + 3] - f * rows[o + 3] - h * b3
    c = _inverse(c2)
    m = c * c3
    d = _inverse(rows[r + 3] - g * rows[o + 3] - k * b3 - m * c3)
    eliminate_within(rows, o, width, e, f, h, g, k, m)
    for x in (i, j):
        rows[x + 1] -= e * rows[x]
        rows[x + 2] -= f * rows[x] + h * rows[x + 1]
        rows[x + 3] -= g * rows[x] + k * rows[x + 1] + m * rows[x + 2]
    rows[o], rows[p + 1], rows[q + 2], rows[r + 3] = a, b, c, d
    return a, b, c, d

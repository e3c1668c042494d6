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

from pullback.kernels.flows.runs import link
from pullback.kernels.tools import borrowing, inlined, inner, sum_of
from pullback.kernels.tools.rows import add_multiples, eliminate_within, multiply

NONE = 1e-9  # pivots below are zero
DENSE = 0.15  # ends of active edges for each edge; with more, questions would be mispredicted too often


class System(NamedTuple):
    """Workspace of a Laplacian system; its unknowns are numbered like the nodes they belong to.

    place   (nodes,)       unknown of a node; if it has none, that of the last one before, −1 at the beginning
    node    (nodes,)       node of an unknown
    last    (nodes,)       last group of columns of a group of rows
    base    (nodes,)       the four rows of a group are in `rows` from here on, one behind the other, each from the
                           first column of this group to the last one of the last
    rows    (capacity,)    right-hand side, then solution, and border, both as long as the unknowns in groups; then the
                           matrix
    scaled  (widest,)      four rows of it
    degree  (nodes,)       active edges at a node
    furthest (nodes,)      a node behind which no active edge from this one leads, unless to the sink
    """

    place: np.ndarray
    node: np.ndarray
    last: np.ndarray
    base: np.ndarray
    rows: np.ndarray
    scaled: np.ndarray
    degree: np.ndarray
    furthest: np.ndarray


@inner
def capacity(graph):
    """The sizes of `rows` and `scaled` that are enough for any set of active edges."""
    total, end, widest = 0, 0, 0
    for u in range(1, graph.sink):
        for r in range(graph.first[u], graph.first[u + 1]):
            end = max(end, min(graph.head[r] + graph.edge[r + 1] - graph.edge[r], graph.sink) - 1)
        total += max(end - u, 0) + 12  # the rows of a group are as long as that of its last node and seven more
        widest = max(widest, end - u)
    return total + 4 * widest + 2 * graph.sink + 64, 4 * widest + 64


@inner
def new_system(nodes, graph):
    size, widest = capacity(graph)
    place, node, last, base, furthest = [np.empty(nodes, np.int64) for _ in range(5)]
    return System(place, node, last, base, np.empty(size), np.empty(widest), np.empty(nodes), furthest)


@inlined
def _lay_out(unknowns, system):
    """Finds the last columns of every group and a place for its rows; all is zero then."""
    place, node, last, base, rows, _, _, furthest = system
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


@borrowing
def assemble(graph, value, least, system):
    """Writes the Laplacian of the edges whose value is above `least`; returns the number of unknowns.

    The system holds their `tally`.
    """
    place, node, last, base, rows, _, degree, _ = system
    first, head, edge, _, sink = graph
    unknowns = np.int64(0)  # a literal would be compiled separately
    for v in range(1, sink):
        node[unknowns] = v  # stays only if `unknowns` moves on
        unknowns += degree[v] > 0.0
        place[v] = unknowns - 1
    is_dense = np.int64(sum_of(degree, sink) > DENSE * edge[first[sink]])
    groups = _lay_out(unknowns, system)
    for i in range(unknowns):
        u = node[i]
        row = _row(i, last, base)
        rows[row + i] = degree[u]
        for r in range(first[u], first[u + 1]):
            length = edge[r + 1] - edge[r]
            if head[r] + length <= sink:
                link(value, edge[r], least, place, head[r], length, rows, row, is_dense)
            else:
                for e in range(edge[r], edge[r + 1]):
                    v = head[r] + e - edge[r]
                    rows[row + place[v] if v < sink else 4 * groups + i] -= 1.0 if value[e] > least else 0.0
    return unknowns


@inlined
def _row(i, last, base):
    """Where column 0 of row i would be."""
    g = i // 4
    return base[g] + 4 * (i - 4 * g) * (last[g] - g + 1) - 4 * g


@inlined
def _inverse(pivot):
    return 1.0 / pivot if pivot > NONE else 0.0


@borrowing
def solve(sink, unknowns, system, sink_x):
    """Solves the assembled system in place: x, the first of system.rows, and, returned, the value of the sink.

    Both hold the right side before.  Gaussian elimination, four rows at a time; the matrix being positive
    semidefinite, any pivot will do.  The diagonal keeps the inverses of the pivots.
    """
    _, _, last, base, rows, scaled, degree, _ = system
    corner = degree[sink]
    groups = (unknowns + 3) // 4
    for g in range(groups):
        i, j = 4 * g, 4 * (groups + g)  # x and border of this group
        first, width = base[g], 4 * (last[g] - g + 1)
        a, b, c, d, e, f, h, k, m, o = _pivot(rows, first, width, i, j)
        p, q, r, s = a * rows[i], b * rows[i + 1], c * rows[i + 2], d * rows[i + 3]
        t, u, v, w = a * rows[j], b * rows[j + 1], c * rows[j + 2], d * rows[j + 3]
        corner -= (t * rows[j] + u * rows[j + 1]) + (v * rows[j + 2] + w * rows[j + 3])
        sink_x -= (t * rows[i] + u * rows[i + 1]) + (v * rows[i + 2] + w * rows[i + 3])
        eliminate_within(rows, first, width, e, f, h, k, m, o, a, b, c, d, scaled, i, p, q, r, s, j, t, u, v, w)
        rows[first], rows[first + width + 1], rows[first + 2 * width + 2], rows[first + 3 * width + 3] = a, b, c, d
        for y in range(g + 1, last[g] + 1):
            shift = 4 * (y - g)
            add_multiples(rows, first + shift, width, width - shift, scaled, shift, base[y], 4 * (last[y] - y + 1))
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


@inlined
def _pivot(rows, o, width, i, j):
    """The inverses of a group's pivots, and the factors that eliminate within it; x and border are done.

    The factors are of rows (0, 1), (0, 2), (1, 2), (0, 3), (1, 3) and (2, 3).
    """
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
    for x in (i, j):
        rows[x + 1] -= e * rows[x]
        rows[x + 2] -= f * rows[x] + h * rows[x + 1]
        rows[x + 3] -= g * rows[x] + k * rows[x + 1] + m * rows[x + 2]
    return a, b, c, d, e, f, h, g, k, m

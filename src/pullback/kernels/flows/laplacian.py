"""Laplacian systems of a DAG's active edges: the linear algebra of flows.

    Σ over the active edges at v of (x_v − x_w) = b_v   for every node v,   x_source = 0

with w the other end of the edge.  Only nodes that an active edge touches have an unknown.  They keep their topological
order, in which a chain of layers gives a block-tridiagonal matrix and a lattice a banded one: row i of the upper half
ends at column last[i], and elimination fills nothing behind it as long as `last` never decreases.  The sink, which
may have neighbors anywhere, is a border: one more column, kept apart.

All weights being one, a pivot is the conductance between a node and the source or later nodes: at least about
1 / nodes, or zero, up to rounding, where a component without the source ends.  Its last node is then pinned at 0.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels.tools import inner

NONE = 1e-9  # pivots below are zero
_FOUR = ir.VectorType(ir.DoubleType(), 4)


class System(NamedTuple):
    """Workspace of a Laplacian system; its unknowns are numbered like the nodes they belong to.

    place   (nodes,)       unknown of a node, −1 if it has none
    node    (nodes,)       node of an unknown
    last    (nodes,)       last column of a row; rows 2 i and 2 i + 1 agree
    base    (nodes,)       entry (i, j) of the upper half is rows[base[i] + j]; three zeros follow each row, so that
                           loops over a row may go in steps of four
    rows    (capacity,)    see `capacity`
    degree  (nodes,)       active edges at a node
    border  (nodes,)       the column of the sink
    x       (nodes + 2,)   right-hand side, then solution
    """

    place: np.ndarray
    node: np.ndarray
    last: np.ndarray
    base: np.ndarray
    rows: np.ndarray
    degree: np.ndarray
    border: np.ndarray
    x: np.ndarray


@inner
def capacity(graph):
    """The size of `rows` that is enough for any set of active edges."""
    total, end = 8, 0
    for u in range(1, graph.sink):
        end = max(end, u + 1)
        for r in range(graph.first[u], graph.first[u + 1]):
            if graph.head[r] < graph.sink:
                end = max(end, min(graph.head[r] + graph.length[r], graph.sink) - 1)
        total += end - u + 5
    return total


@inner
def new_system(nodes, size):
    numbers = np.empty((4, nodes), np.int64)
    return System(
        numbers[0],
        numbers[1],
        numbers[2],
        numbers[3],
        np.empty(size),
        np.empty(nodes),
        np.empty(nodes),
        np.empty(nodes + 2),
    )


@inner
def _count_edges(sink, active, degree):
    """degree[v]: the number of active edges at node v."""
    begin, head, _ = active
    degree[: sink + 1] = 0.0
    for u in range(sink):
        degree[u] += begin[u + 1] - begin[u]
        for k in range(begin[u], begin[u + 1]):
            degree[head[k]] += 1.0


@inner
def _lay_out(sink, active, unknowns, system):
    """Finds the last column of every row and a place for its entries, all zero."""
    begin, head, _ = active
    size, end = 0, 0
    for i in range(0, unknowns, 2):
        for u in system.node[i : min(i + 2, unknowns)]:
            k = begin[u + 1] - 1
            while k >= begin[u] and head[k] == sink:
                k -= 1
            if k >= begin[u]:
                end = max(end, system.place[head[k]])  # the heads ascend
        end = max(end, i + 1)
        system.last[i] = system.last[i + 1] = end
        system.base[i], system.base[i + 1] = size - i, size + end + 3 - 2 * i
        size += 2 * (end - i) + 7
    system.rows[:size] = 0.0


@inner
def assemble(sink, active, system):
    """Writes the Laplacian of the active edges; returns the number of unknowns."""
    begin, head, _ = active
    place, node, _, base, rows, degree, border, _ = system
    _count_edges(sink, active, degree)
    unknowns = np.int64(0)  # a literal would be compiled separately
    for v in range(1, sink):
        place[v] = -1
        if degree[v] > 0.0:
            place[v], node[unknowns] = unknowns, v
            unknowns += 1
    border[unknowns] = 0.0
    _lay_out(sink, active, unknowns, system)
    for i in range(unknowns):
        u = node[i]
        row = base[i]
        rows[row + i] = degree[u]
        border[i] = 0.0
        for k in range(begin[u], begin[u + 1]):
            if head[k] < sink:
                rows[row + place[head[k]]] -= 1.0
            else:
                border[i] -= 1.0
    return unknowns


@intrinsic
def _subtract(typing, rows, goal, first, a, second, b, length):
    """rows[goal + c] −= a rows[first + c] + b rows[second + c] for c < length, rounded up to a multiple of four."""
    n, x = types.intp, types.float64

    def emit(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        fused = ("contract",)

        def spread(number):
            one = builder.insert_element(ir.Constant(_FOUR, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4))

        def at(start, c):
            return builder.bitcast(builder.gep(data, [builder.add(start, c)]), _FOUR.as_pointer())

        a, b = spread(builder.fneg(args[3])), spread(builder.fneg(args[5]))
        four = ir.Constant(ir.IntType(64), 4)
        with cgutils.for_range_slice(builder, ir.Constant(ir.IntType(64), 0), args[6], four) as (c, _):
            value = builder.load(at(args[1], c), align=8)
            for start, factor in ((args[2], a), (args[4], b)):
                product = builder.fmul(factor, builder.load(at(start, c), align=8), flags=fused)
                value = builder.fadd(value, product, flags=fused)
            builder.store(value, at(args[1], c), align=8)
        return context.get_dummy_value()

    return types.void(rows, n, n, x, n, x, n), emit


@inner
def _dot(rows, first, x, place, length):
    """Σ rows[first + c] x[place + c]; rows holds zeros behind the end."""
    a = b = c = d = 0.0
    for k in range(0, length, 4):
        a += rows[first + k] * x[place + k]
        b += rows[first + k + 1] * x[place + k + 1]
        c += rows[first + k + 2] * x[place + k + 2]
        d += rows[first + k + 3] * x[place + k + 3]
    return (a + b) + (c + d)


@inner
def _inverse(pivot):
    return 1.0 / pivot if pivot > NONE else 0.0


@inner
def solve(sink, unknowns, system, sink_x):
    """Solves the assembled system in place: system.x and, returned, the value of the sink, given as its right side.

    Gaussian elimination, two rows at a time; the matrix being positive semidefinite, any pivot will do.  The diagonal
    keeps the inverses of the pivots.  After an odd number of rows there is one more of zeros.
    """
    _, _, last, base, rows, degree, border, x = system
    corner = degree[sink]
    x[unknowns : unknowns + 4] = 0.0
    for k in range(0, unknowns, 2):
        p, q, end = base[k], base[k + 1], last[k] + 1
        a = _inverse(rows[p + k])
        f = rows[p + k + 1] * a
        _subtract(rows, q + k + 1, p + k + 1, f, p + k + 1, 0.0, end - k - 1)
        border[k + 1] -= f * border[k]
        x[k + 1] -= f * x[k]
        b = _inverse(rows[q + k + 1])
        rows[p + k], rows[q + k + 1] = a, b
        for i in range(k + 2, end):
            f, g = rows[p + i] * a, rows[q + i] * b
            if f != 0.0 or g != 0.0:
                _subtract(rows, base[i] + i, p + i, f, q + i, g, end - i)
                border[i] -= f * border[k] + g * border[k + 1]
                x[i] -= f * x[k] + g * x[k + 1]
        f, g = border[k] * a, border[k + 1] * b
        corner -= f * border[k] + g * border[k + 1]
        sink_x -= f * x[k] + g * x[k + 1]
    sink_x *= _inverse(corner)
    for k in range(unknowns - 1, -1, -1):
        known = _dot(rows, base[k] + k + 1, x, k + 1, last[k] - k) + border[k] * sink_x
        x[k] = (x[k] - known) * rows[base[k] + k]
    return sink_x

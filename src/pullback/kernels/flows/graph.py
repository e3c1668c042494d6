"""Directed acyclic graphs as arrays, their active edges, and which nodes a path from source to sink can visit."""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from pullback.kernels.tools import inner


class Graph(NamedTuple):
    """A DAG whose nodes are in topological order, node 0 the source; all nodes from `sink` on count as one, the sink.

    Edges come in runs, from one tail to neighboring heads, because loops over neighbors are fast: run r has the edges
    edge[r] + k from its tail to the nodes head[r] + k, k < length[r].

    first   (sink + 1,)   runs first[u] … first[u + 1] − 1 leave node u
    head, edge, length    (runs,)
    sink                  a number; several last nodes let edges that arrive at the sink have neighboring heads, too
    """

    first: np.ndarray
    head: np.ndarray
    edge: np.ndarray
    length: np.ndarray
    sink: int


class Active(NamedTuple):
    """A list of edges by tail: places begin[u] … begin[u + 1] − 1 hold those that leave u, with head and number."""

    begin: np.ndarray
    head: np.ndarray
    edge: np.ndarray


@inner
def new_active(nodes, edges):
    return Active(np.empty(nodes + 1, np.int64), np.empty(edges + 1, np.int64), np.empty(edges + 1, np.int64))


# Which of four numbers are chosen, as bits, and their places: first those that are chosen.
_PLACES = [[k for k in range(4) if bits >> k & 1] + [k for k in range(4) if not bits >> k & 1] for bits in range(16)]


@intrinsic
def _append_fours(typing, value, least, first_head, first_edge, length, head, edge, count):
    """`_append_run` for the first `length` edges, a multiple of four, without a branch: four at a time."""
    n = types.int64

    def emit(context, builder, signature, args):
        _, least, first_head, first_edge, length, _, _, count = args
        value, head, edge = (context.make_array(signature.args[k])(context, builder, args[k]).data for k in (0, 5, 6))
        long, numbers, integers = ir.IntType(64), ir.VectorType(ir.DoubleType(), 4), ir.VectorType(ir.IntType(64), 4)
        table = ir.Constant(ir.ArrayType(integers, 16), [ir.Constant(integers, places) for places in _PLACES])
        places = cgutils.global_constant(builder, "places", table)

        def spread(number, kind):
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), 4), [0] * 4))

        def at(array, place, kind):
            return builder.bitcast(builder.gep(array, [place]), kind.as_pointer())

        least = spread(least, numbers)
        total = cgutils.alloca_once_value(builder, count)
        with cgutils.for_range_slice(builder, ir.Constant(long, 0), length, ir.Constant(long, 4)) as (k, _):
            here = builder.load(at(value, builder.add(first_edge, k), numbers), align=8)
            bits = builder.bitcast(builder.fcmp_ordered(">", here, least), ir.IntType(4))
            chosen = builder.load(builder.gep(places, [ir.Constant(long, 0), builder.zext(bits, long)]))
            count = builder.load(total)
            for array, first in ((head, first_head), (edge, first_edge)):
                goal = at(array, count, integers)
                builder.store(builder.add(chosen, spread(builder.add(first, k), integers)), goal, align=8)
            more = builder.zext(builder.ctpop(bits), long)
            builder.store(builder.add(count, more), total)
        return builder.load(total)

    return n(value, types.float64, n, n, n, head, edge, n), emit


@inner
def _append_run(value, least, first_head, first_edge, length, head, edge, count):
    """Appends the edges of one run whose value is above `least`; returns the new number of edges in the list."""
    fours = length // 4 * 4
    count = _append_fours(value, least, first_head, first_edge, fours, head, edge, count)
    for k in range(fours, length):
        head[count], edge[count] = first_head + k, first_edge + k  # stays only if `count` moves on
        count += value[first_edge + k] > least
    return count


@inner
def collect(graph, value, least, active):
    """Lists the edges whose value is above `least`; all last nodes are called `sink` there."""
    begin, head, edge = active
    count = np.int64(0)  # a literal would be compiled separately
    for u in range(graph.sink):
        begin[u] = count
        for r in range(graph.first[u], graph.first[u + 1]):
            h, e, n = graph.head[r], graph.edge[r], graph.length[r]
            count = _append_run(value, least, h, e, n, head, edge, count)
            if h + n > graph.sink:
                for k in range(begin[u], count):
                    head[k] = min(head[k], graph.sink)
    begin[graph.sink] = count


@inner
def mark_core(sink, active, core):
    """Sets core[v] to 2 on the paths of active edges from source to sink; returns (is there one, nodes off them)."""
    begin, head = active.begin, active.head
    core[: sink + 1] = 0
    core[0] = 1
    for u in range(sink):  # 1: reached from the source
        if core[u] == 1:
            for k in range(begin[u], begin[u + 1]):
                core[head[k]] = 1
    if core[sink] == 0:
        return False, sink + 1
    core[sink] = 2
    others = 0
    for u in range(sink - 1, -1, -1):  # 2: leads on to the sink as well
        if core[u] == 1:
            for k in range(begin[u], begin[u + 1]):
                if core[head[k]] == 2:
                    core[u] = 2
                    break
        others += core[u] != 2
    return True, others


@inner
def forbid_dead_ends(scores, graph, reached, leads_on):
    """Gives −∞ to every edge that is on no finite path from source to sink; returns whether there is such a path.

    `reached` and `leads_on`, one number for each node, are workspace.
    """
    first, head, edge, length, sink = graph
    reached[:] = 0
    leads_on[:] = 0
    reached[0] = 1
    leads_on[sink:] = 1
    for u in range(sink):
        if reached[u]:
            for r in range(first[u], first[u + 1]):
                for k in range(length[r]):
                    reached[head[r] + k] |= scores[edge[r] + k] > -np.inf
    for u in range(sink - 1, -1, -1):
        for r in range(first[u], first[u + 1]):
            for k in range(length[r]):
                if not (reached[u] and leads_on[head[r] + k]):
                    scores[edge[r] + k] = -np.inf
                leads_on[u] |= scores[edge[r] + k] > -np.inf
    return leads_on[0] == 1

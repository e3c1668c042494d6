"""SparseMAP over flows, where very many paths mix, and its derivative; no path is listed.

The central path tells which edges are in use; least squares over these give the nearest point to the last digits.
"""

from typing import Any, NamedTuple

import numpy as np

from pullback.kernels.paths.central import Position, central_path_over
from pullback.kernels.tools import compiled, inner

NOTHING = 1e-10  # a mass this small is left from the interior
_SMALL = 1e-11  # a gap, relative to the largest score, and a flow below 0: those of rounding
STIFF = 1e10  # the weight of edges in use, for a flow of 1: the larger, the less of the residual a round leaves
_SLIGHT = 1e-3 * STIFF  # of edges that have no flow yet
_ROUNDS, _EXCHANGES = 8, 8


@inner
def _largest_residual(weight, pull, lack):
    largest = np.abs(lack).max()
    for e in range(len(weight)):
        if weight[e] > 0.0:
            largest = max(largest, abs(pull[e]))
    return largest


@inner
def _subtract(network, score, taken, rest):
    """Writes s − μ of groups, s of those without a coordinate; returns ⟨s − μ, μ⟩, what these score included."""
    along = 0.0
    for g in range(len(taken)):
        rest[g] = score[g] - (taken[g] if network.part[g] >= 0 else 0.0)
        along += rest[g] * taken[g]
    return along


class Face(NamedTuple):
    """The edges in use have a weight above 0; their flow, and the potentials, are those of the nearest point."""

    weight: np.ndarray
    flow: np.ndarray
    potential: np.ndarray


class Interior(NamedTuple):
    """The functions of a kind of network; `interior_over` says what they do."""

    nearest: Any
    search: Any
    exchange: Any
    tangent: Any


def interior_over(name, home, begin, residuals, room_of, couple, solve, take, slacks, worth):
    """The functions of a kind of network, from what can be computed over it.

    begin(network, score)                                      a position in the middle
    residuals(network, score, unit, at, residual, lack)        what is wrong with a position, as in `central`
    room_of(network)                                           room for the system of the potentials
    couple(network, weight, matrix)                            factors it, for weights of edges
    solve(network, weight, pull, wanted, matrix, potential, change)
    take(network, flow, taken)                                 the flow through each group
    slacks(network, score, slack)                              how far the best path through each edge is from the best;
                                                               returns the score of that
    worth(network, flow)                                       what edges score beside their parts
    A network has the `part` of each group, −1 where it has none, and its flow no coordinate.
    """
    follow = central_path_over(name, home, residuals, couple, solve)

    def settle(network, target, unit, weight, matrix, flow, potential):
        """Least squares over the edges that have a weight: the flow of `unit` whose parts are nearest to `target`.

        Each round leaves a small part of what the one before left.  Edges change the less, the smaller their weight is.
        """
        edges, nodes = len(flow), len(potential)
        pull, change, lack, rise = np.empty(edges), np.empty(edges), np.empty(nodes), np.empty(nodes)
        for e in range(edges):
            flow[e] = flow[e] if weight[e] > 0.0 else 0.0
        at, before = Position(flow, np.zeros(edges), potential), np.inf
        couple(network, weight, matrix)
        for _ in range(_ROUNDS):
            residuals(network, target, unit, at, pull, lack)
            largest = _largest_residual(weight, pull, lack)
            if largest < 1e-15 or largest > 0.5 * before:
                break
            before = largest
            solve(network, weight, pull, lack, matrix, rise, change)
            for e in range(edges):
                flow[e] += change[e]
            for v in range(nodes):
                potential[v] += rise[v]

    settle = compiled(settle, f"settle_{name}", home)

    def gap_of(network, score, flow, taken, rest, slack):
        """⟨s − μ, z − μ⟩ for the best path z, worths included; writes s − μ of groups, and slacks of edges."""
        along = _subtract(network, score, taken, rest) + worth(network, flow)
        return slacks(network, rest, slack) - along

    gap_of = compiled(gap_of, f"gap_of_{name}", home)

    def exchange(network, score, unit, matrix, face, taken, rest):
        """Least squares over the edges in use, in rounds that let edges leave and enter; returns the gap.

        Those leave that would get a negative flow, those enter that beat the edges in use; ∞ if that does not end soon.
        unit: of rounding, the largest score, or 1.
        """
        weight, flow, potential = face
        edges = len(flow)
        slack = np.empty(edges)
        for _ in range(_EXCHANGES):
            settle(network, score, 1.0, weight, matrix, flow, potential)
            take(network, flow, taken)
            gap, least = gap_of(network, score, flow, taken, rest, slack), flow.min()
            if least >= -_SMALL and gap <= _SMALL * unit:
                return max(gap, 0.0)
            for e in range(edges):
                if flow[e] < -_SMALL:
                    weight[e] = 0.0
                elif weight[e] == 0.0 and least >= -_SMALL and slack[e] < gap - _SMALL * unit:
                    weight[e] = _SLIGHT
        return np.inf

    exchange = compiled(exchange, f"exchange_{name}", home)

    def mended(network, score, matrix, at, taken, rest):
        """The gap of a position whose flow is mended where rounding lets more arrive at a node than leaves it.

        The less flow an edge has, the less it changes.  Writes μ and s − μ of groups; ∞ if it cannot be mended.
        """
        edges, nodes = len(at.flow), len(at.potential)
        pull, change, slack = np.empty(edges), np.empty(edges), np.empty(edges)
        lack, rise = np.empty(nodes), np.empty(nodes)
        couple(network, at.flow, matrix)
        for _ in range(_ROUNDS):
            residuals(network, score, 1.0, at, pull, lack)
            if np.abs(lack).max() <= 1e-15:
                break
            pull[:] = 0.0
            solve(network, at.flow, pull, lack, matrix, rise, change)
            for e in range(edges):
                at.flow[e] = max(at.flow[e] + change[e], 0.0)
        residuals(network, score, 1.0, at, pull, lack)
        take(network, at.flow, taken)
        gap = max(gap_of(network, score, at.flow, taken, rest, slack), 0.0)
        return gap if np.abs(lack).max() <= _SMALL else np.inf

    mended = compiled(mended, f"mended_{name}", home)

    def search(network, score, unit, goals, enough, matrix, at, face, taken, rest):
        """Finds the face along the central path from `at`, and μ and s − μ of groups; returns the gap, or ∞.

        goals: of Σ f z, after which edges in use are looked at.  enough: the gap of a point on the path itself that
        will do where these are not found, as with many edges that differ by next to nothing; 0 if none will.
        """
        flows = np.empty((len(goals), len(at.flow)))
        for k in range(len(goals)):
            follow(network, score, goals[k], matrix, at)
            flows[k] = at.flow
            for e in range(len(at.flow)):
                face.weight[e] = STIFF * at.flow[e] if at.flow[e] > at.slack[e] else 0.0
            face.flow[:], face.potential[:] = at.flow, at.potential
            gap = exchange(network, score, unit, matrix, face, taken, rest)
            if gap < np.inf:
                return gap
        best, least = 0, np.inf
        for k in range(len(goals) if enough > 0.0 else 0):
            gap = mended(network, score, matrix, Position(flows[k], at.slack, at.potential), taken, rest)
            if gap < least:
                best, least = k, gap
        if least > enough:
            return np.inf
        return mended(network, score, matrix, Position(flows[best], at.slack, at.potential), taken, rest)

    search = compiled(search, f"search_{name}", home)

    def nearest(network, score, unit, goals, enough, taken, rest):
        """Writes μ and s − μ of groups; returns the gap, ∞ if neither the edges in use nor `enough` were found."""
        at = begin(network, score)
        face = Face(np.empty(len(at.flow)), np.empty(len(at.flow)), np.empty(len(at.potential)))
        return search(network, score, unit, goals, enough, room_of(network), at, face, taken, rest)

    def tangent(network, still, rest, target, tied, potential, flow, taken):
        """Projects `target` onto the span of the paths that tie for the best under s − μ: writes it, and a flow.

        still: the network without worths.  tied: by how much an edge may be worse.  potential and flow: zeros; of all
        flows with these parts, `flow` becomes the least.
        """
        slack, weight = np.empty(len(flow)), np.zeros(len(flow))
        slacks(network, rest, slack)
        for e in range(len(flow)):
            if slack[e] <= tied:
                weight[e] = _SLIGHT
        settle(still, target, 0.0, weight, room_of(network), flow, potential)
        take(network, flow, taken)

    return Interior(
        compiled(nearest, f"nearest_{name}", home), search, exchange, compiled(tangent, f"tangent_{name}", home)
    )

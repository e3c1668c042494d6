"""The central path of SparseMAP over flows: from the middle of all paths to the nearest mixture of them.

    minimize  ½ ‖μ − s‖²    where  μ = A f,  f ≥ 0 a flow of one unit

With potentials y of nodes and slacks z of edges, both f and z are ≥ 0 at the optimum, f z = 0, and

    μ[part] − s[part] + y[tail] − y[head] = z

Along the path, f z is the same for all edges; as it falls to 0, steps of Newton's method follow, a dozen or two however
many paths mix.
"""

from typing import NamedTuple

import numpy as np

from pullback.kernels.tools import compiled, fmax, inner, summing

_STEPS = 60
_STAY = 0.995  # how far towards the boundary a step may go
_SHORT = 1e-3  # a step after which none will be long, for rounding has the better of it


class Position(NamedTuple):
    """Flow and slack of edges, the potentials of all nodes but the source, which has 0."""

    flow: np.ndarray
    slack: np.ndarray
    potential: np.ndarray


@inner
def _room(x, change):
    """How many times the change may be added before a number of x is 0; at most 1 / _STAY."""
    fastest = _STAY
    for e in range(len(x)):
        fastest = fmax(-change[e] / x[e] if x[e] > 0.0 else 0.0, fastest)
    return 1.0 / fastest


@summing
def _total_ahead(at, length, change, turn):
    ahead = 0.0
    for e in range(len(change)):
        ahead += (at.flow[e] + length * change[e]) * (at.slack[e] + length * turn[e])
    return ahead


@inner
def _level_ahead(at, total, count, change, turn):
    """The product f z to aim at: the less, the more of it a step straight to 0 would take away."""
    length = min(1.0, _room(at.flow, change), _room(at.slack, turn))
    return (_total_ahead(at, length, change, turn) / total) ** 3 * total / count


@summing
def _weigh(at, residual, weight, pull):
    """Weights f / z, and what pulls at the flow on the way to 0: (Σ f z, number of edges that may have a flow)."""
    total, count = 0.0, 0.0
    for e in range(len(weight)):
        total += at.flow[e] * at.slack[e]
        weight[e] = at.flow[e] / at.slack[e]
        pull[e] = residual[e] - at.slack[e]
        count += 1.0 if at.flow[e] > 0.0 else 0.0
    return total, count


@inner
def _turn(at, weight, change, turn):
    """The change of slacks that goes with that of the flow."""
    for e in range(len(turn)):
        turn[e] = -at.slack[e] - change[e] / weight[e] if weight[e] > 0.0 else 0.0


@inner
def _correct(at, residual, level, change, turn, pull):
    """What pulls once f z shall become `level`, with what the step so far would make of it."""
    for e in range(len(turn)):
        turn[e] = (level - change[e] * turn[e]) / at.flow[e] - at.slack[e] if at.flow[e] > 0.0 else 0.0
        pull[e] = residual[e] + turn[e]


@inner
def _step(at, weight, change, turn, rise):
    """Goes as far as the boundary allows; returns the length."""
    for e in range(len(turn)):
        turn[e] -= change[e] / weight[e] if weight[e] > 0.0 else 0.0
    length = min(1.0, _STAY * min(_room(at.flow, change), _room(at.slack, turn)))
    for e in range(len(turn)):
        at.flow[e] += length * change[e]
        at.slack[e] += length * turn[e]
    for v in range(len(rise)):
        at.potential[v] += length * rise[v]
    return length


def central_path_over(name, home, residuals, couple, solve):
    """The function `follow` over a kind of network, from what `interior_over` is given."""

    def follow(network, score, goal, matrix, at):
        """Follows the path until Σ f z, a bound on the gap, is at most `goal`: Mehrotra's predictor and corrector.

        An edge that may not have a flow has 0 and a slack of 1, and keeps them.
        """
        edges, nodes = len(at.flow), len(at.potential)
        residual, weight, pull = np.empty(edges), np.empty(edges), np.empty(edges)
        change, turn, rise, lack = np.empty(edges), np.empty(edges), np.empty(nodes), np.empty(nodes)
        for _ in range(_STEPS):
            residuals(network, score, 1.0, at, residual, lack)
            total, count = _weigh(at, residual, weight, pull)
            if total <= goal:
                break
            couple(network, weight, matrix)
            solve(network, weight, pull, lack, matrix, rise, change)
            _turn(at, weight, change, turn)
            _correct(at, residual, _level_ahead(at, total, count, change, turn), change, turn, pull)
            solve(network, weight, pull, lack, matrix, rise, change)
            if _step(at, weight, change, turn, rise) < _SHORT:
                break

    return compiled(follow, f"follow_{name}", home)

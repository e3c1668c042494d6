"""SparseMAP over arcs of which all labels score the same, by arcs without labels.

Let every arc a have the same number w of labels, all with the score sₐ.  Then the nearest point shares the mass mₐ of
an arc equally among them, and what is left is a projection over arcs alone:

    Σₐ w (mₐ / w − sₐ)² = 1/w Σₐ (mₐ − w sₐ)²

Vertices with labels would be many times as many, as each shows one label of each arc.  Their face has a dimension for
every label but one of each arc; its span is found by the chart, as for flat scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback.operators._flat import ByChart
from pullback.operators._mixture import GAP_OF_DERIVATIVE
from pullback.operators._mixture_projection import MaybeFlat

Array = NDArray[Any]

_SPANNING = 64  # vertices that the derivative would look for: then the chart is faster


@dataclass(frozen=True, kw_only=True)
class ByChartOrArcs(ByChart):
    """By the chart, but by arcs alone where all labels score the same.

    arcs: the projection over arcs without labels.  capacity: how many of its vertices there is room for, from the
    number of nodes.
    """

    arcs: MaybeFlat
    capacity: Callable[[int], int]

    def are_flat(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array) -> Array:
        flat = super().are_flat(scores, lengths, numbers, point)
        flat |= self.are_long(lengths) & (_equal_labels(scores, lengths) > 1)
        return flat

    def are_tied(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, size: Array) -> Array:
        tied: Array = (size > 0) & (lengths * (_equal_labels(scores, lengths) - 1) >= _SPANNING)
        return tied

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        labels = _equal_labels(scores, lengths)
        solved = labels > 1
        by_arcs, others = np.flatnonzero(solved), np.flatnonzero(~solved)
        if len(by_arcs):
            given = scores[by_arcs], lengths[by_arcs], numbers, labels[by_arcs]
            point[by_arcs], rest[by_arcs] = self._project_arcs(*given)
        if len(others):
            found = tuple(np.empty((len(others), *a.shape[1:]), a.dtype) for a in (point, rest))
            solved[others] = super().project(scores[others], lengths[others], numbers, *found)
            point[others], rest[others] = found
        return solved

    def _project_arcs(
        self, scores: Array, lengths: Array, numbers: Sequence[Any], labels: Array
    ) -> tuple[Array, Array]:
        """The nearest points, and s − μ."""
        count, nodes = scores.shape[:2]
        allowed = _arcs(lengths, nodes)[..., None] & (scores > -np.inf)
        best = scores.max(-1, where=allowed, initial=-np.inf).astype(np.float64)
        into = best.max(1, keepdims=True)
        best -= np.where(into > -np.inf, into, 0.0)
        share = 1.0 / labels[:, None, None]
        mass, rest = np.zeros((2, *best.shape))
        vertices, size = np.empty((count, self.capacity(nodes), nodes), np.int32), np.empty(count, np.int64)
        found = (mass, vertices, size, rest, 0, count)
        # its report is not needed: the search with labels has refused what has no tree
        self.arcs.project(best / share, lengths, *numbers, GAP_OF_DERIVATIVE, *found)
        mass *= share
        point = np.where(allowed, mass[..., None], 0.0)
        return point, np.where(allowed, (best - mass)[..., None], -np.inf)


def _arcs(lengths: Array, nodes: int) -> Array:
    """Where arcs are: (batch, head, modifier)."""
    node = np.arange(nodes)
    real = node <= lengths[:, None]
    arcs: Array = real[:, :, None] & (real & (node > 0))[:, None, :] & (node[:, None] != node)
    return arcs


def _equal_labels(scores: Array, lengths: Array) -> Array:
    """How many labels every arc has, if they score the same and are as many for all arcs; 0 otherwise.

    An arc may also have none.
    """
    found = np.zeros(len(scores), np.int64)
    first = scores[:, 0, 1]  # tells nearly all that differ
    some = np.flatnonzero((first == first.max(-1, keepdims=True)).sum(-1) > 1)
    if len(some):
        given = scores[some]
        allowed = _arcs(lengths[some], scores.shape[1])[..., None] & (given > -np.inf)
        best = given.max(-1, where=allowed, initial=-np.inf)
        count = allowed.sum(-1)
        most = count.max((1, 2))
        are_as_many = ((count == 0) | (count == most[:, None, None])).all((1, 2))
        are_equal = (~allowed | (given == best[..., None])).all((1, 2, 3))
        found[some] = np.where(are_as_many & are_equal, most, 0)
    return found

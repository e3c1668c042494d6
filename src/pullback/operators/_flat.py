"""SparseMAP over flat scores, where a structure has a chart: without listing the thousands of vertices that mix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels

Array = NDArray[Any]

ROUNDS = 64  # of the active-set method, after which it shows whether scores are flat
_GAP = 1e-9

PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS = 0, 1, 2  # as in kernels.charts, which is not loaded before it is needed


@dataclass(frozen=True)
class Flat:
    """When an example counts as flat, and which chart it has then.

    chart: its number in `kernels.charts`, from what the structure's operators take beside scores and lengths.
    least: the fewest words.
    parts: how many per word are in use after `ROUNDS` vertices at least; with flat scores every one of them brings new
    parts, and hundreds or thousands will mix.
    complete: writes the parts that every vertex has and the chart leaves out, complete(point, lengths).
    """

    chart: Callable[..., int]
    least: int
    parts: float
    complete: Callable[[Array, Array], None] = lambda point, lengths: None

    def is_possible(self, lengths: Array) -> bool:
        return int(lengths.max(initial=0)) >= self.least

    def are_flat(self, lengths: Array, point: Array) -> Array:
        """Whether the examples are flat, given the point after `ROUNDS` rounds."""
        used = np.count_nonzero(point.reshape(len(point), -1), axis=1)
        flat: Array = (lengths >= self.least) & (used >= self.parts * lengths)
        return flat

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        """Writes the nearest points, and s − μ in double precision; tells where that succeeded."""
        nearest, gap = np.zeros(scores.shape), np.full(len(scores), np.inf)
        wide = np.ascontiguousarray(scores, np.float64)
        kernels.charts.project(wide, lengths, self.chart(*numbers), _GAP, nearest, rest, gap, 0, len(scores))
        self.complete(nearest, lengths)
        point[:] = nearest
        found: Array = gap < np.inf
        return found

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> Array:
        product = np.zeros(rest.shape)
        wide = np.ascontiguousarray(gradient, np.float64)
        kernels.charts.project_backward(rest, lengths, self.chart(*numbers), wide, product, 0, len(rest))
        return product

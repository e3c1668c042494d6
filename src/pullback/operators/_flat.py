"""SparseMAP over flat scores, without listing the hundreds or thousands of vertices that mix."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels

Array = NDArray[Any]

FAR = 500  # times a tolerance: a gap that vertices would take longer to close than the chart, 64·√500 rounds or so
GAP = 1e-9  # of charts
GAP_OF_INTERIOR = 1e-8  # where edges that are nearly tied are not told apart; 1e-11 else

PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS = 0, 1, 2  # as in kernels.charts, which is not loaded before it is needed


@dataclass(frozen=True, kw_only=True)
class Flat(ABC):
    """When an example counts as flat, and how it is projected then.

    least: the fewest words, or rows or columns.
    rounds: of the active-set method, after which it shows whether scores are flat.
    parts: how many are in use by then at least, relative to the `extent` of the example; with flat scores every vertex
    brings new parts, and hundreds or thousands will mix.  ∞: parts in use tell nothing.
    """

    least: int
    parts: float
    rounds: int = 64

    def are_long(self, lengths: Array) -> Array:
        """Whether the examples have enough words for being flat."""
        long: Array = (lengths if lengths.ndim == 1 else lengths.max(-1)) >= self.least
        return long

    def extent(self, lengths: Array, numbers: Sequence[Any]) -> Array:
        """The size of the examples that `parts` is relative to; `numbers` are the structure's own, beside lengths."""
        return lengths

    def are_flat(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array) -> Array:
        """Whether the examples are flat, given the point after so many rounds."""
        used = np.count_nonzero(point.reshape(len(point), -1), axis=1)
        flat: Array = self.are_long(lengths) & (used >= self.parts * self.extent(lengths, numbers))
        return flat

    def patience(self, lengths: Array, event: Sequence[int]) -> Array | None:
        """For each example, the rounds after which it is projected as if it were flat; None if all may go on.

        The parts in use do not tell all examples that are slow: with transitions that are nearly equal few vertices
        mix, but hundreds or thousands are tried.
        """
        return None

    def are_tied(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, size: Array) -> Array:
        """Whether few vertices mix, as many as `size` says, on a face of so many that those would take long to find."""
        return np.zeros(len(size), np.bool_)

    @abstractmethod
    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        """Writes the nearest points, and s − μ in double precision; tells where that succeeded."""

    @abstractmethod
    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        """The Jacobian of `project` times the gradient, and what else vertices have scores from."""


@dataclass(frozen=True, kw_only=True)
class ByChart(Flat):
    """For structures that have a chart.

    chart: its number in `kernels.charts`, from what the structure's operators take beside scores and lengths.
    least_unequal: the fewest words where scores are not exactly equal, for which charts are many times as fast.
    least_parts: how many parts are in use at least, however few words there are.
    complete: writes the parts that every vertex has and the chart leaves out, complete(point, lengths).
    """

    chart: Callable[..., int]
    least_unequal: int = 0
    least_parts: int = 0
    complete: Callable[[Array, Array], None] = lambda point, lengths: None

    def are_flat(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array) -> Array:
        used, axes = point > 0, tuple(range(1, point.ndim))
        highest = scores.max(axes, where=used, initial=-np.inf)
        are_equal = highest == scores.min(axes, where=used, initial=np.inf)
        flat: Array = super().are_flat(scores, lengths, numbers, point) & (are_equal | (lengths >= self.least_unequal))
        flat &= np.count_nonzero(used, axis=axes) >= self.least_parts
        return flat

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        nearest, gap = np.zeros(scores.shape), np.full(len(scores), np.inf)
        given, *found = (_with_labels(array) for array in (scores, nearest, rest))
        kernels.charts.project(given, lengths, self.chart(*numbers), GAP, *found, gap, 0, len(scores))
        self.complete(nearest, lengths)
        point[:] = nearest
        is_found: Array = gap < np.inf
        return is_found

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        product = np.zeros(rest.shape)
        kept, given, found = (_with_labels(array) for array in (rest, gradient, product))
        kernels.charts.project_backward(kept, lengths, self.chart(*numbers), given, found, 0, len(rest))
        return (product,)


def _with_labels(array: Array) -> Array:
    """Numbers of parts (batch, size, size, labels) in double precision, a view if they are.  Without labels, of one."""
    return np.ascontiguousarray(array, np.float64).reshape(*array.shape[:3], -1)

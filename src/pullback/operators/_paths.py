"""What paths, segmentations and alignments share: one folder of kernels, each structure with graphs of its own.

`kernels/paths/graph.py` says what a graph is.  A path's is given with each example; those of segmentations and
alignments follow from the sizes of their scores, and an example's length says at which node its paths end.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels

Array = NDArray[Any]


class PathKernels:
    """The kernels of paths for a structure: read(scores, lengths, its numbers) gives its graphs and their sinks."""

    def __init__(self, read: Callable[..., tuple[Array, Array]]) -> None:
        self.read = read

    def argmax(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, vertex, lo, hi = rest
        return kernels.paths.argmax(flat(scores), *self.read(scores, lengths, *numbers), flat(vertex), lo, hi)

    def max_marginals(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, best, lo, hi = rest
        return kernels.paths.max_marginals(flat(scores), *self.read(scores, lengths, *numbers), flat(best), lo, hi)

    def topk(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, k, vertices, size, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.topk(flat(scores), *graphs, k, flat(vertices, 2), size, lo, hi)

    def log_partition(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, value, lo, hi = rest
        return kernels.paths.log_partition(flat(scores), *self.read(scores, lengths, *numbers), value, lo, hi)

    def partition(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, value, marginals, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.partition(flat(scores), *graphs, value, flat(marginals), lo, hi)

    def hessian_product(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, direction, product, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.hessian_product(flat(scores), *graphs, flat(direction), flat(product), lo, hi)

    def sample(self, scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, seeds, count, drawn, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        return kernels.paths.sample(flat(scores), *graphs, seeds, count, flat(drawn, 2), lo, hi)

    def mixture(self, scores: Array, lengths: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        start, tolerance, max_iterations, point, *found = rest
        graphs, sinks = self.read(scores, lengths, *numbers)
        slots = sinks.max(initial=0) - (graphs[0, 2, graphs[0, 0, -1] - 1] < 0)  # the last edge may have no part
        if start.shape[-1] < slots:
            raise ValueError(f"the start has {start.shape[-1]} slots; expected {slots}, one for each node.")
        limits = (tolerance, max_iterations)
        return kernels.paths.mixture(flat(scores), graphs, sinks, start, *limits, flat(point), *found)

    def mixture_backward(self, scores: Array, lengths: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        vertices, size, gradient, product, lo, hi = rest
        graphs = self.read(scores, lengths, *numbers)
        ends = flat(gradient), flat(product)
        return kernels.paths.mixture_backward(flat(scores), *graphs, vertices, size, *ends, lo, hi)

    def project(self, scores: Array, lengths: Array, point: Array, lo: int, hi: int) -> int:
        return kernels.paths.project(flat(scores), *self.read(scores, lengths), flat(point), lo, hi)

    def project_backward(self, lengths: Array, point: Array, *rest: Any) -> int:
        gradient, product, lo, hi = rest
        given = flat(point), flat(gradient), flat(product)
        return kernels.paths.project_backward(*self.read(point, lengths), *given, lo, hi)


def flat(array: Array, dims: int = 1) -> Array:
    """The array with all dimensions behind the first `dims` in one."""
    return array.reshape(*array.shape[:dims], math.prod(array.shape[dims:]))  # not −1, as there may be no samples


def holds_bad_scores(scores: Array) -> bool:
    """Whether some are NaN or +∞."""
    return bool(np.isnan(scores).any() or (scores == np.inf).any())

"""SparseMAP by the compiled active set, for structures whose vertices take one part per slot.

`mixture_operator` tells which vertices mix, `mixture_projection` gives the point with its derivative.  A vertex is a
list of flat part indices, one for each slot, −1 where a slot is not used.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.operators._flat import ROUNDS, Flat
from pullback.operators._kernel_operator import Work, kernel_operator, projection_operator
from pullback.operators._signature import parse
from pullback.operators._threads import Kernel

Array = NDArray[Any]

GAP_OF_POINT = 1e-10  # leaves a point right to about 1e-11
GAP_OF_DERIVATIVE = 1e-12  # a derivative needs the vertices that the last rounds bring
MAX_ITERATIONS = 10_000


# ---- the vertices that mix


def mixture_operator(
    name: str, inputs: str, kernel: Kernel, *, parts: str, slots: str = "n", **options: Any
) -> Callable[..., tuple[Tensor, ...]]:
    """The nearest mixture of vertices to scores, and how it was found: `name_mixture`.

    Takes the `inputs` of the structure's other operators, `scores[…], lengths[], …`; vertices to start with (rows of
    −1 are ignored); the largest gap and number of rounds, and how many vertices may be written.  Gives the point; the
    vertices with their probabilities and their number, which counts also those that were not written; the gap, the
    number of rounds, and whether the gap is as small as rounding allows.
    """
    return kernel_operator(
        f"{name}_mixture({inputs}, start[k, {slots}]: int32, float tolerance, int max_iterations, int capacity) "
        f"-> point[{parts}], parts[capacity, {slots}]: int32, "
        "probabilities[capacity], size[]: int64, gap[]: float64, iterations[]: int64, converged[]: bool",
        mixture(kernel),
        example={"start": -1, "max_iterations": 100, "capacity": 3},
        **options,
    )


def mixture(kernel: Kernel) -> Kernel:
    """The kernel of a `mixture_operator`, from one that neither clears its outputs nor judges the gap.

    That one takes the structure's own numbers as a tuple.
    """

    def run(scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, start, tolerance, rounds, _, point, parts, probabilities, size, gap, iterations, converged = rest[:-2]
        lo, hi = rest[-2:]
        parts[lo:hi], probabilities[lo:hi], gap[lo:hi] = 0, 0, 0
        found = (point, parts, probabilities, size, gap, iterations)
        report = kernel(scores, lengths, tuple(numbers), start, tolerance, rounds, *found, lo, hi)
        if report == -1:
            converged[lo:hi] = _are_certified(scores[lo:hi], parts[lo:hi], size[lo:hi], gap[lo:hi])
        return report

    return run


def _are_certified(scores: Array, parts: Array, size: Array, gap: Array) -> Array:
    """Whether gaps are as small as rounding allows, given how far apart the scores are that compete for a slot."""
    certified: Array = gap <= 1e-9
    for b in np.flatnonzero(~certified):
        mixed = parts[b, : size[b]]
        used = np.where(mixed >= 0, scores[b].reshape(-1)[mixed], 0).astype(np.float64)
        spread = (used.max(0) - used).max(initial=0.0)
        certified[b] = gap[b] <= 1e-9 + 1e-14 * parts.shape[2] * spread
    return certified


# ---- the point, with its derivative


def mixture_projection(
    name: str,
    inputs: str,
    kernels: Any,
    *,
    parts: str,
    capacity: str,
    slots: str = "n",
    also: str | None = None,
    flat: Flat | None = None,
    work: Work,
    structure: str = "",
    **options: Any,
) -> Callable[..., tuple[Tensor, ...]]:
    """The nearest mixture of vertices to scores, with those vertices kept for its derivative: `name_sparsemap`.

    Takes the `inputs` of the structure's other operators; gives the point, the vertices and their number.  capacity:
    how many vertices there is room for, computed from the sizes of the inputs.  Where more mix, which should be rare,
    the derivative searches again.  also: an input that vertices have scores from, with a gradient of its own.  flat:
    how to project examples of which too many vertices would mix; their number of vertices is then 0, and one more
    output has s − μ.
    """
    search = VertexSearch(kernels.mixture, structure or name)
    outputs = f"point[{parts}], parts[{capacity}, {slots}]: int32, size[]: int64"
    signature = f"{name}_sparsemap({inputs}) -> {outputs}" + (f", rest[{parts}]: float64" if flat else "")

    def project(scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, point, parts, size, lo, hi = rest
        return search.run(scores, lengths, numbers, point, parts, size, lo, hi)

    def project_maybe_flat(scores: Array, lengths: Array, *given: Any) -> int:
        *numbers, point, parts, size, rest, lo, hi = given
        assert flat is not None
        rest[lo:hi] = 0
        if not flat.is_possible(lengths[lo:hi]):
            return search.run(scores, lengths, numbers, point, parts, size, lo, hi)
        gap, _, report = nearest(kernels.mixture, scores, lengths, numbers, point, parts, size, lo, hi, rounds=ROUNDS)
        if report == -1:
            late = lo + np.flatnonzero(gap[lo:hi] > 10 * GAP_OF_DERIVATIVE)
            chosen = late[flat.are_flat(lengths[late], point[late])] if len(late) else late
            if len(chosen):
                found = (np.empty_like(point[chosen]), np.empty_like(rest[chosen]))
                solved = chosen[flat.project(scores[chosen], lengths[chosen], numbers, *found)]
                point[chosen], rest[chosen], size[solved] = *found, 0
                late = np.setdiff1d(late, solved)
            search.resume(scores, lengths, numbers, point, parts, size, late)
        return report

    def differentiate(scores: Array, lengths: Array, *rest: Any) -> int:
        *numbers, parts, size, gradient = rest[: -3 - (also is not None)]
        *products, lo, hi = rest[-3 - (also is not None) :]
        most, report = int(size[lo:hi].max(initial=0)), -1
        if most > parts.shape[1]:
            parts, point = np.empty((len(scores), most, parts.shape[2]), np.int32), np.empty_like(scores)
            report = search.run(scores, lengths, numbers, point, parts, size, lo, hi)
        if report == -1:
            report = kernels.mixture_backward(scores, lengths, tuple(numbers), parts, size, gradient, *products, lo, hi)
        return report

    def differentiate_maybe_flat(scores: Array, lengths: Array, *given: Any) -> int:
        *numbers, parts, size, rest, gradient, product, lo, hi = given
        assert flat is not None
        by_chart = lo + np.flatnonzero((size[lo:hi] == 0) & (lengths[lo:hi] >= flat.least))
        if len(by_chart):
            product[by_chart] = flat.differentiate(rest[by_chart], lengths[by_chart], numbers, gradient[by_chart])
            lengths = lengths.copy()
            lengths[by_chart] = -1
        return differentiate(scores, lengths, *numbers, parts, size, gradient, product, lo, hi)

    return projection_operator(
        signature,
        project_maybe_flat if flat else project,
        jacobian=differentiate_maybe_flat if flat else differentiate,
        also=also,
        keeps=" ".join(
            [*(argument.name for argument in parse(signature).inputs), "parts", "size", *(["rest"] if flat else [])]
        ),
        work=work,
        structure=structure,
        **options,
    )


class VertexSearch:
    """The active-set method over a batch, which warns of what it leaves."""

    def __init__(self, kernel: Kernel, structure: str) -> None:
        self.kernel, self.structure = kernel, structure

    def run(
        self,
        scores: Array,
        lengths: Array,
        numbers: Sequence[Any],
        point: Array,
        parts: Array,
        size: Array,
        lo: int,
        hi: int,
        start: Array | None = None,
    ) -> int:
        found = (point, parts, size, lo, hi)
        gap, converged, report = nearest(self.kernel, scores, lengths, numbers, *found, start=start)
        if not converged[lo:hi].all():
            warn_of_gap(f"SparseMAP over {self.structure} stopped at a gap of {gap[lo:hi].max():.1e}.")
        return report

    def resume(
        self,
        scores: Array,
        lengths: Array,
        numbers: Sequence[Any],
        point: Array,
        parts: Array,
        size: Array,
        which: Array,
    ) -> None:
        """Goes on with some of the examples from the vertices that were found for them."""
        if len(which) == 0:
            return
        start = parts[which, : size[which].max()]
        start[np.arange(start.shape[1]) >= size[which, None]] = -1
        found = (point[which], parts[which], size[which])
        self.run(scores[which], lengths[which], numbers, *found, 0, len(which), start)
        point[which], parts[which], size[which] = found


def nearest(
    kernel: Kernel,
    scores: Array,
    lengths: Array,
    numbers: Sequence[Any],
    point: Array,
    parts: Array,
    size: Array,
    lo: int,
    hi: int,
    *,
    start: Array | None = None,
    rounds: int = MAX_ITERATIONS,
) -> tuple[Array, Array, int]:
    """Runs the active-set method: (gaps, whether they are as small as rounding allows, report)."""
    batch, most, slots = parts.shape
    start = np.empty((batch, 0, slots), np.int32) if start is None else start
    probabilities = np.empty((batch, most), scores.dtype)
    gap, iterations, converged = np.empty(batch), np.empty(batch, np.int64), np.ones(batch, np.bool_)
    limits = (GAP_OF_DERIVATIVE, rounds, most)
    found = (point, parts, probabilities, size, gap, iterations, converged)
    report = mixture(kernel)(scores, lengths, *numbers, start, *limits, *found, lo, hi)
    return gap, converged, report

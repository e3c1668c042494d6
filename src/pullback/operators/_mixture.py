"""SparseMAP by the compiled active set, for structures whose vertices take one part per slot: which vertices mix.

A vertex is a list of flat part indices, one for each slot, −1 where a slot is not used.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pullback.operators._kernel_operator import kernel_operator
from pullback.operators._threads import Kernel

Array = NDArray[Any]
GAP_OF_POINT = 1e-10  # where it is reached, points were right to 1e-11: the last vertex brings the exact one
GAP_OF_DERIVATIVE = 1e-12  # a derivative needs the vertices that the last rounds bring
MAX_ITERATIONS = 10_000


def mixture_operator(
    name: str, inputs: str, kernel: Kernel, *, parts: str, slots: str = "n", **options: Any
) -> Callable[..., tuple[Tensor, ...]]:
    """The nearest mixture of vertices to scores, and how it was found: `name_mixture`.

    Takes the `inputs` of the structure's other operators, `scores[…], lengths[], …`; vertices to start with (rows of
    −1 are ignored); the largest gap and number of rounds, and how many vertices may be written.  Gives the point; the
    vertices with their probabilities and their number, which counts also those that were not written; the gap, the
    number of rounds, and whether the gap is within the tolerance, or as small as rounding allows.
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
            converged[lo:hi] = _are_certified(scores[lo:hi], parts[lo:hi], size[lo:hi], gap[lo:hi], tolerance)
        return report

    return run


def _are_certified(scores: Array, parts: Array, size: Array, gap: Array, tolerance: float) -> Array:
    """Whether gaps are within the tolerance and what rounding adds to it.

    Rounding depends on how far apart the scores are that compete for a slot.
    """
    limit = max(tolerance, 1e-9)
    certified: Array = gap <= limit
    for b in np.flatnonzero(~certified):
        mixed = parts[b, : size[b]]
        used = np.where(mixed >= 0, scores[b].reshape(-1)[mixed], 0).astype(np.float64)
        spread = (used.max(0) - used).max(initial=0.0)
        certified[b] = gap[b] <= limit + 1e-14 * parts.shape[2] * spread
    return certified


class Batch(NamedTuple):
    """Examples whose nearest mixtures are looked for: what is given, and the arrays that are filled.

    facts: what the structure takes beside scores.  lo, hi: the range of the examples.  tolerance: the largest gap.
    """

    scores: Array
    facts: Sequence[Any]
    point: Array
    parts: Array
    size: Array
    lo: int
    hi: int
    tolerance: float = GAP_OF_DERIVATIVE


def nearest(
    kernel: Kernel, batch: Batch, *, start: Array | None = None, rounds: int | None = None
) -> tuple[Array, Array, int]:
    """Runs the active-set method: (gaps, whether they are within the tolerance, report)."""
    count, most, slots = batch.parts.shape
    start = np.empty((count, 0, slots), np.int32) if start is None else start
    probabilities = np.empty((count, most), batch.scores.dtype)
    gap, iterations, converged = np.empty(count), np.empty(count, np.int64), np.ones(count, np.bool_)
    limits = (max(batch.tolerance, GAP_OF_DERIVATIVE), MAX_ITERATIONS if rounds is None else rounds, most)
    found = (batch.point, batch.parts, probabilities, batch.size, gap, iterations, converged)
    report = mixture(kernel)(batch.scores, *batch.facts, start, *limits, *found, batch.lo, batch.hi)
    return gap, converged, report

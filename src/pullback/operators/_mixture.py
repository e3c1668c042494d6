"""SparseMAP by the compiled active set, for structures whose vertices take one part per slot.

`mixture_operator` tells which vertices mix, `mixture_projection` gives the point with its derivative.  A vertex is a
list of flat part indices, one for each slot, −1 where a slot is not used.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.operators._flat import FAR, Flat
from pullback.operators._kernel_operator import Work, kernel_operator, projection_operator
from pullback.operators._signature import parse
from pullback.operators._threads import Kernel

Array = NDArray[Any]
Spread = Callable[[float, Array, Array], None]
"""spread(share, the parts of a vertex, product): adds `share` to the product at all that a vertex has scores from."""

GAP_OF_POINT = 1e-10  # where it is reached, points were right to 1e-11: the last vertex brings the exact one
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

    Takes the `inputs` of the structure's other operators and the largest gap; gives the point, the vertices and their
    number.  Up to `GAP_OF_DERIVATIVE` the derivative is that on the face of the point, whose other vertices are looked
    for; above, where the face is not known yet, that on the span of the vertices found.  capacity: how many vertices
    there is room for, computed from the sizes of the inputs.  Where more mix, which should be rare, the derivative
    searches again.  also: an input that vertices have scores from, with a gradient of its own; then the kernels have a
    `spread` for that of one vertex.  flat: how to project examples of which too many vertices would mix; their number
    of vertices is then 0, and one more output has s − μ.
    """
    search = VertexSearch(kernels.mixture, structure or name)
    outputs = f"point[{parts}], parts[{capacity}, {slots}]: int32, size[]: int64"
    outputs += f", rest[{parts}]: float64" if flat else ""
    signature = f"{name}_sparsemap({inputs}, float tolerance) -> {outputs}"
    names = [argument.name for argument in parse(signature).inputs]

    def apart(facts: Sequence[Any], which: Array) -> tuple[Array, list[Any]]:
        """The lengths of some examples, and what else the structure takes."""
        chosen = dict(zip(names[1:], _some(facts, which)))
        return chosen.pop("lengths"), list(chosen.values())

    def project(scores: Array, *given: Any) -> int:
        *facts, tolerance, point, parts, size, lo, hi = given
        return search.run(scores, facts, point, parts, size, lo, hi, tolerance=tolerance)

    def project_maybe_flat(scores: Array, *given: Any) -> int:
        """Neighbors that are long, or not, are projected together: no answer depends on the rest of the batch."""
        *facts, tolerance, point, parts, size, rest, lo, hi = given
        assert flat is not None
        rest[lo:hi] = 0
        are_long = flat.are_long(apart(facts, np.arange(lo, hi))[0])
        borders = [lo, *(lo + 1 + np.flatnonzero(are_long[1:] != are_long[:-1])), hi]
        for begin, end in itertools.pairwise(borders):
            if are_long[begin - lo]:
                report = project_long(scores, *facts, tolerance, point, parts, size, rest, begin, end)
            else:
                report = project(scores, *facts, tolerance, point, parts, size, begin, end)
            if report != -1:
                return report
        return -1

    def project_long(scores: Array, *given: Any) -> int:
        *facts, tolerance, point, parts, size, rest, lo, hi = given
        found = (point, parts, size)
        assert flat is not None
        limits: dict[str, Any] = {"rounds": flat.rounds, "tolerance": tolerance}
        gap, _, report = nearest(kernels.mixture, scores, facts, *found, lo, hi, **limits)
        if report == -1:
            late = lo + np.flatnonzero(gap[lo:hi] > max(tolerance, 10 * GAP_OF_DERIVATIVE))
            chosen = late[flat.are_flat(scores[late], apart(facts, late)[0], point[late])] if len(late) else late
            if tolerance > GAP_OF_DERIVATIVE:
                chosen = chosen[gap[chosen] > FAR * tolerance]
            else:
                lengths = apart(facts, np.arange(lo, hi))[0]
                tied = lo + np.flatnonzero(flat.are_tied(scores[lo:hi], lengths, point[lo:hi], size[lo:hi]))
                chosen = np.union1d(chosen, tied)
            late = np.setdiff1d(late, project_flat(scores, facts, point, size, rest, chosen))
            patience = flat.patience(apart(facts, late)[0], scores.shape[1:])
            if patience is not None:
                slow = [late[:0]]
                for rounds in np.unique(patience):
                    which = late[patience == rounds]
                    left = search.resume(scores, facts, *found, which, tolerance, int(rounds))
                    slow.append(which[left > max(tolerance, 10 * GAP_OF_DERIVATIVE)])
                late = np.concatenate(slow)
                fresh = np.setdiff1d(late, chosen)  # not those that it could not solve
                late = np.setdiff1d(late, project_flat(scores, facts, point, size, rest, fresh))
            search.resume(scores, facts, *found, late, tolerance)
        return report

    def project_flat(
        scores: Array, facts: Sequence[Any], point: Array, size: Array, rest: Array, chosen: Array
    ) -> Array:
        """Projects some of the examples without their vertices; returns those that were solved."""
        if len(chosen) == 0:
            return chosen
        assert flat is not None
        projected = (np.empty_like(point[chosen]), np.empty_like(rest[chosen]))
        found_here = flat.project(scores[chosen], *apart(facts, chosen), *projected)
        solved = chosen[found_here]
        point[solved], rest[solved], size[solved] = projected[0][found_here], projected[1][found_here], 0
        return solved

    def differentiate(scores: Array, *given: Any) -> int:
        *facts, tolerance, parts, size, gradient = given[: -3 - (also is not None)]
        *products, lo, hi = given[-3 - (also is not None) :]
        most, size = int(size[lo:hi].max(initial=0)), size.copy()
        while most > parts.shape[1]:  # a search that does not go on from another may end with more than that one
            parts, point = np.empty((len(scores), most + most // 4, parts.shape[2]), np.int32), np.empty_like(scores)
            report = search.run(scores, facts, point, parts, size, lo, hi, tolerance=tolerance)
            if report != -1:
                return report
            most = int(size[lo:hi].max(initial=0))
        if tolerance > GAP_OF_DERIVATIVE:
            return differentiate_on_span(parts, size, gradient, products, getattr(kernels, "spread", None), lo, hi)
        backward: Kernel = kernels.mixture_backward
        return backward(scores, facts[0], tuple(facts[1:]), parts, size, gradient, *products, lo, hi)

    def differentiate_maybe_flat(scores: Array, *given: Any) -> int:
        *facts, tolerance, parts, size, rest, gradient = given[: -3 - (also is not None)]
        *products, lo, hi = given[-3 - (also is not None) :]
        assert flat is not None
        place = names.index("lengths") - 1
        flatly = lo + np.flatnonzero((size[lo:hi] == 0) & flat.are_long(facts[place][lo:hi]))
        if len(flatly):
            found = flat.differentiate(rest[flatly], *apart(facts, flatly), gradient[flatly])
            facts[place] = facts[place].copy()
            facts[place][flatly] = -1
        report = differentiate(scores, *facts, tolerance, parts, size, gradient, *products, lo, hi)
        if len(flatly):
            for product, here in zip(products, found):
                product[flatly] = here
        return report

    return projection_operator(
        signature,
        project_maybe_flat if flat else project,
        jacobian=differentiate_maybe_flat if flat else differentiate,
        also=also,
        keeps=" ".join([*names, "parts", "size", *(["rest"] if flat else [])]),
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
        facts: Sequence[Any],
        point: Array,
        parts: Array,
        size: Array,
        lo: int,
        hi: int,
        tolerance: float = GAP_OF_DERIVATIVE,
    ) -> int:
        found = (point, parts, size, lo, hi)
        gap, converged, report = nearest(self.kernel, scores, facts, *found, tolerance=tolerance)
        self._warn(gap[lo:hi], converged[lo:hi])
        return report

    def _warn(self, gap: Array, converged: Array) -> None:
        if not converged.all():
            warn_of_gap(f"SparseMAP over {self.structure} stopped at a gap of {gap.max():.1e}.")

    def resume(
        self,
        scores: Array,
        facts: Sequence[Any],
        point: Array,
        parts: Array,
        size: Array,
        which: Array,
        tolerance: float,
        rounds: int | None = None,
    ) -> Array:
        """Goes on with some of the examples from the vertices that were found for them; returns their gaps.

        Without a limit on the rounds, it warns where it has to stop.
        """
        if len(which) == 0:
            return np.empty(0)
        start = parts[which, : size[which].max()]
        start[np.arange(start.shape[1]) >= size[which, None]] = -1
        found = (point[which], np.empty((len(which), *parts.shape[1:]), parts.dtype), size[which])
        limits: dict[str, Any] = {"start": start, "rounds": rounds, "tolerance": tolerance}
        gap, converged, _ = nearest(self.kernel, scores[which], _some(facts, which), *found, 0, len(which), **limits)
        if rounds is None:
            self._warn(gap, converged)
        most = max(start.shape[1], int(found[2].max()))  # there is room for many more, which would take long to copy
        point[which], parts[which, :most], size[which] = found[0], found[1][:, :most], found[2]
        return gap


def _some(facts: Sequence[Any], which: Array) -> list[Any]:
    """What a structure takes beside scores, for some of the examples."""
    return [given[which] if isinstance(given, np.ndarray) else given for given in facts]


def nearest(
    kernel: Kernel,
    scores: Array,
    facts: Sequence[Any],
    point: Array,
    parts: Array,
    size: Array,
    lo: int,
    hi: int,
    *,
    start: Array | None = None,
    rounds: int | None = None,
    tolerance: float = GAP_OF_DERIVATIVE,
) -> tuple[Array, Array, int]:
    """Runs the active-set method: (gaps, whether they are within the tolerance, report)."""
    batch, most, slots = parts.shape
    start = np.empty((batch, 0, slots), np.int32) if start is None else start
    probabilities = np.empty((batch, most), scores.dtype)
    gap, iterations, converged = np.empty(batch), np.empty(batch, np.int64), np.ones(batch, np.bool_)
    limits = (max(tolerance, GAP_OF_DERIVATIVE), MAX_ITERATIONS if rounds is None else rounds, most)
    found = (point, parts, probabilities, size, gap, iterations, converged)
    report = mixture(kernel)(scores, *facts, start, *limits, *found, lo, hi)
    return gap, converged, report


def differentiate_on_span(
    parts: Array, size: Array, gradient: Array, products: Sequence[Array], spread: Spread | None, lo: int, hi: int
) -> int:
    """Projects the gradient onto the span of the differences of the vertices given.

    The probabilities of vertices Z minimize ½‖Zᵀp − s‖² − wᵀp subject to Σ p = 1, for scores w beside those of parts.
    So their derivative along v = Zg is c = K⁻¹v − αK⁻¹1 with K = ZZᵀ + 11ᵀ and Σ c = 0; that of the point is Zᵀc, and
    each vertex has the share c in the gradient of w.  Examples of which no vertices are given are left out.
    """
    product, *own_products = products
    for b in lo + np.flatnonzero(size[lo:hi] > 0):
        mixed = parts[b, : size[b]]
        used, places = np.unique(mixed, return_inverse=True)
        vertices = np.zeros((len(mixed), len(used)))
        vertices[np.arange(len(mixed))[:, None], places.reshape(mixed.shape)] = 1.0
        vertices, used = vertices[:, used >= 0], used[used >= 0]
        along = vertices @ gradient[b].reshape(-1)[used].astype(np.float64)
        ones = np.ones(len(mixed))
        free, unit = np.linalg.solve(vertices @ vertices.T + 1.0, np.stack([along, ones], 1)).T
        shares = free - unit * (free.sum() / unit.sum())
        product[b] = 0.0
        product[b].reshape(-1)[used] = shares @ vertices
        for own_product in own_products:
            assert spread is not None
            own_product[b] = 0.0
            for share, vertex in zip(shares, mixed):
                spread(share, vertex[vertex >= 0], own_product[b])
    return -1

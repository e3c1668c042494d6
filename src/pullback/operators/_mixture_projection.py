"""SparseMAP by the compiled active set, as a point with its derivative."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.operators._derivatives import projection_operator
from pullback.operators._flat import FAR, Flat
from pullback.operators._kernel_operator import Work
from pullback.operators._mixture import GAP_OF_DERIVATIVE, Batch, nearest
from pullback.operators._signature import parse
from pullback.operators._threads import Kernel

Array = NDArray[Any]
Spread = Callable[[float, Array, Array], None]
"""spread(share, the parts of a vertex, product): adds `share` to the product at all that a vertex has scores from."""


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
    outputs = f"point[{parts}], parts[{capacity}, {slots}]: int32, size[]: int64"
    outputs += f", rest[{parts}]: float64" if flat else ""
    signature = f"{name}_sparsemap({inputs}, float tolerance) -> {outputs}"
    names = [argument.name for argument in parse(signature).inputs]
    by_vertices = ByVertices(kernels, VertexSearch(kernels.mixture, structure or name), 1 if also is None else 2)
    chosen = by_vertices if flat is None else MaybeFlat(by_vertices, flat, names.index("lengths") - 1)
    return projection_operator(
        signature,
        chosen.project,
        jacobian=chosen.differentiate,
        also=also,
        keeps=" ".join([*names, "parts", "size", *(["rest"] if flat else [])]),
        work=work,
        structure=structure,
        **options,
    )


@dataclass(frozen=True)
class ByVertices:
    """The point and its derivative by the vertices that mix, as an operator calls them.

    products: how many gradients there are, that of the scores and maybe that of what vertices have scores from.
    """

    kernels: Any
    search: "VertexSearch"
    products: int

    def project(self, scores: Array, *given: Any) -> int:
        *facts, tolerance, point, parts, size, lo, hi = given
        return self.search.run(Batch(scores, facts, point, parts, size, lo, hi, tolerance))

    def differentiate(self, scores: Array, *given: Any) -> int:
        *facts, tolerance, parts, size, gradient = given[: -2 - self.products]
        *products, lo, hi = given[-2 - self.products :]
        most, size = int(size[lo:hi].max(initial=0)), size.copy()
        while most > parts.shape[1]:  # a search that does not go on from another may end with more than that one
            parts, point = np.empty((len(scores), most + most // 4, parts.shape[2]), np.int32), np.empty_like(scores)
            report = self.search.run(Batch(scores, facts, point, parts, size, lo, hi, tolerance))
            if report != -1:
                return report
            most = int(size[lo:hi].max(initial=0))
        if tolerance > GAP_OF_DERIVATIVE:
            spread = getattr(self.kernels, "spread", None)
            return differentiate_on_span(parts, size, gradient, products, spread, lo, hi)
        backward: Kernel = self.kernels.mixture_backward
        return backward(scores, facts[0], tuple(facts[1:]), parts, size, gradient, *products, lo, hi)


@dataclass(frozen=True)
class MaybeFlat:
    """`ByVertices`, but for examples that are flat, which are projected and differentiated without their vertices.

    place: where among the facts the lengths are.
    """

    by_vertices: ByVertices
    flat: Flat
    place: int

    def project(self, scores: Array, *given: Any) -> int:
        """Neighbors that are long, or not, are projected together: no answer depends on the rest of the batch."""
        *facts, tolerance, point, parts, size, rest, lo, hi = given
        rest[lo:hi] = 0
        are_long = self.flat.are_long(facts[self.place][lo:hi])
        borders = [lo, *(lo + 1 + np.flatnonzero(are_long[1:] != are_long[:-1])), hi]
        for begin, end in itertools.pairwise(borders):
            batch = Batch(scores, facts, point, parts, size, begin, end, tolerance)
            if are_long[begin - lo]:
                report = self._project_long(batch, rest)
            else:
                report = self.by_vertices.search.run(batch)
            if report != -1:
                return report
        return -1

    def differentiate(self, scores: Array, *given: Any) -> int:
        count = self.by_vertices.products
        *facts, tolerance, parts, size, rest, gradient = given[: -2 - count]
        *products, lo, hi = given[-2 - count :]
        flatly = lo + np.flatnonzero((size[lo:hi] == 0) & self.flat.are_long(facts[self.place][lo:hi]))
        if len(flatly):
            found = self.flat.differentiate(rest[flatly], *self._apart(facts, flatly), gradient[flatly])
            facts[self.place] = facts[self.place].copy()
            facts[self.place][flatly] = -1
        report = self.by_vertices.differentiate(scores, *facts, tolerance, parts, size, gradient, *products, lo, hi)
        if len(flatly):
            for product, here in zip(products, found):
                product[flatly] = here
        return report

    def _project_long(self, batch: Batch, rest: Array) -> int:
        """A few rounds tell which examples are flat; the others go on, with a limit if they have one."""
        search = self.by_vertices.search
        gap, _, report = nearest(search.kernel, batch, rounds=self.flat.rounds)
        if report != -1:
            return report
        within = max(batch.tolerance, 10 * GAP_OF_DERIVATIVE)
        late = batch.lo + np.flatnonzero(gap[batch.lo : batch.hi] > within)
        chosen = self._flat_among(batch, late, gap)
        late = np.setdiff1d(late, self._project_flat(batch, rest, chosen))
        patience = self.flat.patience(batch.facts[self.place][late], batch.scores.shape[1:])
        if patience is not None:
            slow = [late[:0]]
            for rounds in np.unique(patience):
                which = late[patience == rounds]
                left = search.resume(batch, which, int(rounds))
                slow.append(which[left > within])
            late = np.concatenate(slow)
            fresh = np.setdiff1d(late, chosen)  # not those that it could not solve
            late = np.setdiff1d(late, self._project_flat(batch, rest, fresh))
        search.resume(batch, late)
        return report

    def _flat_among(self, batch: Batch, late: Array, gap: Array) -> Array:
        """Which examples are flat: some of the late ones, and where the point shall be exact, those that are tied."""
        scores, point = batch.scores, batch.point
        chosen = late
        if len(late):
            chosen = late[self.flat.are_flat(scores[late], *self._apart(batch.facts, late), point[late])]
        if batch.tolerance > GAP_OF_DERIVATIVE:
            return chosen[gap[chosen] > FAR * batch.tolerance]
        every, here = np.arange(batch.lo, batch.hi), slice(batch.lo, batch.hi)
        tied = self.flat.are_tied(scores[here], *self._apart(batch.facts, every), point[here], batch.size[here])
        return np.union1d(chosen, every[tied])

    def _project_flat(self, batch: Batch, rest: Array, chosen: Array) -> Array:
        """Projects some of the examples without their vertices; returns those that were solved."""
        if len(chosen) == 0:
            return chosen
        projected = (np.empty_like(batch.point[chosen]), np.empty_like(rest[chosen]))
        found_here = self.flat.project(batch.scores[chosen], *self._apart(batch.facts, chosen), *projected)
        solved = chosen[found_here]
        batch.point[solved], rest[solved], batch.size[solved] = projected[0][found_here], projected[1][found_here], 0
        return solved

    def _apart(self, facts: Sequence[Any], which: Array) -> tuple[Array, list[Any]]:
        """The lengths of some examples, and what else the structure takes."""
        chosen = _some(facts, which)
        return chosen.pop(self.place), chosen


class VertexSearch:
    """The active-set method over a batch, which warns of what it leaves."""

    def __init__(self, kernel: Kernel, structure: str) -> None:
        self.kernel, self.structure = kernel, structure

    def run(self, batch: Batch) -> int:
        gap, converged, report = nearest(self.kernel, batch)
        self._warn(gap[batch.lo : batch.hi], converged[batch.lo : batch.hi])
        return report

    def _warn(self, gap: Array, converged: Array) -> None:
        if not converged.all():
            warn_of_gap(f"SparseMAP over {self.structure} stopped at a gap of {gap.max():.1e}.")

    def resume(self, batch: Batch, which: Array, rounds: int | None = None) -> Array:
        """Goes on with some of the examples from the vertices that were found for them; returns their gaps.

        Without a limit on the rounds, it warns where it has to stop.
        """
        if len(which) == 0:
            return np.empty(0)
        scores, facts, point, parts, size, *_ = batch
        start = parts[which, : size[which].max()]
        start[np.arange(start.shape[1]) >= size[which, None]] = -1
        found = (point[which], np.empty((len(which), *parts.shape[1:]), parts.dtype), size[which])
        some = Batch(scores[which], _some(facts, which), *found, 0, len(which), batch.tolerance)
        gap, converged, _ = nearest(self.kernel, some, start=start, rounds=rounds)
        if rounds is None:
            self._warn(gap, converged)
        most = max(start.shape[1], int(found[2].max()))  # there is room for many more, which would take long to copy
        point[which], parts[which, :most], size[which] = found[0], found[1][:, :most], found[2]
        return gap


def _some(facts: Sequence[Any], which: Array) -> list[Any]:
    """What a structure takes beside scores, for some of the examples."""
    return [given[which] if isinstance(given, np.ndarray) else given for given in facts]


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

"""The interface of a structure, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from pullback.operators import active_set
from pullback.operators._check import check_range
from pullback.operators._register import HALF, is_plain_eager, is_under_vmap
from pullback.operators._search import Found, check_start
from pullback.structures._checks import check_lengths, check_mask, check_scores
from pullback.structures._numbers import without_mean
from pullback.structures._results import Mixture, Solution
from pullback.structures._searches import search_of
from pullback.structures._supports import affine_probabilities


class Structure(ABC):
    """A set 𝒵 of vertices and its convex hull, one of each for every example of a batch.

    Scores have any number of batch dimensions followed by `event_dims` dimensions that index the parts.  A vertex is
    shaped like them, with a one at each part it uses, or with other numbers if not `is_zero_one`.  A structure is
    immutable; what is particular to a batch (lengths, masks, budgets) are its fields.  A new one needs `argmax` alone:
    SparseMAP and every estimator that asks for no more follow from it, and a faster operation may replace one that is
    written here.  What else it can do, `LogLinear` or `KBest` for instance, `offers` tells.
    """

    offer: ClassVar[str] = "an argmax"

    @abstractmethod
    def argmax(self, scores: Tensor) -> Tensor:
        """The best vertex (MAP), shaped like `scores`; its output never requires grad.

        A new structure begins with `scores = self.restrict(scores).detach()`, which checks them and puts −∞ where
        lengths and mask forbid a part.
        """

    # ---- hooks: what is particular to a structure

    event_dims: int = 1
    """How many trailing dimensions of scores index the parts of one example."""

    is_zero_one: bool = True
    """Whether vertices are made of zeros and ones; if not, the structure has a `contains` of its own."""

    lengths: Tensor | None = None
    """How long each example is, where they differ: (*batch), or (*batch, axes) where a length is several numbers."""

    mask: Tensor | None = None
    """Which parts are allowed, where not all are."""

    tolerance: float | None = None
    """The largest gap ⟨s − μ, argmax(s − μ) − μ⟩ that SparseMAP may stop at; if None, 1e-9 or less.

    It bounds ‖μ − sparsemap(s)‖², and `Solution.gap` is what was reached.  With a tolerance, the derivative is that on
    the span of the vertices found, as the face of the solution is not known yet.  A structure whose SparseMAP does not
    go by vertices, and so ends at the solution itself, uses the tolerance in `solve` and `support` alone; so does an
    example so flat that it is projected without vertices.
    """

    length_axes: ClassVar[int] = 1
    """How many numbers a length is; number i counts what is indexed by dimension i of the parts."""

    length_advice: ClassVar[str] = ""
    """A sentence about lengths, for the error where one is above `longest`."""

    def longest(self, event: Sequence[int]) -> tuple[int, ...]:
        """The largest length of parts of this shape, `length_axes` numbers: the first sizes by default."""
        return tuple(event[: self.length_axes])

    def check_event(self, event: torch.Size) -> None:
        """Raises where parts of this shape do not fit the structure; by default any shape does."""
        return

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        """Which parts of scores of this shape exist: boolean, to be broadcast to `shape`; None if all do.

        Padding beyond `lengths`, along the first dimensions of the parts, and what `mask` forbids do not.
        """
        if self.lengths is None and self.mask is None:
            return None
        _, event = self._split(shape)
        inside = None
        if self.lengths is not None:
            lengths = self.lengths.to(device)
            for axis, numbers in enumerate([lengths] if self.length_axes == 1 else lengths.unbind(-1)):
                used = torch.arange(event[axis], device=device) < numbers.unsqueeze(-1)
                used = used[(..., *(None,) * axis, slice(None), *(None,) * (len(event) - 1 - axis))]
                inside = used if inside is None else inside & used
        return self._with_mask(inside, device)

    def count_once(self, numbers: Tensor) -> Tensor:
        """`numbers` (..., *event), divided by how often a part is repeated, so that a sum counts each part once.

        As they are by default.  A symmetric matrix holds an edge in both halves: there, half of each.  Inner products
        and norms are such sums.
        """
        return numbers

    def gradient_of_parts(self, gradient: Tensor) -> Tensor:
        """The derivative in each part, from that in each entry of a point or of the scores (..., *event).

        The same by default; for an edge that a symmetric matrix holds in both halves, the sum of both.
        """
        return gradient

    fixed_sums: tuple[int, ...] = ()
    """Dimensions, counted from the last, over which all vertices of an example have the same sum; none by default."""

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        """A gradient (..., *event) without what the polytope cannot see: what is removed moves no projection.

        Along `fixed_sums` a constant moves nothing: their mean over the parts in use is removed.  Where flows are
        conserved, as in paths, more of it moves nothing and stays.  `usable`, boolean, tells which parts are in use;
        those that are `allowed`, if not given.  The others become 0.
        """
        if usable is None:
            usable = self.allowed(gradient.shape, gradient.device)
        seen = gradient if usable is None else gradient.masked_fill(~usable, 0)
        return without_mean(seen, usable, self.fixed_sums) if self.fixed_sums else seen

    # ---- scores of a structure's own

    has_own_scores: bool = False
    """Whether the structure scores vertices by itself, beyond the scores of their parts.

    One that does says what `own_score`, `project`, `sparsemap`, `support` and `solve` are, and `entropy` if it is
    `LogLinear`.
    """

    def own_score(self, point: Tensor) -> Tensor:
        """The score that the structure gives to each `point` (..., *batch, *event) by itself: (..., *batch).

        Of a vertex that is what it adds to ⟨s, z⟩, such as the scores of transitions, and −∞ if it forbids the vertex;
        of a mixture the largest expected one, over all distributions with this mean.  0 by default.
        """
        return point.new_zeros(point.shape[: point.dim() - self.event_dims])

    # ---- projections

    def sparsemap(self, scores: Tensor) -> Tensor:
        """argmax ⟨s, μ⟩ − ½‖μ‖² over conv 𝒵 (SparseMAP): the point of the polytope nearest to `scores`.

        Where the structure has scores of its own, they count too: argmax ⟨s, μ⟩ + own_score(μ) − ½‖μ‖².

        By the active-set method: each round costs one `argmax`.  Differentiable: the Jacobian projects onto the span of
        the face that μ lies on; where a gradient will be needed, two or more further calls of `argmax` look for
        vertices of that face beyond those in use.  Reference: Niculae et al. (2018).
        """
        scores = self.restrict(scores)
        if is_plain_eager() and not scores.is_meta:
            return active_set.eager_nearest(scores, self._search, self.event_dims)
        return active_set.nearest(scores, *search_of(self), self.event_dims)

    def project(self, point: Tensor) -> Tensor:
        """The point of the polytope nearest to `point`.

        It is `sparsemap` as long as a structure has no scores of its own, such as those of transitions.
        """
        if self.has_own_scores:
            raise TypeError(f"{type(self).__name__} has scores of its own, and needs a `project` of its own.")
        return self.sparsemap(point)

    def support(self, scores: Tensor) -> Mixture:
        """The vertices and probabilities of a SparseMAP solution; the probabilities are differentiable."""
        self._refuse_vmap("support", scores)
        scores = self.restrict(scores)
        found = self._search(scores.detach())
        own = None
        if self.has_own_scores:
            at = scores.dim() - self.event_dims
            own = self.own_score(found.vertices.movedim(at, 0)).movedim(0, at)
        probabilities = affine_probabilities(scores, found, self.event_dims, own)
        return Mixture(found.vertices, probabilities, found.size)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        """The SparseMAP solution with the vertices it mixes, its gap, and how many rounds it took.

        `start` (*batch, k, *event) holds vertices to begin with, padded with zeros: those of the solution for scores
        nearby save most rounds.  Rows that are not vertices are ignored.
        """
        self._refuse_vmap("solve", scores)
        scores = self.restrict(scores).detach()
        found = self._search(scores, start=None if start is None else self._known_vertices(start, scores))
        mixture = Mixture(found.vertices, found.probabilities, found.size)
        return Solution(mixture, found.gap, found.iterations, found.converged)

    # ---- vertices

    def contains(self, vertices: Tensor) -> Tensor:
        """Whether each of `vertices` (..., *batch, *event) is a vertex for its example: (..., *batch).

        Among all 0/1 vectors, z alone maximizes the scores that are 1 where z is and −1 elsewhere.
        """
        best = self.argmax(torch.where(vertices == 1, 1.0, -1.0))
        return (best == vertices).flatten(-self.event_dims).all(-1)

    # ---- scores

    def restrict(self, scores: Tensor) -> Tensor:
        """`scores` once checked, with −∞ at every part that is not `allowed`.

        Half precision under autocast becomes float32 here.
        """
        scores = self._checked(scores)
        self._check_facts(scores.shape)
        return self.forbid(scores)

    def forbid(self, scores: Tensor) -> Tensor:
        """`scores` with −∞ at every part that is not `allowed`; what `restrict` does after its checks."""
        allowed = self.allowed(scores.shape, scores.device)
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)

    def inner(self, scores: Tensor, point: Tensor) -> Tensor:
        """⟨scores, point⟩, one number per example; a part at −∞ that `point` does not use adds nothing."""
        scores = self.restrict(scores)
        unused = (point == 0) & (scores == -torch.inf)
        return self.count_once(scores.masked_fill(unused, 0) * point).flatten(-self.event_dims).sum(-1)

    def batch_shape(self, scores: Tensor) -> torch.Size:
        """The leading dimensions of `scores`."""
        return scores.shape[: scores.dim() - self.event_dims]

    def widen(self, per_example: Tensor) -> Tensor:
        """One number per example, shaped to multiply points."""
        return per_example.reshape(per_example.shape + (1,) * self.event_dims)

    # ---- capabilities

    def offers(self, capability: type[Structure]) -> bool:
        """Whether this structure can do what `capability`, such as `LogLinear`, promises."""
        return isinstance(self, capability)

    def why_not(self, capability: type[Structure]) -> str:
        """Why this structure does not offer `capability`, and what to use instead."""
        return "methods such as `sparsemap`, `spigot` and `ste` need only an argmax."

    # ---- for members

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Scores as kernels read them, with −∞ where the mask forbids, and the lengths of the examples if given."""
        scores = self._checked(scores)
        if self.mask is not None:
            check_mask(type(self).__name__, self.mask, scores.shape)
            scores = scores.masked_fill(~self.mask.to(scores.device), -torch.inf)
        return scores, self._lengths_of(scores)

    def _lengths_of(self, scores: Tensor) -> Tensor | None:
        if self.lengths is None:
            return None
        shape = self._shape_of_lengths(scores.shape)
        check_lengths(type(self).__name__, self.lengths, shape, self.length_axes)
        lengths = self.lengths.to(scores.device, torch.int64)
        return lengths if lengths.shape == shape else lengths.expand(shape)

    def _shape_of_lengths(self, shape: torch.Size) -> torch.Size:
        """The shape of lengths for scores of this shape."""
        batch = self._split(shape)[0]
        return batch if self.length_axes == 1 else torch.Size((*batch, self.length_axes))

    def _checked(self, scores: Tensor) -> Tensor:
        check_scores(type(self).__name__, scores, self.event_dims)
        self.check_event(scores.shape[-self.event_dims :])
        if scores.dtype in HALF and torch.is_autocast_enabled(scores.device.type):
            return scores.float()
        return scores

    def _refuse_vmap(self, operation: str, scores: Tensor) -> None:
        if is_under_vmap(scores):
            raise RuntimeError(
                f"{type(self).__name__}.{operation} gives a different number of vertices for each example; expected a "
                "batch of scores instead of vmap, or `topk`, which always gives k."
            )

    def _check_facts(self, shape: torch.Size) -> None:
        """Raises where lengths or mask do not fit scores of this shape."""
        if self.mask is not None:
            check_mask(type(self).__name__, self.mask, shape)
        if self.lengths is not None:
            name, expected, most = (
                type(self).__name__,
                self._shape_of_lengths(shape),
                self.longest(self._split(shape)[1]),
            )
            check_lengths(name, self.lengths, expected, self.length_axes)
            check_range(self.lengths.expand(expected), list(most), name, self.length_advice)

    def _with_mask(self, inside: Tensor | None, device: torch.device | None) -> Tensor | None:
        if self.mask is None:
            return inside
        mask = self.mask.to(device)
        return mask if inside is None else inside & mask

    def _split(self, shape: Sequence[int]) -> tuple[torch.Size, torch.Size]:
        """The dimensions of the batch and those of the parts."""
        shape = shape if isinstance(shape, torch.Size) else torch.Size(shape)
        at = len(shape) - self.event_dims
        return shape[:at], shape[at:]

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        """The vertices whose mixture is nearest to scores that are restricted; with `spanning`, all of its face."""
        if self.has_own_scores:
            raise TypeError(
                f"{type(self).__name__}: the inherited search knows the scores of parts alone; a structure that has "
                "scores of its own needs a `sparsemap`, a `support` and a `solve` of its own."
            )
        return active_set.search(
            self.argmax,
            scores,
            self.event_dims,
            start=start,
            tolerance=self._tolerance_or(active_set.GAP),
            spanning=spanning and self._is_exact,
        )

    @property
    def _is_exact(self) -> bool:
        """Whether vertices are looked for until they tell the face of the solution."""
        return self.tolerance is None or self.tolerance <= active_set.GAP

    def _tolerance_or(self, gap: float) -> float:
        return gap if self.tolerance is None else self.tolerance

    def _known_vertices(self, start: Tensor, scores: Tensor) -> Tensor:
        """`start` with zeros in rows that are not vertices."""
        batch, event = self._split(scores.shape)
        check_start(type(self).__name__, start, batch, event)
        is_vertex = self.contains(start.movedim(len(batch), 0)).movedim(0, len(batch))
        return start.masked_fill(~self.widen(is_vertex), 0)

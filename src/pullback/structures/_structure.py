"""The interface of a structure, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, TypeVar, final

import torch
from torch import Tensor

from pullback.operators import active_set
from pullback.operators._check import check
from pullback.operators._register import is_plain_eager
from pullback.operators.active_set import Found, check_start
from pullback.structures._checks import check_lengths, check_mask, check_scores
from pullback.structures._maximum_entropy import maximum_entropy
from pullback.structures._results import Enumeration, Mixture, Solution, TopK
from pullback.structures._searches import search_of


class MissingCapability(TypeError):
    """A structure was asked for something it cannot give, such as a partition function."""


class Structure(ABC):
    """A set 𝒵 of 0/1 vertices and its convex hull, one of each for every example of a batch.

    Scores have any number of batch dimensions followed by `event_dims` dimensions that index the parts.  A structure is
    immutable; what is particular to a batch (lengths, masks, budgets) are its fields.  A new one needs `argmax` alone:
    SparseMAP and every estimator that asks for no more follow from it, and a faster operation may replace one that is
    written here.  What else a structure can do is told by its base classes: `LogLinear`, `Enumerable`, `KBest`.
    """

    offer: ClassVar[str] = "an argmax"

    @abstractmethod
    def argmax(self, scores: Tensor) -> Tensor:
        """The best vertex (MAP): zeros and ones, shaped like `scores`; its output never requires grad."""

    # ---- hooks: what is particular to a structure

    @property
    def event_dims(self) -> int:
        """How many trailing dimensions of scores index the parts of one example."""
        return 1

    @property
    def lengths(self) -> Tensor | None:
        """How long each example is, where they differ."""
        return None

    @property
    def mask(self) -> Tensor | None:
        """Which parts are allowed, where not all are."""
        return None

    def longest(self, event: Sequence[int]) -> int:
        """The largest length that parts of this shape have room for."""
        return event[0]

    def check_event(self, event: torch.Size) -> None:
        """Raises where parts of this shape do not fit the structure; any shape does, if not said."""
        return

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        """Which parts of scores of this shape exist: boolean, to be broadcast to `shape`; None if all do.

        Padding beyond `lengths`, along the first dimension of the parts, and what `mask` forbids do not.
        """
        _, event = self._split(shape)
        inside = None
        if self.lengths is not None:
            positions = torch.arange(event[0], device=device)
            inside = positions < self.lengths.to(device).unsqueeze(-1)
            inside = inside[(...,) + (None,) * (len(event) - 1)]
        return self._with_mask(inside, device)

    # ---- projections

    def sparsemap(self, scores: Tensor) -> Tensor:
        """argmax ⟨s, μ⟩ − ½‖μ‖² over conv 𝒵 (SparseMAP): the point of the polytope nearest to `scores`.

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
        return self.sparsemap(point)

    def support(self, scores: Tensor) -> Mixture:
        """The vertices and probabilities of a SparseMAP solution; the probabilities are differentiable."""
        scores = self.restrict(scores)
        found = self._search(scores.detach())
        probabilities = affine_probabilities(scores, found, self.event_dims)
        return Mixture(found.vertices, probabilities, found.size)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        """The SparseMAP solution with the vertices it mixes, its gap, and how many rounds it took.

        `start` (*batch, k, *event) holds vertices to begin with, padded with zeros: those of the solution for scores
        nearby save most rounds.  Rows that are not vertices are ignored.
        """
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
        allowed = self.allowed(scores.shape, scores.device)
        return scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)

    def inner(self, scores: Tensor, point: Tensor) -> Tensor:
        """⟨scores, point⟩, one number per example; a part at −∞ that `point` does not use adds nothing."""
        scores = self.restrict(scores)
        unused = (point == 0) & (scores == -torch.inf)
        return (scores.masked_fill(unused, 0) * point).flatten(-self.event_dims).sum(-1)

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

    # ---- for members

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Scores as kernels read them, with −∞ where the mask forbids, and one length per example."""
        scores = self._checked(scores)
        if self.mask is not None:
            check_mask(type(self).__name__, self.mask, scores.shape)
            scores = scores.masked_fill(~self.mask.to(scores.device), -torch.inf)
        return scores, self._lengths_of(scores)

    def _lengths_of(self, scores: Tensor) -> Tensor:
        batch, event = self._split(scores.shape)
        if self.lengths is None:
            return torch.full(batch, self.longest(event), dtype=torch.int64, device=scores.device)
        check_lengths(type(self).__name__, self.lengths, batch)
        return self.lengths.to(scores.device, torch.int64).expand(batch)

    def _checked(self, scores: Tensor) -> Tensor:
        check_scores(type(self).__name__, scores, self.event_dims)
        self.check_event(self._split(scores.shape)[1])
        if scores.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(scores.device.type):
            return scores.float()
        return scores

    def _check_facts(self, shape: torch.Size) -> None:
        """Raises where lengths or mask do not fit scores of this shape."""
        name = type(self).__name__
        if self.mask is not None:
            check_mask(name, self.mask, shape)
        if self.lengths is not None:
            batch, event = self._split(shape)
            most = self.longest(event)
            check_lengths(name, self.lengths, batch)
            inside = (self.lengths >= 0) & (self.lengths <= most)
            check(inside, f"{name}: lengths{{example}} is out of range; expected between 0 and {most}.")

    def _with_mask(self, inside: Tensor | None, device: torch.device | None) -> Tensor | None:
        if self.mask is None:
            return inside
        mask = self.mask.to(device)
        return mask if inside is None else inside & mask

    def _split(self, shape: Sequence[int]) -> tuple[torch.Size, torch.Size]:
        """The dimensions of the batch and those of the parts."""
        shape = torch.Size(shape)
        at = len(shape) - self.event_dims
        return shape[:at], shape[at:]

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        """The vertices whose mixture is nearest to scores that are restricted; with `spanning`, all of its face."""
        return active_set.search(self.argmax, scores, self.event_dims, spanning=spanning, start=start)

    def _known_vertices(self, start: Tensor, scores: Tensor) -> Tensor:
        """`start` with zeros in rows that are not vertices."""
        batch, event = self._split(scores.shape)
        check_start(start, batch, event)
        is_vertex = self.contains(start.movedim(len(batch), 0)).movedim(0, len(batch))
        return start.masked_fill(~self.widen(is_vertex), 0)


class LogLinear(Structure):
    """A structure whose log-partition function can be computed: p(z) ∝ exp⟨s, z⟩."""

    offer = "a partition function"

    @abstractmethod
    def log_partition(self, scores: Tensor) -> Tensor:
        """log Σ exp⟨scores, z⟩ over all vertices; one number per example."""

    def marginals(self, scores: Tensor) -> Tensor:
        """The expected vertex: the gradient of `log_partition`.  Differentiable."""
        differentiable = torch.is_grad_enabled() and scores.requires_grad
        with torch.inference_mode(False), torch.enable_grad():
            if not differentiable:
                scores = scores.clone() if scores.is_inference() else scores.detach()
                scores.requires_grad_()
            total = self.log_partition(scores).sum()
            (expected,) = torch.autograd.grad(total, scores, create_graph=differentiable)
        return expected

    def entropy(self, scores: Tensor) -> Tensor:
        """−Σ p(z) log p(z) = log_partition(s) − ⟨s, marginals(s)⟩; one number per example."""
        scores = self.restrict(scores)
        exact = scores.double()
        entropy = self.log_partition(exact) - self.inner(exact, self.marginals(exact))
        return (entropy + (-entropy.detach()).clamp_min(0)).to(scores.dtype)  # a difference of sums may round below 0

    def log_prob(self, scores: Tensor, z: Tensor) -> Tensor:
        """⟨s, z⟩ − log_partition(s); −∞ where `z` is not a vertex.  `z` may have further leading dimensions."""
        event = self._split(scores.shape)[1]
        if self._split(z.shape)[1] != event:
            raise ValueError(
                f"{type(self).__name__}: z has shape {tuple(z.shape)}; expected (..., {str(tuple(event))[1:]}."
            )
        scores = self.restrict(scores)
        exact = scores.double()
        value = self.inner(exact, z) - self.log_partition(exact)
        value = value - value.detach().clamp_min(0)  # a difference of sums may round above 0
        return value.masked_fill(~self.contains(z), -torch.inf).to(scores.dtype)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        """The largest entropy of a distribution whose mean is `point`, any point of conv 𝒵; one number per example.

        The entropy of p(z) ∝ exp⟨s, z⟩ when `point` is marginals(s), and 0 at a vertex.  Its gradient is −s.
        """
        mean = self.project(point.detach().double())  # the nearest point that is exactly one of the polytope
        distance = (mean - point.detach()).abs().flatten(-self.event_dims).amax(-1)
        check(
            distance <= max(1e-7, 10 * torch.finfo(point.dtype).eps),
            f"{type(self).__name__}: the target of example {{example}} lies outside the polytope.",
        )
        entropy, theta = maximum_entropy(self.log_partition, mean, self.event_dims)
        moved = (point - point.detach()) * theta.masked_fill(theta == -torch.inf, 0).to(point.dtype)
        return entropy.to(point.dtype) - moved.flatten(-self.event_dims).sum(-1)

    @abstractmethod
    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Independent vertices drawn from p: (*sample_shape, *batch, *event).  Exact; never requires grad."""


class Enumerable(Structure):
    """A structure that can list its vertices, where they are few."""

    offer = "a list of vertices"

    @abstractmethod
    def vertices(self, event: Sequence[int]) -> Tensor:
        """Every vertex that some example may take, and possibly others, as zeros and ones: (m, *event)."""

    @final
    def enumerate(self, shape: Sequence[int]) -> Enumeration:
        """Every vertex for scores of this shape, and which example each belongs to."""
        batch, event = self._split(shape)
        listed = self.vertices(event)
        belongs = self.contains(listed.reshape(-1, *(1,) * len(batch), *event).expand(-1, *batch, *event))
        used = belongs.flatten(1).any(1) if batch else belongs
        return Enumeration(listed[used], belongs[used])


class KBest(Structure):
    """A structure that can list its best vertices in order."""

    offer = "its k best vertices"

    def topk(self, scores: Tensor, k: int) -> TopK:
        """The `k` best vertices and their scores, all different; the scores are differentiable."""
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"{type(self).__name__}: k is {k!r}; expected an integer ≥ 1.")
        scores = self._checked(scores)
        vertices, size = self._best(scores.detach(), k)
        used = scores.unsqueeze(-1 - self.event_dims).masked_fill(vertices == 0, 0)
        values = (used * vertices).flatten(-self.event_dims).sum(-1)
        missing = torch.arange(k, device=size.device) >= size.unsqueeze(-1)
        return TopK(vertices, values.masked_fill(missing, -torch.inf), size)

    @abstractmethod
    def _best(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(*batch, k, *event), best first, and how many there are: (*batch)."""


class Simplex(LogLinear):
    """A structure whose vertices are unit vectors, so that α-entmax is defined on it."""

    offer = "unit vectors (Categorical)"

    @abstractmethod
    def entmax(self, scores: Tensor, alpha: float | Tensor) -> Tensor:
        """argmax ⟨s, p⟩ + H(p) with Tsallis' entropy of order α: softmax at 1, sparsemax at 2.  Differentiable."""


Capability = TypeVar("Capability", bound=Structure)


def require(structure: Structure, capability: type[Capability], who: str) -> Capability:
    """`structure`, which has to offer what `who` needs; otherwise raises `MissingCapability`."""
    if not structure.offers(capability):
        raise MissingCapability(
            f"{who} needs {capability.offer}, and {type(structure).__name__} has none; "
            "a squared-norm method such as `sparsemap` or `spigot` needs only an argmax."
        )
    return structure  # type: ignore[return-value]  # a wrapper offers what it wraps


def directly(structure: Structure, scores: Tensor) -> Solution:
    """The solution of a structure whose `support` needs no search, and so no start."""
    with torch.no_grad():
        scores = structure.restrict(scores)
        mixture = structure.support(scores)
        point = mixture.mean()
        rest = scores.masked_fill(scores == -torch.inf, 0).double() - point
        best = structure.argmax(rest.masked_fill(scores == -torch.inf, -torch.inf))
        gap = (rest * (best - point)).flatten(-structure.event_dims).sum(-1)
    return Solution(mixture, gap, torch.zeros_like(mixture.size), torch.ones_like(gap, dtype=torch.bool))


def affine_probabilities(scores: Tensor, found: Found, event_dims: int) -> Tensor:
    """The probabilities of a support as functions of the scores.

    Near the solution they minimize ½‖Σ pᵢ zᵢ − s‖² subject to Σ pᵢ = 1 alone, which is a linear system in the Gram
    matrix of the vertices.  Adding 11ᵀ to it changes nothing under that constraint and makes it regular whenever
    the vertices are affinely independent.
    """
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return found.probabilities
    used = found.probabilities > 0
    rows = found.vertices.flatten(-event_dims).double() * used[..., None]
    values = (rows @ scores.masked_fill(scores == -torch.inf, 0).flatten(-event_dims).double()[..., None]).squeeze(-1)
    ones = used.double()
    gram = rows @ rows.mT + ones[..., None] * ones[..., None, :] + torch.diag_embed(1 - ones)
    factor = torch.linalg.cholesky(gram)
    solved = torch.cholesky_solve(torch.stack([values, ones], -1), factor)
    free, unit = solved[..., 0], solved[..., 1]
    affine = free + unit * ((1 - free.sum(-1)) / unit.sum(-1))[..., None]
    return found.probabilities + (affine - affine.detach()).to(scores.dtype)

"""What a structure may offer beside its argmax: its sums, its vertices, the best of them, α-entmax."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar, final

import torch
from torch import Tensor

from pullback.operators._check import check
from pullback.structures._limits import MOST_NUMBERS
from pullback.structures._maximum_entropy import maximum_entropy
from pullback.structures._results import Enumeration, TopK, TransportPlan
from pullback.structures._structure import Structure


class MissingCapability(TypeError, AttributeError):
    """A structure was asked for something it cannot give, such as a partition function."""


class LogLinear(Structure):
    """A structure whose log-partition function can be computed: p(z) ∝ exp⟨s, z⟩.

    Where it has scores of its own, p(z) ∝ exp(⟨s, z⟩ + own_score(z)).
    """

    offer = "a partition function"

    @abstractmethod
    def log_partition(self, scores: Tensor) -> Tensor:
        """log Σ exp⟨scores, z⟩ over all vertices; one number per example."""

    def marginals(self, scores: Tensor) -> Tensor:
        """The expected vertex: the derivative of `log_partition` in each part.  Differentiable."""
        differentiable = torch.is_grad_enabled() and scores.requires_grad
        with torch.inference_mode(False), torch.enable_grad():
            if not differentiable:
                scores = scores.clone() if scores.is_inference() else scores.detach()
                scores.requires_grad_()
            total = self.log_partition(scores).sum()
            (expected,) = torch.autograd.grad(total, scores, create_graph=differentiable)
        return self.gradient_of_parts(expected)

    def entropy(self, scores: Tensor) -> Tensor:
        """−Σ p(z) log p(z) = log_partition(s) − ⟨s, marginals(s)⟩; one number per example."""
        if self.has_own_scores:
            raise TypeError(f"{type(self).__name__} has scores of its own, and needs an `entropy` of its own.")
        scores = self.restrict(scores)
        exact = self._without_offset(scores.double())
        entropy = self.log_partition(exact) - self.inner(exact, self.marginals(exact))
        return at_least_zero(entropy).to(scores.dtype)

    def _without_offset(self, scores: Tensor) -> Tensor:
        """Restricted scores less what all vertices have in common, which changes no probability and saves digits.

        `relative_to_best` where every vertex takes one part of each group; the scores as they are by default.
        """
        return scores

    def log_prob(self, scores: Tensor, z: Tensor) -> Tensor:
        """⟨s, z⟩ − log_partition(s); −∞ where `z` is not a vertex.  `z` may have further leading dimensions."""
        event = self._split(scores.shape)[1]
        if self._split(z.shape)[1] != event:
            raise ValueError(
                f"{type(self).__name__}: z has shape {tuple(z.shape)}; expected (..., {str(tuple(event))[1:]}."
            )
        sizes = zip(reversed(z.shape), reversed(scores.shape))
        if any(1 != ours != theirs != 1 for ours, theirs in sizes):
            raise ValueError(
                f"{type(self).__name__}: z has shape {tuple(z.shape)} and scores {tuple(scores.shape)}; expected z for "
                "each example of the scores, or several, in further dimensions before those of the batch."
            )
        scores = self.restrict(scores)
        exact = self._without_offset(scores.double())
        value = self.inner(exact, z) - self.log_partition(exact)
        if self.has_own_scores:
            own = self.own_score(z.double())
            value = value + own.masked_fill(own == -torch.inf, 0)  # such a z is not a vertex, see below
        value = value - value.detach().clamp_min(0)  # a difference of sums may round above 0
        return value.masked_fill(~self.contains(z), -torch.inf).to(scores.dtype)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        """The largest entropy of a distribution whose mean is `point`, any point of conv 𝒵; one number per example.

        The entropy of p(z) ∝ exp⟨s, z⟩ when `point` is marginals(s), and 0 at a vertex.  Its gradient is −s.  Where the
        structure has scores of its own, the largest sum of the entropy and the expected own score.
        """
        mean = self.project(point.detach().double())  # the nearest point that is exactly one of the polytope
        distance = (mean - point.detach()).abs().flatten(-self.event_dims).amax(-1)
        check(
            distance <= max(1e-7, 10 * torch.finfo(point.dtype).eps),
            f"{type(self).__name__}: the point of example {{example}} lies outside the polytope; "
            "expected a mixture of vertices.",
        )
        entropy, theta = maximum_entropy(self, mean)
        if self.has_own_scores:  # which the minimum depends on as the log-partition at θ does
            value = self.log_partition(theta)
            entropy = entropy + (value - value.detach())
        moved = (point - point.detach()) * theta.masked_fill(theta == -torch.inf, 0).to(point.dtype)
        return entropy.to(point.dtype) - self.count_once(moved).flatten(-self.event_dims).sum(-1)

    @abstractmethod
    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Independent vertices drawn from p: (*sample_shape, *batch, *event).  Exact; never requires grad."""


def at_least_zero(numbers: Tensor) -> Tensor:
    """`numbers` that are differences of sums, without the little that rounding took them below 0."""
    return numbers + (-numbers.detach()).clamp_min(0)


def relative_to_best(scores: Tensor, dims: int | tuple[int, ...]) -> Tensor:
    """`scores` less the largest along `dims`, as a constant; where all are −∞ they stay so."""
    best = scores.detach().amax(dims, keepdim=True)
    return scores - best.masked_fill(best == -torch.inf, 0)


class Enumerable(Structure):
    """A structure that can list its vertices, where they are few."""

    offer = "a list of vertices"

    @abstractmethod
    def vertices(self, event: Sequence[int]) -> Tensor:
        """Every vertex that some example may take, and possibly others: (m, *event)."""

    @final
    def enumerate(self, shape: Sequence[int]) -> Enumeration:
        """Every vertex for scores of this shape, and which example each belongs to."""
        batch, event = self._split(shape)
        listed = self.vertices(event)
        belongs = self.contains(listed.reshape(-1, *(1,) * len(batch), *event).expand(-1, *batch, *event))
        used = belongs.reshape(len(listed), -1).any(1) | (batch.numel() == 0)
        return Enumeration(listed[used], belongs[used])


def vertices_by_length(
    structure: Structure, event: Sequence[int], list_one: Callable[[tuple[int, ...]], Tensor]
) -> Tensor:
    """The vertices `list_one(length)` (m, *event) of every length that examples have, as `longest` has it."""
    if structure.lengths is None:
        return list_one(structure.longest(event))
    batch = getattr(structure.lengths, "shape", ())
    structure._check_facts(torch.Size((*(batch if structure.length_axes == 1 else batch[:-1]), *event)))
    lengths = sorted(set(map(tuple, structure.lengths.reshape(-1, structure.length_axes).tolist())))
    every = [list_one(length) for length in lengths or [structure.longest(event)]]  # there may be no examples
    return every[0] if len(every) == 1 else torch.cat(every).unique(dim=0)  # different lengths may share some


class KBest(Structure):
    """A structure that can list its best vertices in order."""

    offer = "a list of its k best vertices"

    def topk(self, scores: Tensor, k: int) -> TopK:
        """The `k` best vertices and their scores, all different; the scores are differentiable."""
        if not isinstance(k, int) or isinstance(k, bool) or k < 1:
            raise ValueError(f"{type(self).__name__}: k is {k!r}; expected an integer ≥ 1.")
        scores = self._checked(scores)
        if k * scores.numel() > MOST_NUMBERS:
            most = MOST_NUMBERS // scores.numel()
            raise ValueError(
                f"{type(self).__name__}: k is {k}; expected at most {most} vertices for scores of shape "
                f"{tuple(scores.shape)}."
            )
        vertices, size = self.best_vertices(scores.detach(), k)
        used = scores.unsqueeze(-1 - self.event_dims).masked_fill(vertices == 0, 0)
        values = self.count_once(used * vertices).flatten(-self.event_dims).sum(-1, dtype=torch.float64)
        if self.has_own_scores:
            at = len(self.batch_shape(scores))
            values = values + self.own_score(vertices.double().movedim(at, 0)).movedim(0, at)
        missing = torch.arange(k, device=size.device) >= size.unsqueeze(-1)
        return TopK(vertices, values.masked_fill(missing, -torch.inf).to(scores.dtype), size)

    @abstractmethod
    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """(*batch, k, *event), best first, and how many there are: (*batch)."""


class Lattice(Structure):
    """A structure whose vertices are paths through a lattice: the best of them through each part can be computed."""

    offer = "max-marginals"

    @abstractmethod
    def max_marginals(self, scores: Tensor) -> Tensor:
        """The score of the best vertex that has each part, shaped like `scores`.

        −∞ where no vertex has it, and 0 in padding and in cells that are no part of the structure, such as moves from
        above into the first row of an alignment.  Scores of the structure's own, such as those of transitions, count
        too.  The largest is the score of the argmax, and where it falls off to the others tells how sure that is.
        Never requires grad.
        """


class Simplex(LogLinear):
    """A structure whose vertices are unit vectors, so that α-entmax is defined on it."""

    offer = "unit vectors (Categorical)"

    @abstractmethod
    def entmax(self, scores: Tensor, alpha: float | Tensor) -> Tensor:
        """argmax ⟨s, p⟩ + H(p) with Tsallis' entropy of order α: softmax at 1, sparsemax at 2.  Differentiable."""


class Transport(Structure):
    """A structure whose polytope is given by the sums of rows and columns, so that Sinkhorn's plan is defined on it."""

    offer = "rows and columns that are matched (Matching)"

    @abstractmethod
    def transport(
        self,
        scores: Tensor,
        start: tuple[Tensor, Tensor] | None = None,
        *,
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
    ) -> TransportPlan:
        """argmax ⟨s, μ⟩ − Σ μ log μ over conv 𝒵, and how it was found; the point is differentiable.

        The search ends when no sum of a row or column is off by more than `tolerance`, or after `max_iterations`.
        `start` holds prices of rows (*batch, n) and of columns (*batch, m) to begin with, those of scores nearby.
        """


def _explain(structure: Structure, name: str) -> NoReturn:
    """What is said of an attribute that `structure` does not have: if others have it, why this one does not."""
    for capability in (LogLinear, Enumerable, KBest, Lattice, Simplex, Transport):
        if name in vars(capability) and not name.startswith("_"):
            raise MissingCapability(f"{type(structure).__name__} has no {name}: {structure.why_not(capability)}")
    raise AttributeError(f"{type(structure).__name__} has no attribute {name!r}.", name=name, obj=structure)


Structure.__getattr__ = _explain  # type: ignore[attr-defined]  # not in the class: type checkers would allow any name

Capability = TypeVar("Capability", bound=Structure)


def require(structure: Structure, capability: type[Capability], who: str) -> Capability:
    """`structure`, which has to offer what `who` needs; otherwise raises `MissingCapability`."""
    if not structure.offers(capability):
        reason = structure.why_not(capability)
        raise MissingCapability(f"{who} needs {capability.offer}, and {type(structure).__name__} has none; {reason}")
    return structure  # type: ignore[return-value]  # a wrapper offers what it wraps

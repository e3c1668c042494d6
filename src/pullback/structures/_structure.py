"""The interface of a structure, and what follows from it."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pullback.structures._bridge import check
from pullback.structures._maximum_entropy import maximum_entropy
from pullback.structures._projection import Projection, check_start, moving_point, project


class MissingCapability(TypeError):
    """A structure was asked for something it cannot give, such as a partition function."""


class Support(NamedTuple):
    """The vertices that a SparseMAP solution mixes.

    vertices: (..., m, *event), zeros beyond `count`;  probabilities: (..., m);  count: (...), how many are in use.
    """

    vertices: Tensor
    probabilities: Tensor
    count: Tensor  # type: ignore[assignment]  # shadows tuple.count


class Structure(ABC):
    """A set 𝒵 of 0/1 vertices and its convex hull, one of each for every example of a batch.

    Scores have any number of batch dimensions followed by `event_dims` dimensions that index the parts.  A structure is
    immutable; what is particular to a batch (lengths, masks, budgets) are its fields.  A new one needs `argmax` alone;
    `enumerate` brings exact estimators and the tests, and a faster `sparsemap` may replace the one written here.
    """

    event_dims: ClassVar[int] = 1

    @abstractmethod
    def argmax(self, scores: Tensor) -> Tensor:
        """The best vertex (MAP): zeros and ones, shaped like `scores`; its output never requires grad."""

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The point of the polytope nearest to `scores` (SparseMAP).

        argmin ½‖μ − s‖² over conv 𝒵, by the active-set method: each round costs one `argmax`.  Differentiable: the
        Jacobian projects onto the span of the face that μ lies on; where a gradient will be needed, two or more further
        calls of `argmax` look for vertices of that face beyond those in use.  Reference: Niculae et al. (2018).
        """
        scores = self.restrict(scores)
        found = self._project(scores.detach(), spanning=torch.is_grad_enabled() and scores.requires_grad)
        return moving_point(scores, found, self.event_dims)

    def support(self, scores: Tensor) -> Support:
        """The vertices and probabilities of a SparseMAP solution; the probabilities are differentiable."""
        scores = self.restrict(scores)
        found = self._project(scores.detach())
        return Support(found.vertices, affine_probabilities(scores, found, self.event_dims), found.count)

    def project(self, scores: Tensor, start: Tensor | None = None) -> Projection:
        """The SparseMAP solution with the vertices it mixes, its gap, and how many rounds the active-set method took.

        `start` (*batch, k, *event) holds vertices to begin with, padded with zeros: those of the solution for scores
        nearby save most rounds.  What is no vertex is passed over.
        """
        return self._project(self.restrict(scores).detach(), start=start)

    def enumerate(self, event_shape: Sequence[int]) -> Tensor:
        """Every vertex that some example of the batch may take: (vertices, *event_shape); `contains` tells whose."""
        raise MissingCapability(f"{type(self).__name__} cannot list its vertices: it has no `enumerate`.")

    def contains(self, vertices: Tensor) -> Tensor:
        """Whether each of `vertices` (..., *batch, *event) is a vertex for its example: (..., *batch)."""
        event = vertices.shape[vertices.dim() - self.event_dims :]
        every = self.enumerate(event).to(vertices).flatten(1)
        return (vertices.flatten(-self.event_dims).unsqueeze(-2) == every).all(-1).any(-1)

    def restrict(self, scores: Tensor) -> Tensor:
        """`scores` once checked, with every forbidden or padded part at −∞.

        Half precision under autocast becomes float32 here.  Members with masks or lengths extend this.
        """
        if not isinstance(scores, Tensor):
            raise TypeError(f"{type(self).__name__}: scores are a {type(scores).__name__}; expected a torch.Tensor.")
        if not scores.is_floating_point():
            raise TypeError(f"{type(self).__name__}: scores have dtype {scores.dtype}; expected a floating dtype.")
        if scores.dim() < self.event_dims:
            raise ValueError(
                f"{type(self).__name__}: scores have shape {tuple(scores.shape)}; "
                f"expected at least {self.event_dims} dimension(s)."
            )
        if 0 in scores.shape[scores.dim() - self.event_dims :]:
            raise ValueError(
                f"{type(self).__name__}: scores have shape {tuple(scores.shape)}; expected at least one part."
            )
        if scores.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(scores.device.type):
            return scores.float()
        return scores

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

    def _project(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Projection:
        if start is not None:
            at = scores.dim() - self.event_dims
            check_start(start, scores.shape[:at], scores.shape[at:])
            is_vertex = self.contains(start.movedim(at, 0)).movedim(0, at)
            start = start.masked_fill(~self.widen(is_vertex), 0)
        return project(self.argmax, scores, self.event_dims, spanning=spanning, start=start)


class LogLinear(Structure):
    """A structure whose log-partition function can be computed: p(z) ∝ exp⟨s, z⟩."""

    @abstractmethod
    def log_partition(self, scores: Tensor) -> Tensor:
        """log Σ exp⟨scores, z⟩ over all vertices; one number per example."""

    def marginals(self, scores: Tensor) -> Tensor:
        """The expected vertex: the gradient of `log_partition`.  Differentiable."""
        with torch.enable_grad():
            differentiable = scores.requires_grad
            if not differentiable:
                scores = scores.detach().requires_grad_()
            total = self.log_partition(scores).sum()
            (expected,) = torch.autograd.grad(total, scores, create_graph=differentiable)
        return expected

    def entropy(self, scores: Tensor) -> Tensor:
        """−Σ p(z) log p(z) = log_partition(s) − ⟨s, marginals(s)⟩; one number per example."""
        exact = self.restrict(scores).double()
        entropy = self.log_partition(exact) - self.inner(exact, self.marginals(exact))
        return (entropy + (-entropy.detach()).clamp_min(0)).to(scores.dtype)  # a difference of sums may round below 0

    def log_prob(self, scores: Tensor, z: Tensor) -> Tensor:
        """⟨s, z⟩ − log_partition(s); −∞ where `z` is not a vertex.  `z` may have further leading dimensions."""
        event = scores.shape[scores.dim() - self.event_dims :]
        if z.shape[z.dim() - self.event_dims :] != event:
            raise ValueError(
                f"{type(self).__name__}: z has shape {tuple(z.shape)}; expected (..., {str(tuple(event))[1:]}."
            )
        restricted = self.restrict(scores)
        exact = restricted.double()
        value = self.inner(exact, z) - self.log_partition(exact)
        value = value - value.detach().clamp_min(0)  # a difference of sums may round above 0
        return value.masked_fill(~self.contains(z), -torch.inf).to(restricted.dtype)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        """The largest entropy of a distribution whose mean is `point`, any point of conv 𝒵; one number per example.

        The entropy of p(z) ∝ exp⟨s, z⟩ when `point` is marginals(s), and 0 at a vertex.  Its gradient is −s.
        """
        mean = self.sparsemap(point.detach().double())  # the nearest point that is exactly one of the polytope
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


class Simplex(LogLinear):
    """A structure whose vertices are unit vectors, so that α-entmax is defined on it."""

    @abstractmethod
    def entmax(self, scores: Tensor, alpha: float | Tensor) -> Tensor:
        """argmax ⟨s, p⟩ + H(p) with Tsallis' entropy of order α: softmax at 1, sparsemax at 2.  Differentiable."""


def affine_probabilities(scores: Tensor, found: Projection, event_dims: int) -> Tensor:
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


def restrict_items(name: str, scores: Tensor, lengths: Tensor | None, mask: Tensor | None) -> Tensor:
    """Scores (..., n) with −∞ at padded and masked items, for structures over a list of items."""
    n = scores.shape[-1]
    if lengths is not None:
        check_lengths(name, lengths, scores.shape[:-1], n)
        inside = torch.arange(n, device=scores.device) < lengths.to(scores.device).unsqueeze(-1)
        scores = scores.masked_fill(~inside, -torch.inf)
    if mask is not None:
        check_mask(name, mask, scores)
        scores = scores.masked_fill(~mask.to(scores.device), -torch.inf)
    return scores


def check_lengths(name: str, lengths: Tensor, batch_shape: torch.Size, largest: int) -> None:
    """Lengths are integers between 0 and `largest`, one per example."""
    if not isinstance(lengths, Tensor):
        raise TypeError(f"{name}: lengths are a {type(lengths).__name__}; expected a tensor of integers.")
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype == torch.bool:
        raise TypeError(f"{name}: lengths have dtype {lengths.dtype}; expected an integer dtype.")
    if not _broadcasts(lengths.shape, batch_shape):
        raise ValueError(
            f"{name}: lengths have shape {tuple(lengths.shape)}; expected the batch shape {tuple(batch_shape)}."
        )
    check(
        (lengths >= 0) & (lengths <= largest),
        f"{name}: lengths{{example}} is out of range; expected between 0 and {largest}.",
    )


def check_mask(name: str, mask: Tensor, scores: Tensor) -> None:
    """A mask is boolean, true where a part is allowed, and broadcasts to the scores."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}: mask is a {type(mask).__name__}; expected a boolean tensor.")
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: mask has dtype {mask.dtype}; expected torch.bool, true where a part is allowed.")
    if not _broadcasts(mask.shape, scores.shape):
        raise ValueError(
            f"{name}: mask has shape {tuple(mask.shape)}; expected the shape of the scores, {tuple(scores.shape)}."
        )


def _broadcasts(shape: torch.Size, to: torch.Size) -> bool:
    return len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to)))

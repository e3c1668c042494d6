"""Several latent variables of one kind in every example."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators._search import check_start
from pullback.structures._capabilities import Enumerable, KBest, Lattice, LogLinear, Simplex, Transport, require
from pullback.structures._combinations import combine_best, combine_mixtures, list_combinations
from pullback.structures._results import Mixture, Solution, TransportPlan
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Independent(Simplex, Transport, KBest, Enumerable):
    """Copies of a structure, chosen independently, with one loss per example for all of them.

    The last `dims` batch dimensions of the inner structure become dimensions of the parts, as in torch.distributions:
    eight choices out of sixteen with one loss per example are scores (batch, 8, 16) and `Independent(Categorical())`.
    It has what the inner structure has (`offers` tells) but for `max_marginals`, computed as one batch; log-partition,
    entropy and log-probability are sums over the copies.  Vertices and supports are lists of combinations, and refuse
    to be made where there are too many.

    structure: of one copy; its lengths and masks have the dimensions of the copies.
    dims: how many dimensions count the copies.
    """

    structure: Structure
    _: KW_ONLY
    dims: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.structure, Structure):
            raise TypeError(f"Independent: structure is a {type(self.structure).__name__}; expected a Structure.")
        if not isinstance(self.dims, int) or isinstance(self.dims, bool) or self.dims < 1:
            raise ValueError(f"Independent: dims is {self.dims!r}; expected an integer ≥ 1.")

    @property
    def event_dims(self) -> int:  # type: ignore[override]
        return self.structure.event_dims + self.dims

    @property
    def is_zero_one(self) -> bool:  # type: ignore[override]
        return self.structure.is_zero_one

    def offers(self, capability: type[Structure]) -> bool:
        return isinstance(self, capability) and self.structure.offers(capability)

    def why_not(self, capability: type[Structure]) -> str:
        if capability is Lattice and self.structure.offers(Lattice):
            return "ask the structure of one copy, `.structure.max_marginals(scores)`: to it copies are a batch."
        return self.structure.why_not(capability)

    # ---- copy by copy

    def argmax(self, scores: Tensor) -> Tensor:
        return self.structure.argmax(self._checked(scores))

    def sparsemap(self, scores: Tensor) -> Tensor:
        return self.structure.sparsemap(self._checked(scores))

    def project(self, point: Tensor) -> Tensor:
        return self.structure.project(self._checked(point))

    def marginals(self, scores: Tensor) -> Tensor:
        return self._log_linear("marginals").marginals(self._checked(scores))

    def entmax(self, scores: Tensor, alpha: float | Tensor) -> Tensor:
        if isinstance(alpha, Tensor) and alpha.dim() > 0:
            alpha = alpha[(...,) + (None,) * self.dims]  # one for each example
        return require(self.structure, Simplex, "Independent.entmax").entmax(self._checked(scores), alpha)

    def transport(
        self,
        scores: Tensor,
        start: tuple[Tensor, Tensor] | None = None,
        *,
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
    ) -> TransportPlan:
        """Copy by copy: prices, iterations and errors have the dimensions of the copies."""
        inner = require(self.structure, Transport, "Independent.transport")
        return inner.transport(self._checked(scores), start, tolerance=tolerance, max_iterations=max_iterations)

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        return self._log_linear("sample").sample(self._checked(scores), sample_shape, generator=generator)

    def restrict(self, scores: Tensor) -> Tensor:
        return self.structure.restrict(self._checked(scores))

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        return self.structure.allowed(shape, device)

    def forbid(self, scores: Tensor) -> Tensor:
        return self.structure.forbid(scores)

    def count_once(self, numbers: Tensor) -> Tensor:
        return self.structure.count_once(numbers)

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        return self.structure.visible(gradient, usable)

    def gradient_of_parts(self, gradient: Tensor) -> Tensor:
        return self.structure.gradient_of_parts(gradient)

    # ---- sums over the copies

    @property
    def has_own_scores(self) -> bool:  # type: ignore[override]
        return self.structure.has_own_scores

    def own_score(self, point: Tensor) -> Tensor:
        return self._sum(self.structure.own_score(point))

    def log_partition(self, scores: Tensor) -> Tensor:
        return self._sum(self._log_linear("log_partition").log_partition(self._checked(scores)))

    def entropy(self, scores: Tensor) -> Tensor:
        return self._sum(self._log_linear("entropy").entropy(self._checked(scores)))

    def maximum_entropy(self, point: Tensor) -> Tensor:
        return self._sum(self._log_linear("maximum_entropy").maximum_entropy(point))

    def log_prob(self, scores: Tensor, z: Tensor) -> Tensor:
        return self._sum(self._log_linear("log_prob").log_prob(scores, z))

    def contains(self, vertices: Tensor) -> Tensor:
        return self.structure.contains(vertices).flatten(-self.dims).all(-1)

    # ---- combinations

    def vertices(self, event: Sequence[int]) -> Tensor:
        one = require(self.structure, Enumerable, "Independent.enumerate").vertices(event[self.dims :]).flatten(1)
        copies = torch.Size(event[: self.dims]).numel()
        return list_combinations("Independent", [one] * copies).reshape(-1, *event)

    def support(self, scores: Tensor) -> Mixture:
        scores = self._checked(scores)
        batch, event = self._split(scores.shape)
        return self._combined(self.structure.support(scores), len(batch), event)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        """Copy by copy, each started from its part of the given vertices; the gap is the sum of theirs."""
        scores = self._checked(scores)
        batch, event = self._split(scores.shape)
        if start is not None:
            check_start("Independent", start, batch, event)
            start = start.movedim(len(batch), len(batch) + self.dims)
        found = self.structure.solve(scores, start)
        mixture = self._combined(found.mixture, len(batch), event)
        iterations, converged = (tensor.flatten(-self.dims) for tensor in (found.iterations, found.converged))
        return Solution(mixture, self._sum(found.gap), iterations.amax(-1), converged.all(-1))

    def _combined(self, per_copy: Mixture, batch_dims: int, event: torch.Size) -> Mixture:
        blocks = zip(*(self._blocks(tensor, batch_dims) for tensor in per_copy))
        every = combine_mixtures("Independent", [Mixture(v.flatten(batch_dims + 1), p, n) for v, p, n in blocks])
        return Mixture(every.vertices.reshape(*every.probabilities.shape, *event), every.probabilities, every.size)

    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        batch, event = self._split(scores.shape)
        best = require(self.structure, KBest, "Independent.topk").topk(scores, k)
        blocks = zip(self._blocks(best.vertices, len(batch)), self._blocks(best.scores, len(batch)))
        vertices, size = combine_best([(v.flatten(len(batch) + 1), s) for v, s in blocks], k)
        return vertices.reshape(*batch, k, *event), size

    # ---- plumbing

    def _log_linear(self, what: str) -> LogLinear:
        return require(self.structure, LogLinear, f"Independent.{what}")

    def _sum(self, per_copy: Tensor) -> Tensor:
        return per_copy.flatten(-self.dims).sum(-1)

    def _blocks(self, per_copy: Tensor, batch_dims: int) -> tuple[Tensor, ...]:
        """One tensor for each copy."""
        return per_copy.flatten(batch_dims, batch_dims + self.dims - 1).unbind(batch_dims)

"""Structures that a whole family of operators serves: what they share once a vertex has one part per slot."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.operators._family import Choices, Family
from pullback.operators._mixture import GAP_OF_DERIVATIVE, GAP_OF_POINT, MAX_ITERATIONS
from pullback.operators._register import hides_grad, may_need_grad
from pullback.operators._search import Found
from pullback.structures._capabilities import Enumerable, KBest, Lattice, LogLinear, vertices_by_length
from pullback.structures._checks import check_sample_shape
from pullback.structures._random import seeds


class Slotted(KBest, Enumerable):
    """A structure whose vertices take one part for each of several slots, with kernels for the best of them.

    A tree has a head for every word, a chain a pair of tags for every position.  So one active set serves all of them,
    for SparseMAP, supports and warm starts.
    """

    @property
    @abstractmethod
    def _operators(self) -> Choices:
        """The kernels, as PyTorch knows them."""

    @property
    def _options(self) -> tuple[Any, ...]:
        """What the operators take beside scores and lengths."""
        return ()

    def _inputs(self, scores: Tensor) -> tuple[Any, ...]:
        """What every operator takes first: scores as kernels read them, lengths, and the structure's options."""
        return *self._prepare(scores), *self._options

    def _constants(self, scores: Tensor) -> list[Any]:
        """`_inputs` for operators that have no derivative."""
        is_hidden, given = hides_grad(), self._inputs(scores)
        return [a.detach() if isinstance(a, Tensor) and (is_hidden or a.requires_grad) else a for a in given]

    @abstractmethod
    def _slots(self, event: Sequence[int]) -> Tensor:
        """The slot that each part belongs to, 0, 1, …: (*event), or (*batch, 1, *event) where examples differ."""

    @abstractmethod
    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        """Every vertex of this length, as `longest` has it, padded: (m, *event)."""

    def argmax(self, scores: Tensor) -> Tensor:
        return self._operators.argmax(*self._constants(scores))

    def sparsemap(self, scores: Tensor) -> Tensor:
        if self._operators.sparsemap is None:
            return super().sparsemap(scores)
        return self._operators.sparsemap(*self._inputs(scores), self._tolerance_or(GAP_OF_DERIVATIVE))[0]

    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return self._operators.topk(*self._constants(scores), k)

    def vertices(self, event: Sequence[int]) -> Tensor:
        return vertices_by_length(self, event, lambda length: self._list(length, event))

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        if spanning and self._is_exact:
            return super()._search(scores, spanning=spanning, start=start)
        scores, *facts = self._constants(scores)
        event = self._split(scores.shape)[1]
        slots = self._slots(event).flatten(-len(event)).to(scores.device)
        given = _no_vertices(scores, len(event), slots) if start is None else _as_parts(start, slots, event)
        capacity = 8 * given.shape[-1]
        while True:
            limits = (self._tolerance_or(GAP_OF_POINT), MAX_ITERATIONS, capacity)
            found = self._operators.mixture(scores, *facts, given, *limits)
            _, parts, probabilities, size, gap, iterations, converged = found
            most = int(size.max()) if size.numel() else 1
            if most <= capacity:
                break
            capacity = most  # there was no room for all of them
        if not converged.all():
            warn_of_gap(f"SparseMAP over {type(self).__name__} stopped at a gap of {float(gap.max()):.1e}.")
        vertices = _as_vertices(parts[..., :most, :], size, scores, event)
        return Found(vertices, probabilities[..., :most], size, gap, iterations + 1, converged)


class Compiled(Slotted, LogLinear):
    """A structure with a kernel for each operation, the sums over all vertices included."""

    @property
    @abstractmethod
    def _operators(self) -> Family: ...

    def log_partition(self, scores: Tensor) -> Tensor:
        return self._sum(*self._inputs(scores))

    def _sum(self, *inputs: Any) -> Tensor:
        if may_need_grad(*inputs):
            return self._operators.partition(*inputs)[0]
        return self._operators.log_partition(*inputs)

    def marginals(self, scores: Tensor) -> Tensor:
        return self._operators.partition(*self._inputs(scores))[1]

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        sample_shape = check_sample_shape(type(self).__name__, sample_shape)
        scores, *facts = self._constants(scores)
        batch = self.batch_shape(scores)
        drawn = self._operators.sample(scores, *facts, seeds(batch, generator), sample_shape.numel())
        return drawn.movedim(len(batch), 0).reshape(*sample_shape, *scores.shape)


class CompiledLattice(Compiled, Lattice):
    """One whose vertices are paths through a lattice, with kernels for the best of them through each part."""

    def max_marginals(self, scores: Tensor) -> Tensor:
        assert self._operators.max_marginals is not None
        return self._operators.max_marginals(*self._constants(scores))


def _no_vertices(scores: Tensor, event_dims: int, slots: Tensor) -> Tensor:
    return scores.new_empty((*scores.shape[:-event_dims], 0, int(slots.max()) + 1), dtype=torch.int32)


def _as_parts(vertices: Tensor, slots: Tensor, event: Sequence[int]) -> Tensor:
    """Vertices (..., *event) of zeros and ones as the part in each slot: (..., slots), −1 where there is none."""
    flat = vertices.detach().flatten(-len(event))
    parts = torch.where(flat == 1, torch.arange(flat.shape[-1], device=flat.device), -1)
    empty = parts.new_full((*flat.shape[:-1], int(slots.max()) + 1), -1)
    return empty.scatter_reduce(-1, slots.expand_as(parts), parts, "amax").to(torch.int32)


def _as_vertices(parts: Tensor, size: Tensor, scores: Tensor, event: Sequence[int]) -> Tensor:
    """The part in each slot (*batch, m, slots) as vertices (*batch, m, *event), zeros beyond `size`."""
    total = torch.Size(event).numel()
    inside = torch.arange(parts.shape[-2], device=size.device) < size.unsqueeze(-1)
    index = torch.where(inside.unsqueeze(-1) & (parts >= 0), parts.long(), total)
    flat = scores.new_zeros((*parts.shape[:-1], total + 1)).scatter(-1, index, 1.0)
    return flat[..., :total].reshape(*parts.shape[:-1], *event)

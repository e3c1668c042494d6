"""Structures whose vertices take one part per slot: a head for every word, a pair of tags for every position."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.operators.active_set import Found
from pullback.operators.mixture import GAP_OF_POINT, MAX_ITERATIONS
from pullback.structures._structure import Structure


class Slots(Structure):
    """A structure that the compiled active set serves: supports and warm starts come from it."""

    @abstractmethod
    def _slots(self, event: Sequence[int]) -> Tensor:
        """The slot that each part belongs to, 0, 1, …: (*event)."""

    @abstractmethod
    def _mix(self, scores: Tensor, lengths: Tensor, start: Tensor, *limits: float) -> tuple[Tensor, ...]:
        """The structure's `mixture` operator."""

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        if spanning:
            return super()._search(scores, spanning=spanning, start=start)
        scores, lengths = self._prepare(scores)
        event = self._split(scores.shape)[1]
        slots = self._slots(event).flatten().to(scores.device)
        given = _as_parts(start, slots, event) if start is not None else _no_vertices(lengths, slots)
        capacity = 8 * given.shape[-1]
        while True:
            found = self._mix(scores, lengths, given, GAP_OF_POINT, MAX_ITERATIONS, capacity)
            _, parts, probabilities, size, gap, iterations, converged = found
            most = int(size.max()) if size.numel() else 1
            if most <= capacity:
                break
            capacity = most
        if not converged.all():
            warn_of_gap(f"SparseMAP over {type(self).__name__} stopped at a gap of {float(gap.max()):.1e}.")
        vertices = _as_vertices(parts[..., :most, :], size, scores, event)
        return Found(vertices, probabilities[..., :most], size, gap, iterations + 1, converged)


def _no_vertices(lengths: Tensor, slots: Tensor) -> Tensor:
    return lengths.new_empty((*lengths.shape, 0, int(slots.max()) + 1), dtype=torch.int32)


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

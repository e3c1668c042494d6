"""The best vertex, found by trying them all."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.descents._descent import Downstream, Pullback, Start
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Exhaustive(Pullback):
    """z* = argmin L(z) over all vertices; ties go to the first.  The downstream loss needs no gradient.

    Costs one evaluation per vertex of `structure.enumerate`.
    """

    @property
    def uses_gradient_at_start(self) -> bool:
        return False

    @property
    def evaluations(self) -> int | None:
        return None

    def target(self, structure: Structure, scores: Tensor, start: Start, downstream: Downstream) -> Tensor:
        best = fallback = structure.argmax(scores)
        lowest = scores.new_full(structure.batch_shape(scores), torch.inf)
        for vertex in structure.enumerate(scores.shape[scores.dim() - structure.event_dims :]).to(scores):
            candidate = vertex.expand_as(scores)
            feasible = structure.contains(candidate)
            wide = feasible.reshape(feasible.shape + (1,) * structure.event_dims)
            # A vertex of another example is not tried on this one: the decoder need not make sense there.
            loss = downstream.loss_at(torch.where(wide, candidate, fallback)).masked_fill(~feasible, torch.inf)
            better = loss < lowest
            lowest = torch.where(better, loss, lowest)
            best = torch.where(better.reshape(wide.shape), candidate, best)
        return best

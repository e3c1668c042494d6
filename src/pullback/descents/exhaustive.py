"""The best vertex, found by trying them all."""

from dataclasses import dataclass

import torch

from pullback.descents._descent import Downstream, Iterate, Pullback, Pulled
from pullback.structures._capabilities import Enumerable, require
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

    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        best = start.point if start.scores is None else structure.argmax(start.scores)
        safe = best
        lowest = best.new_full(structure.batch_shape(best), torch.inf)
        for vertex, feasible in zip(*require(structure, Enumerable, "best_vertex").enumerate(best.shape)):
            candidate, feasible = vertex.to(best).expand_as(best), feasible.to(best.device)
            if start.scores is not None:
                feasible = feasible & (structure.inner(start.scores, candidate) > -torch.inf)
            # A vertex of another example is not tried on this one: the decoder need not make sense there.
            tried = torch.where(structure.widen(feasible), candidate, safe)
            loss = downstream.loss_at(tried).masked_fill(~feasible, torch.inf)
            better = loss < lowest
            lowest = torch.where(better, loss, lowest)
            best = torch.where(structure.widen(better), candidate, best)
        label = best.masked_fill(structure.widen(lowest == torch.inf), torch.nan)  # no vertex has a finite loss
        return Pulled(start.point, label)

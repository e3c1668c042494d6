"""Gradient steps that may leave the polytope."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pullback.descents._descent import Descent, Downstream, Iterate, Pulled
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Unconstrained(Descent):
    """μ ← μ − η ∇L(μ): the constraint is dropped.  One step under the perceptron loss is straight-through."""

    forbidden_change: ClassVar[float] = 0.0  # nothing is projected: a part that may not be used stays where it is

    @property
    def factor(self) -> float | None:
        is_plain = self.steps == 1 and not self.backtrack
        return float(self.step_size) if is_plain and isinstance(self.step_size, int | float) else None

    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        return Iterate(iterate.point + change)

    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        if self.steps > 1 or self.backtrack:
            return super().pull(structure, start, downstream)
        # One step is known as it is, not as the difference of two points: in float32 that would round away what a
        # small gradient says.
        forbidden = None if start.scores is None else start.scores == -torch.inf
        loss, gradient = downstream.loss_and_gradient_at(start.point)
        size = self._size(0, structure, loss, gradient, forbidden, start.scores)
        change = self._change(gradient, size, forbidden)
        return Pulled(start.point, change=change, size=size, rescale=self.rescales)

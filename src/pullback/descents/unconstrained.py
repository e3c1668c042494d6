"""Gradient steps that may leave the polytope."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.descents._descent import Descent, Iterate
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Unconstrained(Descent):
    """μ ← μ − η ∇L(μ): the constraint is dropped.  One step under the perceptron loss is straight-through."""

    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        return Iterate(iterate.point + change.masked_fill(change == -torch.inf, 0))

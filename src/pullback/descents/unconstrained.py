"""Gradient steps that may leave the polytope."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pullback.descents._descent import Descent, Iterate
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Unconstrained(Descent):
    """μ ← μ − η ∇L(μ): the constraint is dropped.  One step under the perceptron loss is straight-through."""

    forbidden_change: ClassVar[float] = 0.0  # nothing is projected: a part that may not be used stays where it is

    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        return Iterate(iterate.point + change)

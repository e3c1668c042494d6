"""Gradient steps, each projected back onto the polytope."""

from dataclasses import dataclass

from torch import Tensor

from pullback.descents._descent import Descent, Iterate
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Projected(Descent):
    """μ ← project(μ − η ∇L(μ)): projected gradient.  One step from the argmax is SPIGOT's target."""

    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        return Iterate(structure.project(iterate.point + change))

"""A draw in place of a prediction."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pullback.regularizers._regularizer import Prediction
from pullback.structures._capabilities import LogLinear, require
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Sample(Prediction):
    """An exact draw from the Gibbs distribution: z ~ p(z) ∝ exp⟨s, z⟩.  Two of them differ."""

    generator: torch.Generator | None = field(default=None, kw_only=True)

    def require(self, structure: Structure) -> None:
        require(structure, LogLinear, "Sample")

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return require(structure, LogLinear, "Sample").sample(scores.detach(), generator=self.generator)

"""Tsallis' negative entropy of order α: the prediction is α-entmax."""

from dataclasses import dataclass

from torch import Tensor

from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import MissingCapability, Simplex, Structure


@dataclass(frozen=True)
class Tsallis(Regularizer):
    """Ω(p) = Σ (pᵅ − p) / (α (α − 1)): α-entmax, between softmax (α = 1) and sparsemax (α = 2); `Categorical` only.

    Reference: Peters, Niculae and Martins (2019).
    """

    alpha: float | Tensor = 1.5

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, Tensor) and not self.alpha >= 1:
            raise ValueError(f"Tsallis: alpha is {self.alpha}; expected a number ≥ 1.")

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return _simplex(structure).entmax(scores, self.alpha)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        if not isinstance(self.alpha, Tensor) and self.alpha == 1:
            return -_simplex(structure).maximum_entropy(point)
        return (point**self.alpha - point).sum(-1) / (self.alpha * (self.alpha - 1))

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        return point.log() if self.alpha == 1 else point ** (self.alpha - 1) / (self.alpha - 1)


def _simplex(structure: Structure) -> Simplex:
    if not isinstance(structure, Simplex):
        raise MissingCapability(f"Tsallis is defined on Categorical; {type(structure).__name__} was given.")
    return structure

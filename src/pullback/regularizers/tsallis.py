"""Tsallis' negative entropy of order α: the prediction is α-entmax."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import MissingCapability, Simplex, Structure


@dataclass(frozen=True)
class Tsallis(Regularizer):
    """Ω(p) = Σ (pᵅ − p) / (α (α − 1)): α-entmax, between softmax (α = 1) and sparsemax (α = 2); `Categorical` only.

    alpha: a number, or a tensor that broadcasts to the batch and may require grad.

    Reference: Peters, Niculae and Martins (2019).
    """

    alpha: float | Tensor = 1.5

    def __post_init__(self) -> None:
        if not bool((torch.as_tensor(self.alpha) >= 1).all()):
            raise ValueError(f"Tsallis: alpha is {self.alpha}; expected numbers ≥ 1.")

    def require(self, structure: Structure) -> None:
        _simplex(structure)

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return _simplex(structure).entmax(scores, self.alpha)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        alpha = self._order(point)
        above = (alpha - 1).clamp_min(torch.finfo(point.dtype).eps)
        negative = torch.where(alpha == 1, torch.xlogy(point, point), (point**alpha - point) / (alpha * above))
        return negative.sum(-1)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        alpha = self._order(point)
        above = (alpha - 1).clamp_min(torch.finfo(point.dtype).eps)
        return torch.where(alpha == 1, point.log(), point**above / above)

    def _order(self, point: Tensor) -> Tensor:
        """α per example, ready to meet points."""
        alpha = torch.as_tensor(self.alpha, dtype=point.dtype, device=point.device)
        return alpha if alpha.dim() == 0 else alpha.unsqueeze(-1)


def _simplex(structure: Structure) -> Simplex:
    if not isinstance(structure, Simplex):
        raise MissingCapability(f"Tsallis is defined on Categorical; {type(structure).__name__} was given.")
    return structure

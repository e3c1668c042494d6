"""Tsallis' negative entropy of order α: the prediction is α-entmax."""

import torch
from torch import Tensor

from pullback.regularizers._options import Number, check_number
from pullback.regularizers._parametrized import Parametrized
from pullback.structures._capabilities import Simplex, require
from pullback.structures._structure import Structure


class Tsallis(Parametrized):
    """Ω(p) = Σ (pᵅ − p) / (α (α − 1)): α-entmax, between softmax (α = 1) and sparsemax (α = 2); `Categorical` only.

    alpha: a number, a tensor that broadcasts to the batch and may require grad, or a function of no arguments that
    returns either; a `Parameter` is trained, saved and moved with the model.

    At a part that is exactly 0 the derivative of Ω is −1 / (α (α − 1)).  For α = 1 that limit is −∞: there, as wherever
    a part is not in use, the gradient is 0.  Reference: Peters, Niculae and Martins (2019).
    """

    parameter = "alpha"

    def __init__(self, alpha: Number = 1.5) -> None:
        super().__init__()
        check_number("Tsallis: alpha", alpha, least=1)
        self.alpha = alpha

    def require(self, structure: Structure) -> None:
        require(structure, Simplex, "Tsallis")

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return require(structure, Simplex, "Tsallis").entmax(scores, self._now)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        alpha = self._per_example(structure, point)
        is_one = alpha == 1
        above = (alpha - 1).clamp_min(torch.finfo(point.dtype).eps)
        # Each formula is given points at which its own derivative exists, so that the unused one adds no NaN.
        in_use = (point > 0) & is_one
        shannon = torch.xlogy(point, torch.where(in_use, point, 1))
        power = (point ** torch.where(is_one, 2, alpha) - point) / (alpha * above)
        return torch.where(is_one, shannon, power).flatten(-structure.event_dims).sum(-1)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        alpha = self._per_example(structure, point)
        above = (alpha - 1).clamp_min(torch.finfo(point.dtype).eps)
        return torch.where(alpha == 1, point.log(), point**above / above)

"""Losses between scores and a label that may be any point of the polytope."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.operators.check import check
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class FenchelYoungLoss:
    """The Fenchel–Young loss of a regularizer.

    ℓ(s, μ*) = Ω*(s) + Ω(μ*) − ⟨s, μ*⟩ ≥ 0, zero exactly when predict(s) = μ*;  gradient predict(s) − μ*.
    `Unregularized` gives the perceptron loss, `Entropy` the CRF loss (cross-entropy minus the label's entropy when
    flat), `SquaredNorm` the SparseMAP loss.  `reduction` is PyTorch's: "mean", "sum" or "none" (one loss per example).
    Reference: Blondel, Martins and Niculae (2020).
    """

    regularizer: Regularizer
    reduction: str = "mean"

    def __post_init__(self) -> None:
        if self.reduction not in ("mean", "sum", "none"):
            raise ValueError(f'FenchelYoungLoss: reduction is {self.reduction!r}; expected "mean", "sum" or "none".')

    def __call__(self, structure: Structure, scores: Tensor, target: Tensor) -> Tensor:
        if target.shape != scores.shape:
            raise ValueError(
                f"FenchelYoungLoss: target has shape {tuple(target.shape)}; "
                f"expected the shape of the scores, {tuple(scores.shape)}."
            )
        padding = structure.restrict(torch.zeros_like(scores)) == -torch.inf
        label = target.masked_fill(padding, 0)
        slack = max(1e-4, 10 * torch.finfo(label.dtype).eps) if label.is_floating_point() else 0
        inside = ((label >= -slack) & (label <= 1 + slack)).flatten(-structure.event_dims).all(-1)
        check(inside, "FenchelYoungLoss: the target of example {example} is not between 0 and 1.")
        losses = (
            self.regularizer.conjugate(structure, scores)
            + self.regularizer.value(structure, label)
            - structure.inner(scores, label.to(scores.dtype))
        )
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

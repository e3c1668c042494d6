"""Losses between scores and a label that may be any point of the polytope."""

import torch
from torch import Tensor, nn

from pullback.operators._check import check
from pullback.regularizers._options import among
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import Structure

_REDUCTIONS = ("mean", "sum", "none")


class FenchelYoungLoss(nn.Module):
    """The Fenchel–Young loss of a regularizer.

    ℓ(s, μ*) = Ω*(s) + Ω(μ*) − ⟨s, μ*⟩ ≥ 0, zero exactly when predict(s) = μ*;  gradient predict(s) − μ*.
    `Unregularized` gives the perceptron loss, `Entropy` the CRF loss (cross-entropy minus the label's entropy when
    flat), `SquaredNorm` the SparseMAP loss.  `reduction` is PyTorch's: "mean", "sum" or "none" (one loss per example).

    A target has to lie in the polytope, up to a distance of 1e-4 (ten roundings in half precision); one that lies
    beside it counts as the nearest point.  To see that a target is a vertex takes one argmax; a batch with other
    targets costs a projection.  Reference: Blondel, Martins and Niculae (2020).
    """

    def __init__(self, regularizer: Regularizer, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise ValueError(f"FenchelYoungLoss: reduction is {reduction!r}; expected {among(reduction, _REDUCTIONS)}.")
        self.regularizer, self.reduction = regularizer, reduction

    def forward(self, structure: Structure, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of `scores` with `target`, both (*batch, *event)."""
        if target.shape != scores.shape:
            raise ValueError(
                f"FenchelYoungLoss: target has shape {tuple(target.shape)}; "
                f"expected the shape of the scores, {tuple(scores.shape)}."
            )
        label = _inside(structure, target)
        losses = (
            self.regularizer.conjugate(structure, scores)
            + self.regularizer.value(structure, label)
            - structure.inner(scores, label.to(scores.dtype))
        )
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def extra_repr(self) -> str:
        return f"{self.regularizer}, {self.reduction!r}"


def _inside(structure: Structure, target: Tensor) -> Tensor:
    """`target` as a point of the polytope, its padding zero."""
    if not target.is_floating_point():
        target = target.to(torch.get_default_dtype())
    allowed = structure.allowed(target.shape, target.device)
    label = target if allowed is None else target.masked_fill(~allowed, 0)
    given = label.detach()
    precise = given.to(torch.promote_types(given.dtype, torch.float32))
    rounding = torch.finfo(given.dtype).eps
    slack = max(1e-4, 10 * rounding)
    if structure.is_zero_one:
        between = ((given >= -slack) & (given <= 1 + slack)).flatten(-structure.event_dims).all(-1)
        check(between, "FenchelYoungLoss: the target of example {example} is not between 0 and 1.")
    if not torch.compiler.is_compiling() and bool(structure.contains(precise).all()):
        return label
    nearest = structure.project(precise)
    distance = (nearest - precise).abs().flatten(-structure.event_dims).amax(-1)
    _check_distance(distance, slack)
    beside = structure.widen(distance > max(1e-7, rounding))
    return label + (nearest - precise).masked_fill(~beside, 0).to(label.dtype)


def _check_distance(distance: Tensor, slack: float) -> None:
    """Raises for the first example whose target is further than `slack` from the polytope."""
    message = "FenchelYoungLoss: the target of example {example} lies outside the polytope"
    if torch.compiler.is_compiling():
        check(distance <= slack, f"{message}; expected a point of it.")
    elif distance.numel() and not bool((distance <= slack).all()):
        first = (~(distance <= slack)).nonzero()[0].tolist()
        off = float(distance[tuple(first)])
        raise ValueError(f"{message.format(example=first)}, {off:.2g} away from it; expected at most {slack:.2g}.")

"""Losses between scores and a label that may be any point of the polytope."""

from torch import Tensor, nn

from pullback.regularizers._labels import check_shape, inside
from pullback.regularizers._options import among
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._capabilities import at_least_zero
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
        if not isinstance(regularizer, Regularizer):
            raise TypeError(
                f"FenchelYoungLoss: regularizer is {regularizer!r}; expected a Regularizer such as Entropy()."
            )
        if reduction not in _REDUCTIONS:
            raise ValueError(f"FenchelYoungLoss: reduction is {reduction!r}; expected {among(reduction, _REDUCTIONS)}.")
        self.regularizer, self.reduction = regularizer, reduction

    def forward(self, structure: Structure, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of `scores` with `target`, both (*batch, *event)."""
        check_shape("FenchelYoungLoss", target, scores)
        label = inside("FenchelYoungLoss", structure, target)
        losses = at_least_zero(
            self.regularizer.conjugate(structure, scores)
            + self.regularizer.value(structure, label)
            - structure.inner(scores, label.to(scores.dtype))
        )
        if self.reduction == "none":
            return losses
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def extra_repr(self) -> str:
        return f"{self.regularizer}, {self.reduction!r}"

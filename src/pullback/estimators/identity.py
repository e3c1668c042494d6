"""The identity in place of the Jacobian of the argmax, on scores without what the argmax ignores."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pullback.estimators._estimator import Estimator, Loss, Replay
from pullback.estimators._inspection import Label
from pullback.estimators.spigot import ste
from pullback.structures._structure import Structure


class Normalized(nn.Module, Estimator):
    """An estimator whose gradient passes through scores that are centered and of norm 1, u = Cs / ‖Cs‖.

    C removes what the polytope cannot see (`Structure.visible`).  Neither C nor the norm changes the argmax, so `inner`
    works with the scores as they are; its gradient loses what would change nothing, (Cg − u ⟨u, g⟩) / ‖Cs‖.  Where a
    structure has scores of its own, the norm of s does matter, and the scores are centered only.
    """

    def __init__(self, inner: Estimator) -> None:
        super().__init__()
        if not isinstance(inner, Estimator):
            raise TypeError(f"Normalized: inner is {inner!r}; expected an Estimator such as ste().")
        self.inner = inner

    @property
    def evaluations(self) -> int | None:
        return self.inner.evaluations

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return self.inner.loss(structure, self._normalized(structure, scores), downstream)

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The point of `inner`."""
        return self.inner(structure, self._normalized(structure, scores))

    def _inspect_label(self, structure: Structure, scores: Tensor, downstream: Loss, replay: Replay) -> Label | None:
        return self.inner._inspect_label(structure, scores, downstream, replay)

    def _normalized(self, structure: Structure, scores: Tensor) -> Tensor:
        """The scores, with the derivative of u."""
        scores = structure.restrict(scores)
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return scores
        normalized: Tensor = _Normalized.apply(scores, structure)  # type: ignore[no-untyped-call]
        return normalized

    def extra_repr(self) -> str:
        return "" if isinstance(self.inner, nn.Module) else f"{self.inner}"


class _Normalized(torch.autograd.Function):
    """The scores as they are; backward, what the Jacobian of u makes of a gradient."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, structure: Structure) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.structure = structure
        return scores.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (scores,), structure = ctx.saved_tensors, ctx.structure
        usable = scores > -torch.inf
        given = torch.stack([gradient, scores.masked_fill(~usable, 0)]).double()  # squares leave float32
        both = _per_part(structure, given)
        seen, centered = structure.visible(both, usable)
        if structure.has_own_scores:
            return seen.to(gradient.dtype), None
        square = _sum(structure, structure.count_once(centered.square()))
        square = torch.where(square == 0, 1, square)
        along = _sum(structure, both[0] * centered) / square
        product = (seen - structure.count_once(centered) * along) / square.sqrt()
        return product.to(gradient.dtype), None


def _per_part(structure: Structure, numbers: Tensor) -> Tensor:
    """`numbers`, with the mean of its entries at each entry of a part."""
    return structure.count_once(structure.gradient_of_parts(numbers))


def _sum(structure: Structure, numbers: Tensor) -> Tensor:
    """Their sum, ready to multiply points."""
    return structure.widen(numbers.flatten(-structure.event_dims).sum(-1))


def identity() -> Normalized:
    """Identity: the gradient passed on as it is, through scores that are centered and of norm 1.

    z = argmax(s),  gradient = (Cg − u ⟨u, g⟩) / ‖Cs‖ with g = ∇L(z), u = Cs / ‖Cs‖, C the centering of a structure.

    Costs one evaluation and one argmax.  Needs an argmax alone.  Like `ste`, without steps that only shift or stretch
    the scores, and with nothing to tune.  Reference: Sahoo et al. (2023).
    """
    return Normalized(ste())

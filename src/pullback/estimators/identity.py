"""The identity in place of the Jacobian of the argmax, on scores without what the argmax ignores."""

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss
from pullback.estimators.spigot import ste
from pullback.structures._structure import Structure


class Normalized(nn.Module, Estimator):
    """An estimator whose gradient passes through scores that are centered and of norm 1, u = Cs / ‖Cs‖.

    C removes what the polytope cannot see (`Structure.visible`).  Neither C nor the norm changes the argmax, so `inner`
    works with the scores as they are; its gradient loses what would change nothing, C (g − u ⟨u, g⟩) / ‖Cs‖.  Where a
    structure has scores of its own, the norm of s does matter, and the scores are centered only.
    """

    def __init__(self, inner: Estimator) -> None:
        super().__init__()
        self.inner = inner

    @property
    def evaluations(self) -> int | None:
        return self.inner.evaluations

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return self.inner.loss(structure, self._normalized(structure, scores), downstream)

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The point of `inner`."""
        return self.inner(structure, self._normalized(structure, scores))

    def target(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return self.inner.target(structure, scores, downstream)

    def _normalized(self, structure: Structure, scores: Tensor) -> Tensor:
        """The scores, with the derivative of u."""
        scores = structure.restrict(scores)
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return scores
        forbidden = scores == -torch.inf
        parts = structure.count_once(structure.gradient_of_parts(scores.masked_fill(forbidden, 0)))
        unit = structure.visible(parts, ~forbidden)
        if not structure.has_own_scores:
            square = structure.count_once(unit.square()).flatten(-structure.event_dims).sum(-1)
            unit = unit / structure.widen(torch.where(square == 0, 1, square).sqrt())
        return scores.detach() + (unit - unit.detach())

    def extra_repr(self) -> str:
        return "" if isinstance(self.inner, nn.Module) else f"{self.inner}"


def identity() -> Normalized:
    """Identity: the gradient passed on as it is, through scores that are centered and of norm 1.

    z = argmax(s),  gradient = C (g − u ⟨u, g⟩) / ‖Cs‖ with g = ∇L(z), u = Cs / ‖Cs‖, C the centering of a structure.

    Costs one evaluation and one argmax.  Needs an argmax alone.  Like `ste`, without steps that only shift or stretch
    the scores, and with nothing to tune.  Reference: Sahoo et al. (2023).
    """
    return Normalized(ste())

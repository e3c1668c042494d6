"""The surrogate gradient: prediction − target."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pullback.descents._descent import Iterate, Pullback
from pullback.estimators._estimator import Estimator, Loss, Replay, evaluate
from pullback.regularizers._regularizer import Regularizer
from pullback.regularizers.unregularized import Unregularized
from pullback.structures._structure import Structure

_NO_GRADIENT = (
    "downstream returned losses that do not depend on the latent point in a differentiable way, and this method "
    "follows their gradient; reinforce, minimum_risk, sparse_marginalization and best_vertex accept a black box."
)

Start = Regularizer | Tensor | float
"""Where a label is pulled back from: a regularizer's prediction, a given point, or one number for all parts (0)."""


@dataclass(frozen=True, eq=False)
class Surrogate(Estimator):
    """Decode from one point, pull a label back from another, and learn the label.

    The decoder sees forward.predict(s).  `descent` pulls a target back from `start`, and the scores get the gradient of
    the Fenchel–Young loss of `prediction` with that target: prediction.predict(s) − target.

    prediction: the intermediate loss: `Unregularized` (perceptron), `Entropy` (CRF), `SquaredNorm` (SparseMAP).
    descent: how the label is pulled back.
    start: where the descent begins; at the prediction, if not given.
    forward: what the decoder sees; the argmax, if not given.

    One step from the forward point costs one downstream evaluation and one backward pass, those of the training step
    itself; a start elsewhere costs one evaluation more, and so does each further step.  They happen during the backward
    pass, with the random numbers of the main pass, and leave no gradient in the decoder.
    """

    prediction: Regularizer
    descent: Pullback
    start: Start | None = None
    forward: Regularizer = field(default_factory=Unregularized)

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        for needed in (self.prediction, self._origin):
            if isinstance(needed, Regularizer):
                needed.require(structure)
        point = self.forward.predict(structure, scores.detach())
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return evaluate(structure, downstream, point)
        label = _Label(self, structure, scores.detach(), point, downstream)
        if self._starts_forward:
            point = _Latent.apply(scores, point, label)  # type: ignore[no-untyped-call]
        losses = evaluate(structure, downstream, point)
        if self._starts_forward and not losses.requires_grad:
            raise ValueError(_NO_GRADIENT)
        label.losses = losses.detach()
        tapped: Tensor = _Tap.apply(losses, scores, label)  # type: ignore[no-untyped-call]
        return tapped

    def __call__(self, structure: Structure, scores: Tensor) -> Tensor:
        if not (self._starts_forward and self.descent.evaluations == 1):
            return super().__call__(structure, scores)
        point = self.forward.predict(structure, scores.detach())
        label = _Label(self, structure, scores.detach(), point, None)
        latent: Tensor = _Latent.apply(scores, point, label)  # type: ignore[no-untyped-call]
        return latent

    def target(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        scores = scores.detach()
        with torch.no_grad():
            point = self.forward.predict(structure, scores)
            label = _Label(self, structure, scores, point, downstream)
            return label.mark_broken(label.target())

    @property
    def _origin(self) -> Start:
        return self.prediction if self.start is None else self.start

    @property
    def _starts_forward(self) -> bool:
        """Whether the gradient that the main pass sends to the decoder's point is the one the descent begins with."""
        same = isinstance(self._origin, Regularizer) and self._origin == self.forward
        return same and self.descent.uses_gradient_at_start


class _Label:
    """The label of one call of `loss`: what it takes to pull it back, and the downstream loss as a descent sees it."""

    def __init__(
        self, surrogate: Surrogate, structure: Structure, scores: Tensor, point: Tensor, downstream: Loss | None
    ) -> None:
        self.surrogate, self.structure, self.point = surrogate, structure, point
        self.scores = structure.restrict(scores)
        self.predictions = [(surrogate.forward, point)]
        self.downstream = downstream
        self.replay = Replay(scores)
        self.losses: Tensor | None = None  # of the main pass
        self.weight: Tensor | None = None  # of each loss in what the user differentiates
        self.known: Tensor | None = None  # the gradient at the start, when the main pass supplies it
        self.broken = torch.zeros((), dtype=torch.bool, device=scores.device)

    def gradient(self, at_start: Tensor | None) -> Tensor:
        """prediction − target, per example; NaN where the downstream gradient is not finite, as in any backward."""
        self.known = at_start
        self.broken = torch.zeros_like(self.broken)
        return self.mark_broken(self._predict(self.surrogate.prediction) - self.target())

    def mark_broken(self, answer: Tensor) -> Tensor:
        return answer.masked_fill(self.structure.widen(self.broken), torch.nan)

    def target(self) -> Tensor:
        origin = self.surrogate._origin
        if isinstance(origin, Regularizer):
            start = Iterate(self._predict(origin), origin, self.scores)
        else:
            given = torch.as_tensor(origin, dtype=self.scores.dtype, device=self.scores.device)
            if given.dim() > 0 and given.shape != self.scores.shape:
                raise ValueError(
                    f"Surrogate: start has shape {tuple(given.shape)}; "
                    f"expected the shape of the scores, {tuple(self.scores.shape)}."
                )
            start = Iterate(given.expand_as(self.scores), None, self.scores)
        return self.surrogate.descent.target(self.structure, start, self)

    def _predict(self, regularizer: Regularizer) -> Tensor:
        for known, point in self.predictions:
            if known == regularizer:
                return point
        self.predictions.append((regularizer, regularizer.predict(self.structure, self.scores)))
        return self.predictions[-1][1]

    def loss_at(self, point: Tensor) -> Tensor:
        assert self.downstream is not None
        with torch.no_grad():
            return self.replay.losses(self.structure, self.downstream, point)

    def loss_and_gradient_at(self, point: Tensor) -> tuple[Tensor, Tensor]:
        if self.known is not None:
            gradient, self.known = self.known, None
            losses = self.losses if self.losses is not None else gradient.new_zeros(())
        else:
            assert self.downstream is not None
            with torch.inference_mode(False), torch.enable_grad():
                point = point.detach().clone().requires_grad_()
                losses = self.replay.losses(self.structure, self.downstream, point)
                if not losses.requires_grad:
                    raise ValueError(_NO_GRADIENT)
                (gradient,) = torch.autograd.grad(losses.sum(), point, materialize_grads=True)
        broken = ~gradient.isfinite().flatten(-self.structure.event_dims).all(-1)
        self.broken = self.broken | broken
        return losses.detach(), gradient.masked_fill(self.structure.widen(broken), 0)


class _Tap(torch.autograd.Function):
    """The losses, which tell the label what weight the user gave to each."""

    @staticmethod
    def forward(losses: Tensor, scores: Tensor, label: _Label) -> Tensor:
        return losses.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.label = inputs[2]

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor | None, None]:
        label: _Label = ctx.label
        if label.surrogate._starts_forward or not ctx.needs_input_grad[1]:
            label.weight = weight.detach()
            return weight, None, None
        with torch.no_grad():
            return weight, label.structure.widen(weight) * label.gradient(None), None


class _Latent(torch.autograd.Function):
    """The decoder's point, whose gradient pulls the label back.

    What arrives is the latent gradient of each example times the weight of its loss.  A projected step is not linear in
    the gradient, so the weight is divided out before it and multiplied in after it.
    """

    @staticmethod
    def forward(scores: Tensor, point: Tensor, label: _Label) -> Tensor:
        return point.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.label = inputs[2]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        label: _Label = ctx.label
        gradient = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        if label.downstream is None:  # called without a loss: the gradient is taken as it comes
            return label.gradient(gradient), None, None
        if label.weight is None:
            raise RuntimeError("The latent point was differentiated, but not through the losses that `loss` returned.")
        weight, label.weight = label.structure.widen(label.weight).to(gradient), None
        return weight * label.gradient(torch.where(weight == 0, 0, gradient / weight)), None, None

"""The surrogate gradient: prediction − target."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from pullback.descents._descent import Iterate, Pullback, Pulled, per_example
from pullback.estimators._estimator import NO_GRADIENT, Estimator, Loss, Replay, evaluate, parts_of, redeem
from pullback.estimators._inspection import Label, inspect_label
from pullback.regularizers._options import Number, check_number
from pullback.regularizers._regularizer import Prediction, Regularizer, same
from pullback.regularizers.unregularized import Unregularized
from pullback.structures._structure import Structure

_TWICE = (
    "The gradient of a surrogate loss was differentiated once more, as by create_graph=True and a second backward: its "
    "label is pulled back by steps that have no derivative.  For second derivatives use a method that has them: "
    "sparsemap, minimum_risk, or structured_attention on a Categorical."
)

_HALF = (torch.float16, torch.bfloat16)

Start = Prediction | Tensor | float
"""Where a label is pulled back from: a prediction, a given point, or one number for all parts (0)."""


class Surrogate(nn.Module, Estimator):
    """Decode from one point, pull a label back from another, and learn the label.

    The decoder sees decodes_from.predict(s).  `descent` pulls a target back from `start`, and the scores get the
    gradient of the Fenchel–Young loss of `prediction` with that target: prediction.predict(s) − target.

    prediction: the intermediate loss: `Unregularized` (perceptron), `Entropy` (CRF), `SquaredNorm` (SparseMAP).
    descent: how the label is pulled back.
    start: where the descent begins; at the prediction, if not given.
    decodes_from: what the decoder sees, a regularizer's prediction or a `Sample()`; the argmax, if not given.
    scale: a factor of the gradient that reaches the scores: a number, a tensor with one for each example, or a function
    of no arguments that returns either.  Step sizes with `rescale` divide by the step instead.

    Parameters of the regularizers, such as Tsallis' order, are not trained: the losses are those of the scores.  What a
    step size remembers, such as the ratio of `Adaptive`, is saved and moved with the model that holds this.

    One step from the point that the decoder sees costs one downstream evaluation and one backward pass, those of the
    training step itself; a start elsewhere costs one evaluation more, and so does each further step.  They happen
    during the backward pass, with the random numbers of the main pass, and leave no gradient in the decoder.
    """

    def __init__(
        self,
        prediction: Regularizer,
        descent: Pullback,
        start: Start | None = None,
        decodes_from: Prediction | None = None,
        scale: Number = 1.0,
    ) -> None:
        super().__init__()
        decodes_from = Unregularized() if decodes_from is None else decodes_from
        for name, given, kind, such_as in (
            ("prediction", prediction, Regularizer, "Entropy()"),
            ("descent", descent, Pullback, "Projected()"),
            ("decodes_from", decodes_from, Prediction, "Sample()"),
        ):
            if not isinstance(given, kind):
                raise TypeError(f"Surrogate: {name} is {given!r}; expected a {kind.__name__} such as {such_as}.")
        check_number("Surrogate: scale", scale)
        self.prediction, self.descent, self.start = prediction, descent, start
        self.decodes_from, self.scale = decodes_from, scale
        if self.descent.rescales and not same(self._origin, self.prediction):
            raise ValueError(
                f"Surrogate: {self.descent} divides the gradient by its steps, so the label has to be pulled back from "
                f"the prediction, {self.prediction}; expected no `start`, or step sizes with rescale=False."
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute, and forgets what followed from the old one; modules inside a descent are registered."""
        super().__setattr__(name, value)
        for derived in _DERIVED:
            self.__dict__.pop(derived, None)
        if name == "descent":
            for path in [path for path in self._modules if path.startswith("descent_")]:
                del self._modules[path]
            if not isinstance(value, nn.Module):
                for path, part in parts_of(value, name):
                    if isinstance(part, nn.Module):
                        self.add_module(path, part)

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        for needed in self._predictions:
            needed.require(structure)
        point = self._point(structure, scores)
        if not (torch.is_grad_enabled() and scores.requires_grad):
            return evaluate(structure, downstream, point)
        replay = None if self._is_one_gradient else Replay(scores)
        call = _Call(self, structure, downstream, replay)
        latent, ticket = _Pull.apply(scores, point, call)  # type: ignore[no-untyped-call]
        losses = evaluate(structure, downstream, latent)
        if self.descent.uses_loss:
            call.losses = losses.detach()
        if self._starts_forward and not losses.requires_grad:
            raise ValueError(NO_GRADIENT)
        return redeem(ticket, losses)

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The point, where a training step takes one gradient and no loss."""
        if not self._is_one_gradient or self.descent.uses_loss:
            return Estimator.__call__(self, structure, scores)
        call = _Call(self, structure, None, None)
        latent: Tensor = _Pull.apply(scores, self._point(structure, scores), call)[0]  # type: ignore[no-untyped-call]
        return latent

    def _inspect_label(self, structure: Structure, scores: Tensor, downstream: Loss, replay: Replay) -> Label:
        label = _Label(_Call(self, structure, downstream, replay), scores, self._point(structure, scores))
        pulled, scores = label.pulled(), label.scores
        gradient = label.loss_and_gradient_at(pulled.start)[1] if self.descent.uses_gradient_at_start else None
        found = inspect_label(structure, scores, pulled, label.loss_at(pulled.target), gradient)
        return replace(found, target=label.marked(found.target))

    @property
    def evaluations(self) -> int | None:
        pulled = self.descent.evaluations
        return pulled if pulled is None or self._starts_forward else 1 + pulled

    def _point(self, structure: Structure, scores: Tensor) -> Tensor:
        point = self.decodes_from.predict(structure, scores.detach())
        return point.detach() if point.requires_grad else point

    @cached_property
    def _origin(self) -> Start:
        return self.prediction if self.start is None else self.start

    @cached_property
    def _starts_forward(self) -> bool:
        """Whether the gradient that the main pass sends to the decoder's point is the one the descent begins with."""
        return same(self._origin, self.decodes_from) and self.descent.uses_gradient_at_start

    @cached_property
    def _predictions(self) -> list[Prediction]:
        """Those that are asked for beside `decodes_from`."""
        return [used for used in (self.prediction, self._origin) if isinstance(used, Prediction)]

    @cached_property
    def _factor(self) -> float | None:
        """What multiplies the decoder's gradient on its way to the scores, if that is all that happens to it.

        One unconstrained step from the prediction: prediction − target is η ∇L.
        """
        step, scale = self.descent.factor, self.scale
        if step is None or not isinstance(scale, int | float) or not self._starts_forward:
            return None
        return step * scale if same(self._origin, self.prediction) else None

    @cached_property
    def _is_one_gradient(self) -> bool:
        """Whether that gradient is all there is to ask for."""
        return self._starts_forward and self.descent.evaluations == 1

    def __repr__(self) -> str:
        """All parts in one line, in which modules are shown where they are used."""
        parts = ("prediction", "descent", "start", "decodes_from", "scale")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in parts)})"


_DERIVED = [name for name, value in vars(Surrogate).items() if isinstance(value, cached_property)]


@dataclass
class _Call:
    """One call of `loss`, with what its backward pass needs beside the scores."""

    surrogate: Surrogate
    structure: Structure
    downstream: Loss | None  # None if the estimator was called without a loss
    replay: Replay | None  # None if the main pass is the only evaluation
    losses: Tensor | None = None  # of the main pass


class _Label:
    """The label of one backward pass: how it is pulled back, and the downstream loss as a descent sees it."""

    def __init__(self, call: _Call, scores: Tensor, point: Tensor, known: Tensor | None = None) -> None:
        self.call, self.structure = call, call.structure
        self.scores = call.structure.forbid(scores.to(point.dtype))  # autocast may have ended since the main pass
        self.predictions: list[tuple[Prediction, Tensor]] = [(call.surrogate.decodes_from, point)]
        self.known = known  # the gradient at the start, where the main pass supplies it
        self.broken: Tensor | None = None  # examples whose downstream gradient is not finite

    def gradient(self) -> Tensor:
        """prediction − target, per example; NaN where the downstream gradient is not finite, as in any backward."""
        surrogate = self.call.surrogate
        gradient = self.structure.count_once(self.pulled().gradient(self._predict(surrogate.prediction)))
        surrogate.descent.observe(self.structure, gradient)
        scale = per_example("Surrogate: scale", surrogate.scale, self.structure, gradient)
        if isinstance(scale, float):
            return self.marked(gradient if scale == 1 else gradient * scale)
        return self.marked(gradient * self.structure.widen(scale))

    def pulled(self) -> Pulled:
        surrogate, origin = self.call.surrogate, self.call.surrogate._origin
        if isinstance(origin, Prediction):
            known = origin if isinstance(origin, Regularizer) else None
            start = Iterate(self._predict(origin), known, self.scores)
        else:
            start = Iterate(self._given(origin), None, self.scores)
        return surrogate.descent.pull(self.structure, start, self)

    def marked(self, numbers: Tensor) -> Tensor:
        """`numbers`, NaN for examples whose downstream gradient is not finite."""
        return numbers if self.broken is None else numbers.masked_fill(self.structure.widen(self.broken), torch.nan)

    def _given(self, start: Tensor | float) -> Tensor:
        """A start that is no prediction, without the parts that may not be used."""
        given = torch.as_tensor(start, dtype=self.scores.dtype, device=self.scores.device)
        if given.dim() > 0 and given.shape != self.scores.shape:
            raise ValueError(
                f"Surrogate: start has shape {tuple(given.shape)}; "
                f"expected the shape of the scores, {tuple(self.scores.shape)}."
            )
        return given.detach().expand_as(self.scores).masked_fill(self.scores == -torch.inf, 0)

    def _predict(self, prediction: Prediction) -> Tensor:
        for known, point in self.predictions:
            if same(known, prediction):
                return point
        self.predictions.append((prediction, prediction.predict(self.structure, self.scores)))
        return self.predictions[-1][1]

    def loss_at(self, point: Tensor) -> Tensor:
        with torch.no_grad():
            return self._replayed(point)

    def loss_and_gradient_at(self, point: Tensor) -> tuple[Tensor, Tensor]:
        if self.known is not None:
            gradient, self.known = self.known, None
            losses = self.call.losses if self.call.losses is not None else gradient.new_full((), torch.nan)
        else:
            with torch.inference_mode(False), torch.enable_grad():
                point = point.detach().clone().requires_grad_()
                losses = self._replayed(point)
                found = None
                if losses.requires_grad:
                    (found,) = torch.autograd.grad(losses.sum(), point, allow_unused=True)
                if found is None:
                    raise ValueError(NO_GRADIENT)
                gradient = found
        return losses.detach(), self._without_broken(self.structure.gradient_of_parts(gradient))

    def _replayed(self, point: Tensor) -> Tensor:
        if self.call.replay is None or self.call.downstream is None:
            descent = type(self.call.surrogate.descent).__name__
            raise RuntimeError(f"{descent} asks for a second evaluation; its `evaluations` says that it needs one.")
        return self.call.replay.losses(self.structure, self.call.downstream, point)

    def _without_broken(self, gradient: Tensor) -> Tensor:
        """`gradient`, zero for examples where it is not finite; these are remembered."""
        if gradient.numel() == 0:
            return gradient
        if math.isfinite(gradient.sum().item()):  # which it is not if one of them is not
            return gradient
        gradient = gradient.masked_fill(self.scores == -torch.inf, 0)  # what is said about padding does not matter
        finite = gradient.isfinite().flatten(-self.structure.event_dims).all(-1)
        self.broken = ~finite if self.broken is None else self.broken | ~finite
        return gradient.masked_fill(self.structure.widen(~finite), 0)


class _Pull(torch.autograd.Function):
    """The decoder's point and a ticket for its losses (see `redeem`); backward, the label is pulled back and learned.

    What arrives is the latent gradient of each example times the weight of its loss.  A projected step is not linear in
    the gradient, so the weight is divided out before it and multiplied in after it.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, point: Tensor, call: _Call) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, point)
        ctx.call = call
        latent, ticket = point.clone(), point.new_zeros(call.structure.batch_shape(point))
        if not call.surrogate._starts_forward:  # the descent asks for its own gradients
            ctx.mark_non_differentiable(latent)
        return latent, ticket

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, weight: Tensor | None) -> tuple[Tensor | None, None, None]:
        if not ctx.call.surrogate._starts_forward:
            gradient = None  # torch.compile fills in zeros
        if gradient is None and weight is None:
            return None, None, None
        scores, point = ctx.saved_tensors
        if not torch.is_grad_enabled():
            return _learned(ctx.call, scores, point, gradient, weight), None, None
        with torch.no_grad():
            answer = _learned(ctx.call, scores, point, gradient, weight)
        return _Once.apply(answer, scores, gradient, weight), None, None  # type: ignore[no-untyped-call]


def _learned(call: _Call, scores: Tensor, point: Tensor, gradient: Tensor | None, weight: Tensor | None) -> Tensor:
    """What the scores receive: prediction − target of each example, times the weight of its loss."""
    if gradient is not None:
        gradient = gradient.float() if gradient.dtype in _HALF else gradient
        if call.downstream is None:  # called without a loss: the gradient is taken as it comes
            return _Label(call, scores, point, gradient).gradient()
    elif call.surrogate._starts_forward:
        raise ValueError(NO_GRADIENT)
    if weight is None:
        raise RuntimeError("The latent point was differentiated, but not through the losses that `loss` returned.")
    if gradient is not None and call.surrogate._factor is not None:
        answer = _straight_through(call.structure, scores, gradient, call.surrogate._factor)
        if math.isfinite(answer.sum().item()):  # else an example is broken, perhaps one of weight 0
            return answer
    number = None if gradient is None else _common(weight)
    if gradient is not None and number is not None:
        return _Label(call, scores, point, gradient / number).gradient() * number
    weight = call.structure.widen(weight if gradient is None else weight.to(gradient.dtype))
    label = _Label(call, scores, point, None if gradient is None else gradient / weight)
    answer = label.gradient() * weight
    if gradient is not None and label.broken is None:  # then no weight is 0, or the quotient would not be finite
        return answer
    return answer.masked_fill(weight == 0, 0)  # where it is 0, the loss may be NaN


def _common(weight: Tensor) -> float | None:
    """The weight that all losses have because their sum or mean was taken: autograd then repeats a single number.

    None if they may differ, or if it is 0, by which nothing can be divided.
    """
    if weight.numel() == 0 or any(weight.stride()):
        return None
    return weight[(0,) * weight.dim()].item() or None


def _straight_through(structure: Structure, scores: Tensor, gradient: Tensor, factor: float) -> Tensor:
    """A gradient of the decoder times a number, 0 at parts that may not be used."""
    seen = structure.count_once(structure.gradient_of_parts(gradient))
    answer = seen.masked_fill(structure.forbid(scores.to(seen.dtype)).isneginf(), 0)
    return answer if factor == 1 else answer * factor


class _Once(torch.autograd.Function):
    """A gradient as it is, which refuses to be differentiated in whatever it was computed from."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, *origins: Tensor | None) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise RuntimeError(_TWICE)

"""The interface of a regularizer."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from pullback.structures._structure import Structure


class Prediction(ABC):
    """A way to a point of the polytope from scores: a regularizer's, or a draw."""

    @abstractmethod
    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        """A point of conv 𝒵 for each example, shaped like `scores`."""

    def require(self, structure: Structure) -> None:
        """Raises `MissingCapability` if the structure cannot serve this; by default any structure can."""
        return


class Regularizer(Prediction):
    """A convex function Ω on the polytope, which turns scores into a prediction and a label into a loss.

    One that has parameters of its own, such as `Tsallis`, is a `torch.nn.Module` as well.
    """

    @abstractmethod
    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        """argmax ⟨s, μ⟩ − Ω(μ) over conv 𝒵: the gradient of `conjugate`."""

    @abstractmethod
    def value(self, structure: Structure, point: Tensor) -> Tensor:
        """Ω(point), one number per example, for any point of conv 𝒵; less the structure's own score of it, if any."""

    def conjugate(self, structure: Structure, scores: Tensor) -> Tensor:
        """Ω*(s) = max ⟨s, μ⟩ − Ω(μ), one number per example; its gradient is `predict`."""
        scores = structure.restrict(scores)
        best = self.predict(structure, scores)
        penalty = self.value(structure, best.detach())  # may have parameters of its own, such as Tsallis' order
        value = structure.inner(scores, best).detach() - penalty.detach()
        envelope: Tensor = _Envelope.apply(scores, structure.count_once(best), value)  # type: ignore[no-untyped-call]
        return envelope - (penalty - penalty.detach())


class MirrorMap(Regularizer):
    """A regularizer over which `Mirror` can step: its prediction can be turned back into scores.

    One that is strictly convex can do so with points of which no scores are known.
    """

    @abstractmethod
    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        """Scores θ with predict(θ) = point, where a mirror step starts; `scores` are such scores if they are known."""


def same(one: object, other: object) -> bool:
    """Whether two predictions are the same: one object, or two of one type whose fields are the same.

    A tensor is the same as itself alone, whatever it holds: it may change.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, nn.Module):
        return one == other
    mine, theirs = vars(one), vars(other)
    return mine.keys() == theirs.keys() and all(
        a is theirs[name] or (not (isinstance(a, Tensor) or isinstance(theirs[name], Tensor)) and a == theirs[name])
        for name, a in mine.items()
    )


class _Envelope(torch.autograd.Function):
    """A maximum as a function of the scores: by the envelope theorem its gradient is the maximizer, as it is given."""

    @staticmethod
    def forward(scores: Tensor, best: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (best,) = ctx.saved_tensors
        return gradient.reshape(gradient.shape + (1,) * (best.dim() - gradient.dim())) * best, None, None

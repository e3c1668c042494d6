"""The interface of a descent, and the loop all descents share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from pullback.regularizers._options import Number, check_count, check_number, now
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._checks import broadcasts
from pullback.structures._structure import Structure

_HALVINGS = 30


class Downstream(Protocol):
    """The downstream loss as a descent sees it; each call is one evaluation, and nothing returned requires grad."""

    def loss_at(self, point: Tensor) -> Tensor:
        """L(point), one number per example."""

    def loss_and_gradient_at(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """L(point) and ∇L(point), the derivative in each part (`Structure.gradient_of_parts`), per example."""


class Iterate(NamedTuple):
    """A point on the way from the start of a descent to the label.

    point: where the descent is.
    regularizer: what predicts it from `scores`, where that is known.
    scores: at the start also the scores of the model, whose −∞ no step may enter.
    """

    point: Tensor
    regularizer: Regularizer | None = None
    scores: Tensor | None = None


@dataclass(frozen=True)
class Pulled:
    """A label, and how it was reached.

    start, end: where the descent began, and the label; None where `change` tells it.
    change: end − start, where the descent knows it without the rounding of either.
    size: the sum of its steps, a number or one for each example, ready to multiply points; None if there were none.
    rescale: whether the surrogate gradient is to be divided by it.
    """

    start: Tensor
    end: Tensor | None = None
    change: Tensor | None = None
    size: float | Tensor | None = None
    rescale: bool = False

    @cached_property
    def target(self) -> Tensor:
        """The label."""
        if self.end is not None:
            return self.end
        return self.start if self.change is None else self.start + self.change

    def gradient(self, prediction: Tensor) -> Tensor:
        """prediction − target, divided by the steps if so asked; where none was made, it is zero as it is."""
        if self.change is not None and prediction is self.start:
            difference = -self.change
        else:
            difference = prediction - self.target
        if not self.rescale or self.size is None:
            return difference
        size = torch.as_tensor(self.size)
        return difference / torch.where(size == 0, 1, size)


class Pullback(ABC):
    """A rule that turns a start point and the downstream loss into a label."""

    @property
    @abstractmethod
    def uses_gradient_at_start(self) -> bool:
        """Whether the first thing this asks for is the gradient at the start: then the forward pass may supply it."""

    @property
    @abstractmethod
    def evaluations(self) -> int | None:
        """How often the downstream loss is evaluated, the gradient at the start included; None if it depends."""

    @abstractmethod
    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        """The label, with what is known about the way to it; one that knows nothing says Pulled(start.point, label)."""

    def target(self, structure: Structure, start: Iterate, downstream: Downstream) -> Tensor:
        """The label alone, shaped like the start."""
        return self.pull(structure, start, downstream).target

    @property
    def factor(self) -> float | None:
        """η where a label is start − η ∇L and nothing else is to be known about it; None by default."""
        return None

    @property
    def uses_loss(self) -> bool:
        """Whether the loss at the start is asked for beside its gradient."""
        return False

    @property
    def rescales(self) -> bool:
        """Whether the surrogate gradient is divided by the steps: then a label has to be pulled from the prediction."""
        return False

    def observe(self, structure: Structure, gradient: Tensor) -> None:
        """Hears the surrogate gradient, prediction − target, that a label led to in training; nothing by default."""
        return


class StepSize(ABC):
    """A rule for how far to step, from what is known about each example.

    rescale: whether the surrogate gradient is divided by the steps.  With steps inversely proportional to the gradient
    it then scales with the loss, as in backpropagation.
    """

    rescale: bool = False
    uses_loss: ClassVar[bool] = False  # whether it asks for more than the gradient

    @abstractmethod
    def sizes(
        self, structure: Structure, loss: Tensor, gradient: Tensor, usable: Tensor | None, scores: Tensor | None = None
    ) -> Tensor:
        """One step size per example.

        `loss` and `gradient` are those of the point where the step begins; `usable` tells which parts may be used, None
        if all; `scores` are those of the model, None if they are not known.  A descent asks at each of its steps.
        """

    def observe(self, structure: Structure, gradient: Tensor) -> None:
        """Hears the surrogate gradient that its steps led to in training; for a rule that learns from it."""
        return


Steps = Number | Sequence[float] | StepSize
"""How far to step: a number, a tensor with one for each example, a function that is asked for either; a sequence with
one number for each step; or a rule."""


@dataclass(frozen=True)
class Descent(Pullback):
    """`steps` steps of size `step_size` down the downstream loss.

    step_size: a number, a tensor with one for each example, or a function of no arguments that returns either and is
    asked at every call; a sequence with one number for each step; or a rule such as `Relative()`.
    backtrack: halve a step, example by example, until the loss of its end is no higher than that of its beginning.

    Step sizes refer to the loss of one example, so they mean the same at any batch size.
    """

    forbidden_change: ClassVar[float] = -torch.inf  # what keeps a projection away from a part that may not be used

    step_size: Steps = 1.0
    steps: int = 1
    backtrack: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_count(f"{name}: steps", self.steps)
        sizes = self.step_size
        if isinstance(sizes, Sequence) and not isinstance(sizes, str | bytes):
            for i, size in enumerate(sizes):
                check_number(f"{name}: step_size[{i}]", size, tensors=False)
            if len(sizes) != self.steps:
                raise ValueError(f"{name}: {len(sizes)} step sizes for {self.steps} steps.")
        elif not isinstance(sizes, StepSize):
            check_number(f"{name}: step_size", sizes, others=", or a rule such as Relative()")

    @abstractmethod
    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        """The iterate after one step, `change` = −η ∇L, and `forbidden_change` at parts that may not be used."""

    @property
    def uses_gradient_at_start(self) -> bool:
        return True

    @property
    def evaluations(self) -> int | None:
        return None if self.backtrack else self.steps

    @property
    def uses_loss(self) -> bool:
        return self.backtrack or (isinstance(self.step_size, StepSize) and self.step_size.uses_loss)

    @property
    def rescales(self) -> bool:
        return isinstance(self.step_size, StepSize) and self.step_size.rescale

    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        forbidden = None if start.scores is None else start.scores.isneginf()
        iterate = start
        total: float | Tensor = 0.0
        for step in range(self.steps):
            loss, gradient = downstream.loss_and_gradient_at(iterate.point)
            size = self._size(step, structure, loss, gradient, forbidden, start.scores)

            def end(size: float | Tensor, iterate: Iterate = iterate, gradient: Tensor = gradient) -> Iterate:
                return self.move(structure, iterate, self._change(gradient, size, forbidden))

            if self.backtrack:
                iterate, size = _backtrack(structure, iterate, end, size, loss, downstream)
            else:
                iterate = end(size)
            total = size if step == 0 else total + size
        return Pulled(start.point, iterate.point, size=total, rescale=self.rescales)

    def _change(self, gradient: Tensor, size: float | Tensor, forbidden: Tensor | None) -> Tensor:
        """−η ∇L, where it may be."""
        change = gradient * -size
        return change if forbidden is None else change.masked_fill(forbidden, self.forbidden_change)

    def observe(self, structure: Structure, gradient: Tensor) -> None:
        if isinstance(self.step_size, StepSize):
            self.step_size.observe(structure, gradient)

    def _size(
        self,
        step: int,
        structure: Structure,
        loss: Tensor,
        gradient: Tensor,
        forbidden: Tensor | None,
        scores: Tensor | None,
    ) -> float | Tensor:
        """The step size, ready to multiply a gradient."""
        if isinstance(self.step_size, StepSize):
            usable = None if forbidden is None else ~forbidden
            return structure.widen(self.step_size.sizes(structure, loss, gradient, usable, scores))
        size = self.step_size[step] if isinstance(self.step_size, Sequence) else self.step_size
        size = per_example(f"{type(self).__name__}: step_size", size, structure, gradient)
        return structure.widen(size) if isinstance(size, Tensor) and size.dim() > 0 else size


def per_example(
    what: str, number: Number, structure: Structure, gradient: Tensor, *, least: float = 0.0
) -> float | Tensor:
    """An option as it is now: a number, or a tensor with one for each example."""
    number = now(what, number, least=least)
    if not isinstance(number, Tensor):
        return float(number)
    numbers = number.detach().to(gradient.device, gradient.dtype)
    batch = structure.batch_shape(gradient)
    if not broadcasts(numbers.shape, batch):
        raise ValueError(f"{what} has shape {tuple(numbers.shape)}; expected the batch shape {tuple(batch)}.")
    return numbers


def _backtrack(
    structure: Structure,
    start: Iterate,
    end: Callable[[float | Tensor], Iterate],
    size: float | Tensor,
    loss: Tensor,
    downstream: Downstream,
) -> tuple[Iterate, Tensor]:
    """The end of the first of the steps size, size/2, size/4, … that does not raise the loss, per example; its size.

    Where none is found, the start itself.
    """
    size = torch.as_tensor(size, dtype=start.point.dtype, device=loss.device).expand(structure.widen(loss).shape)
    for _ in range(_HALVINGS):
        moved = end(size)
        worse = structure.widen(~(downstream.loss_at(moved.point) <= loss))
        if not bool(worse.any()):
            return moved, size
        size = torch.where(worse, size / 2, size)
    scores = moved.scores
    if scores is not None and start.scores is not None:
        scores = torch.where(worse, start.scores, scores)
    return Iterate(torch.where(worse, start.point, moved.point), moved.regularizer, scores), size

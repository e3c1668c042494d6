"""The interface of a descent, and the loop all descents share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from pullback.regularizers._options import check_count, check_number
from pullback.regularizers._regularizer import Regularizer
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
    def target(self, structure: Structure, start: Iterate, downstream: Downstream) -> Tensor:
        """The label, shaped like the start."""


@dataclass(frozen=True)
class Descent(Pullback):
    """`steps` steps of size `step_size` down the downstream loss.

    step_size: a number; a sequence with one number per step; or a tensor with one number per example.
    backtrack: halve a step, example by example, until the loss of its end is no higher than that of its beginning.

    Step sizes refer to the loss of one example, so they mean the same at any batch size.
    """

    forbidden_change: ClassVar[float] = -torch.inf  # what keeps a projection away from a part that may not be used

    step_size: float | Sequence[float] | Tensor = 1.0
    steps: int = 1
    backtrack: bool = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        check_count(f"{name}: steps", self.steps)
        sizes = self.step_size
        if isinstance(sizes, Sequence) and not isinstance(sizes, str | bytes):
            for i, size in enumerate(sizes):
                check_number(f"{name}: step_size[{i}]", size, tensors=False)
            if len(sizes) != self.steps:
                raise ValueError(f"{name}: {len(sizes)} step sizes for {self.steps} steps.")
        else:
            check_number(f"{name}: step_size", sizes)

    @abstractmethod
    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        """The iterate after one step, `change` = −η ∇L, and `forbidden_change` at parts that may not be used."""

    @property
    def uses_gradient_at_start(self) -> bool:
        return True

    @property
    def evaluations(self) -> int | None:
        return None if self.backtrack else self.steps

    def target(self, structure: Structure, start: Iterate, downstream: Downstream) -> Tensor:
        forbidden = None if start.scores is None else start.scores == -torch.inf
        iterate = start
        for step in range(self.steps):
            loss, gradient = downstream.loss_and_gradient_at(iterate.point)
            size = self._size(step, structure, gradient)

            def end(size: float | Tensor, iterate: Iterate = iterate, gradient: Tensor = gradient) -> Iterate:
                change = gradient * -size
                change = change if forbidden is None else change.masked_fill(forbidden, self.forbidden_change)
                return self.move(structure, iterate, change)

            if self.backtrack:
                iterate = _backtrack(structure, iterate, end, size, loss, downstream)
            else:
                iterate = end(size)
        return iterate.point

    def _size(self, step: int, structure: Structure, gradient: Tensor) -> float | Tensor:
        """The step size, ready to multiply a gradient."""
        size = self.step_size[step] if isinstance(self.step_size, Sequence) else self.step_size
        if not isinstance(size, Tensor):
            return float(size)
        sizes = torch.as_tensor(size, dtype=gradient.dtype, device=gradient.device)
        if sizes.dim() == 0:
            return sizes
        batch = structure.batch_shape(gradient)
        if sizes.shape != batch:
            raise ValueError(
                f"{type(self).__name__}: step_size has shape {tuple(sizes.shape)}; "
                f"expected the batch shape {tuple(batch)}."
            )
        return structure.widen(sizes)


def _backtrack(
    structure: Structure,
    start: Iterate,
    end: Callable[[float | Tensor], Iterate],
    size: float | Tensor,
    loss: Tensor,
    downstream: Downstream,
) -> Iterate:
    """The end of the first of the steps size, size/2, size/4, … that does not raise the loss, per example.

    Where none is found, the start itself.
    """
    size = torch.as_tensor(size, dtype=start.point.dtype, device=loss.device).expand(structure.widen(loss).shape)
    for _ in range(_HALVINGS):
        moved = end(size)
        worse = structure.widen(~(downstream.loss_at(moved.point) <= loss))
        if not bool(worse.any()):
            return moved
        size = torch.where(worse, size / 2, size)
    scores = moved.scores
    if scores is not None and start.scores is not None:
        scores = torch.where(worse, start.scores, scores)
    return Iterate(torch.where(worse, start.point, moved.point), moved.regularizer, scores)

"""How far to step, from what is known about each example."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.descents._descent import StepSize, per_example
from pullback.regularizers._options import Number, check_number
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Fixed(StepSize):
    """The step that is given.  With `rescale` the surrogate gradient is divided by it: a slope, not a difference.

    size: a number, a tensor with one for each example, or a function of no arguments that returns either.
    """

    size: Number = 1.0
    rescale: bool = False

    def __post_init__(self) -> None:
        check_number("Fixed: size", self.size)

    def sizes(
        self, structure: Structure, loss: Tensor, gradient: Tensor, usable: Tensor | None, scores: Tensor | None = None
    ) -> Tensor:
        size = per_example("Fixed: size", self.size, structure, gradient)
        return torch.as_tensor(size, dtype=gradient.dtype, device=gradient.device).expand(
            structure.batch_shape(gradient)
        )


@dataclass(frozen=True, eq=False)
class Relative(StepSize):
    """A step that moves the part it moves most by `share` of the way from 0 to 1: η = share / ‖C ∇L‖∞.

    C removes from the gradient what the polytope cannot see (`Structure.visible`).  Below a share of ½ no label is
    another structure than the start; from 1 on most are.  With `rescale` the surrogate gradient is divided by η: it
    then scales with the loss, as in backpropagation, and any share up to ½ trains alike.  Where the gradient says
    nothing, no step is made.  Steps of `Mirror` are in nats instead.

    share: a number, a tensor with one for each example, or a function of no arguments that returns either.
    """

    share: Number = 0.1
    rescale: bool = True

    def __post_init__(self) -> None:
        check_number("Relative: share", self.share)

    def sizes(
        self, structure: Structure, loss: Tensor, gradient: Tensor, usable: Tensor | None, scores: Tensor | None = None
    ) -> Tensor:
        largest = structure.visible(gradient, usable).abs().flatten(-structure.event_dims).amax(-1)
        return _quotient(per_example("Relative: share", self.share, structure, gradient), largest)


@dataclass(frozen=True, eq=False)
class Polyak(StepSize):
    """The step that would bring a linear loss down to `lower`: η = (L − lower) / ‖C ∇L‖².

    C removes from the gradient what the polytope cannot see (`Structure.visible`).  A loss that is at `lower` already,
    or whose gradient says nothing, makes no step.  Reference: Polyak (1969).

    lower: the lowest loss that an example can have: a number, a tensor with one for each example, or a function of no
    arguments that returns either.
    """

    lower: Number = 0.0
    rescale: bool = False

    def __post_init__(self) -> None:
        check_number("Polyak: lower", self.lower, least=-torch.inf)

    def sizes(
        self, structure: Structure, loss: Tensor, gradient: Tensor, usable: Tensor | None, scores: Tensor | None = None
    ) -> Tensor:
        seen = structure.count_once(structure.visible(gradient, usable).square())
        above = loss.to(gradient.dtype) - per_example(
            "Polyak: lower", self.lower, structure, gradient, least=-torch.inf
        )
        return _quotient(above.clamp_min(0), seen.flatten(-structure.event_dims).sum(-1))


def _quotient(above: float | Tensor, below: Tensor) -> Tensor:
    """above / below, and 0 where `below` is 0."""
    return torch.where(below == 0, 0, above / torch.where(below == 0, 1, below))

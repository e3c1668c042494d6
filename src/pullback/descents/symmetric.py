"""A step down and a step up in place of one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.descents._descent import Downstream, Iterate, Pullback, Pulled
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Symmetric(Pullback):
    """The start, moved by half the way from the end of a step up to the end of a step down.

    Where `descent` takes one step from μ to μ⁻ against the gradient, and would take one to μ⁺ along it, the label is
    μ + (μ⁻ − μ⁺) / 2: a central difference in place of a one-sided one.  Both steps are made as one batch.
    """

    descent: Pullback

    def __post_init__(self) -> None:
        if not isinstance(self.descent, Pullback):
            raise TypeError(f"Symmetric: descent is {self.descent!r}; expected a Pullback such as Projected().")
        if self.descent.evaluations != 1 or not self.descent.uses_gradient_at_start:
            raise ValueError(f"Symmetric: descent is {self.descent}; expected one step, without backtracking.")

    @property
    def uses_gradient_at_start(self) -> bool:
        return True

    @property
    def evaluations(self) -> int:
        return 1

    @property
    def rescales(self) -> bool:
        return self.descent.rescales

    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        loss, gradient = downstream.loss_and_gradient_at(start.point)
        both = _Known(torch.stack([loss, loss]), torch.stack([gradient, -gradient]))
        twice = Iterate(
            _doubled(start.point), start.regularizer, None if start.scores is None else _doubled(start.scores)
        )
        pulled = self.descent.pull(structure, twice, both)
        down, up = pulled.target
        size = pulled.size
        if isinstance(size, Tensor) and size.dim() > start.point.dim():
            size = size[0]  # both steps are as long
        return Pulled(start.point, change=(down - up) / 2, size=size, rescale=pulled.rescale)

    def observe(self, structure: Structure, gradient: Tensor) -> None:
        self.descent.observe(structure, gradient)


@dataclass(frozen=True)
class _Known:
    """A downstream loss of which the start alone is known."""

    loss: Tensor
    gradient: Tensor

    def loss_at(self, point: Tensor) -> Tensor:
        return self.loss

    def loss_and_gradient_at(self, point: Tensor) -> tuple[Tensor, Tensor]:
        return self.loss, self.gradient


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.expand(2, *tensor.shape)

"""A step size that learns how far a step has to be for labels to change."""

import torch
from torch import Tensor, nn

from pullback.descents._descent import StepSize
from pullback.regularizers._options import check_number
from pullback.structures._structure import Structure


class Adaptive(StepSize, nn.Module):
    """η = ratio · ‖s‖ / ‖∇L‖, with a ratio that grows while labels differ from the prediction in too few parts.

    After each backward pass the average number of parts in which labels differ, of which a share of 1 − `decay` is
    forgotten, is compared with `changes`: the ratio moves up by `rate` if it is lower, and down if not.  With `rescale`
    the surrogate gradient is divided by η.  The step of AIMLE, for labels that are structures: `Mirror` over
    `Unregularized`.  Reference: Minervini, Franceschi and Niepert (2023).

    `ratio` and `changed`, the average, are buffers, saved and loaded with the model that holds the estimator.  They
    learn in training mode alone.
    """

    ratio: Tensor
    changed: Tensor

    def __init__(
        self, ratio: float = 1.0, *, changes: float = 1.0, rate: float = 1e-3, decay: float = 0.9, rescale: bool = True
    ) -> None:
        super().__init__()
        for name, number in (("ratio", ratio), ("changes", changes), ("rate", rate), ("decay", decay)):
            check_number(f"Adaptive: {name}", number, tensors=False)
        if decay >= 1:
            raise ValueError(f"Adaptive: decay is {decay}; expected a number in [0, 1).")
        self.changes, self.rate, self.decay, self.rescale = changes, rate, decay, rescale
        self.register_buffer("ratio", torch.tensor(float(ratio)))
        self.register_buffer("changed", torch.tensor(float(changes)))

    def sizes(
        self, structure: Structure, loss: Tensor, gradient: Tensor, usable: Tensor | None, scores: Tensor | None = None
    ) -> Tensor:
        if scores is None:
            raise TypeError("Adaptive: the scores of the start are not known, and steps are relative to them.")
        length = _norm(structure, gradient if usable is None else gradient.masked_fill(~usable, 0))
        steps = self.ratio.to(gradient) * _norm(structure, scores.masked_fill(scores == -torch.inf, 0))
        return torch.where(length == 0, 0, steps / torch.where(length == 0, 1, length)).to(gradient.dtype)

    def observe(self, structure: Structure, gradient: Tensor) -> None:
        if not self.training or gradient.numel() == 0:
            return
        differ = structure.count_once((gradient != 0).to(self.changed)).flatten(-structure.event_dims).sum(-1).mean()
        self.changed = self.decay * self.changed + (1 - self.decay) * differ.to(self.changed)
        step = torch.where(self.changed < self.changes, self.rate, -self.rate)
        self.ratio = (self.ratio + step.to(self.ratio)).clamp_min(0)

    def extra_repr(self) -> str:
        return f"changes={self.changes}, rate={self.rate}, decay={self.decay}, rescale={self.rescale}"


def _norm(structure: Structure, numbers: Tensor) -> Tensor:
    """‖numbers‖ of each example, in double precision: squares may leave that of the numbers."""
    return structure.count_once(numbers.double().square()).flatten(-structure.event_dims).sum(-1).sqrt()

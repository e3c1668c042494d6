"""REINFORCE, with its baselines."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pullback.estimators._estimator import Estimator, Loss, Replay, evaluate
from pullback.regularizers._regularizer import log_linear
from pullback.structures._structure import Structure


class Baseline(ABC):
    """A guess of each sampled loss, subtracted to lower the variance of the gradient without changing its mean."""

    @abstractmethod
    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        """A number for each entry of `losses` (samples, *batch) that does not depend on that entry's sample."""


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """0."""

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return torch.zeros_like(losses)


@dataclass
class RunningAverage(Baseline):
    """The average loss of earlier training steps, 0 before the first.  The one part with a memory.

    Each step forgets a share of 1 − `decay`; losses that are not finite are not remembered.
    """

    decay: float = 0.9
    average: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"RunningAverage: decay is {self.decay}; expected a number in [0, 1).")

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        before, present = self.average, float(losses.mean())
        if math.isfinite(present) and torch.is_grad_enabled():
            self.average = present if before is None else self.decay * before + (1 - self.decay) * present
        return torch.full_like(losses, before or 0.0)


@dataclass(frozen=True)
class SelfCritical(Baseline):
    """The loss of the argmax, at the cost of one evaluation.  Reference: Rennie et al. (2017)."""

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return loss_of_argmax().expand_as(losses)


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """The mean loss of the other samples of the same example; needs two or more.  Reference: Kool et al. (2019)."""

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return (losses.sum(0) - losses) / (losses.shape[0] - 1)


@dataclass(frozen=True, eq=False)
class ScoreFunction(Estimator):
    """The score-function estimator of the expected loss, unbiased for any loss, differentiable or not."""

    samples: int = 1
    baseline: Baseline = field(default_factory=NoBaseline)
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int) or self.samples < 1:
            raise ValueError(f"reinforce: samples is {self.samples!r}; expected an integer ≥ 1.")
        if not isinstance(self.baseline, Baseline):
            raise TypeError(f"reinforce: baseline is {self.baseline!r}; expected a Baseline such as LeaveOneOut().")
        if isinstance(self.baseline, LeaveOneOut) and self.samples < 2:
            raise ValueError(f"reinforce: samples is {self.samples}; a leave-one-out baseline needs at least 2.")

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        log_linear_structure = log_linear(structure, "reinforce")
        drawn = log_linear_structure.sample(scores.detach(), (self.samples,), generator=self.generator)
        replay = Replay(scores)

        def loss_of_argmax() -> Tensor:
            with torch.no_grad():
                return replay.losses(structure, downstream, structure.argmax(scores.detach()))

        losses = torch.stack([evaluate(structure, downstream, z) for z in drawn])
        advantage = losses.detach() - self.baseline.guess(losses.detach(), loss_of_argmax)
        score = log_linear_structure.log_prob(scores, drawn)
        return (losses + advantage * (score - score.detach())).mean(0)


def reinforce(
    samples: int = 1, baseline: Baseline | None = None, *, generator: torch.Generator | None = None
) -> ScoreFunction:
    """REINFORCE: sample structures, and make them likelier the better they do.

    z ~ p(z) ∝ exp⟨s, z⟩,  gradient = mean of (L(z) − b) ∇ log p(z) over `samples`;  the decoder gets that of L(z).
    `baseline` is one of `NoBaseline`, `RunningAverage`, `SelfCritical`, `LeaveOneOut`.  Reference: Williams (1992).
    """
    return ScoreFunction(samples, baseline or NoBaseline(), generator)

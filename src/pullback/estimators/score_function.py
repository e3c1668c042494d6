"""REINFORCE, with its baselines."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, Replay, evaluate
from pullback.regularizers._options import by_name, check_count, check_number
from pullback.structures._capabilities import LogLinear, require
from pullback.structures._structure import Structure


class Baseline(ABC):
    """A guess of each sampled loss, subtracted to lower the variance of the gradient without changing its mean."""

    @abstractmethod
    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        """A number for each entry of `losses` (samples, *batch) that does not depend on that entry's sample."""

    @property
    def evaluations(self) -> int:
        """How often `guess` evaluates the downstream loss."""
        return 0


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """No baseline: every guess is 0."""

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return torch.zeros_like(losses)


class RunningAverage(Baseline, nn.Module):
    """The average loss of earlier training steps, 0 before the first.  The one part with a memory.

    Each step forgets a share of 1 − `decay`; losses that are not finite are not remembered.  `average` is a buffer,
    saved and loaded with the model that holds the estimator; NaN before the first step.
    """

    average: Tensor

    def __init__(self, decay: float = 0.9) -> None:
        super().__init__()
        check_number("RunningAverage: decay", decay, tensors=False)
        if decay >= 1:
            raise ValueError(f"RunningAverage: decay is {decay}; expected a number in [0, 1).")
        self.decay = decay
        self.register_buffer("average", torch.tensor(torch.nan))

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        before = self.average
        if torch.is_grad_enabled():
            present = losses.detach().mean().to(before)
            present = torch.where(present.isfinite(), present, before)
            self.average = torch.where(before.isnan(), present, self.decay * before + (1 - self.decay) * present)
        return before.nan_to_num(0.0).to(losses).expand_as(losses)

    def extra_repr(self) -> str:
        return f"decay={self.decay}"


@dataclass(frozen=True)
class SelfCritical(Baseline):
    """The loss of the argmax, at the cost of one evaluation.  Reference: Rennie et al. (2017)."""

    @property
    def evaluations(self) -> int:
        return 1

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return loss_of_argmax().expand_as(losses)


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """The mean loss of the other samples of the same example; needs two or more.  Reference: Kool et al. (2019)."""

    def guess(self, losses: Tensor, loss_of_argmax: Callable[[], Tensor]) -> Tensor:
        return (losses.sum(0) - losses) / (losses.shape[0] - 1)


BASELINES: dict[str, type[Baseline]] = {
    "none": NoBaseline,
    "running_average": RunningAverage,
    "self_critical": SelfCritical,
    "leave_one_out": LeaveOneOut,
}
"""The baselines by the names that `reinforce` knows."""


class ScoreFunction(Estimator, nn.Module):
    """The score-function estimator of the expected loss, unbiased for any loss, differentiable or not."""

    baseline: Baseline

    def __init__(
        self, samples: int = 1, baseline: Baseline | str = "none", generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        check_count("reinforce: samples", samples)
        if isinstance(baseline, str):
            baseline = by_name("reinforce: baseline", baseline, BASELINES)
        if not isinstance(baseline, Baseline):
            raise TypeError(
                f"reinforce: baseline is {baseline!r}; expected a name such as 'leave_one_out', or a Baseline such as "
                "LeaveOneOut()."
            )
        if isinstance(baseline, LeaveOneOut) and samples < 2:
            raise ValueError(f"reinforce: samples is {samples}; a leave-one-out baseline needs at least 2.")
        self.samples, self.baseline, self.generator = int(samples), baseline, generator

    @property
    def evaluations(self) -> int:
        return self.samples + self.baseline.evaluations

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        log_linear = require(structure, LogLinear, "reinforce")
        drawn = log_linear.sample(scores.detach(), (self.samples,), generator=self.generator)
        replay = Replay(scores) if self.baseline.evaluations else None

        def loss_of_argmax() -> Tensor:
            if replay is None:
                raise RuntimeError(f"{self.baseline} asks for an evaluation; its `evaluations` says it needs none.")
            with torch.no_grad():
                return replay.losses(structure, downstream, structure.argmax(scores.detach()))

        losses = torch.stack([evaluate(structure, downstream, z.clone()) for z in drawn])
        advantage = losses.detach() - self.baseline.guess(losses.detach(), loss_of_argmax)
        score = log_linear.log_prob(scores, drawn)
        return (losses + advantage * (score - score.detach())).mean(0)

    def extra_repr(self) -> str:
        return f"samples={self.samples}, baseline={self.baseline}"


def reinforce(
    samples: int = 1, baseline: Baseline | str = "none", *, generator: torch.Generator | None = None
) -> ScoreFunction:
    """REINFORCE: sample structures, and make them likelier the better they do.

    z ~ p(z) ∝ exp⟨s, z⟩,  gradient = mean of (L(z) − b) ∇ log p(z) over `samples`;  the decoder gets that of L(z).
    `baseline` is one of `NoBaseline`, `RunningAverage`, `SelfCritical`, `LeaveOneOut`, or their names "none",
    "running_average", "self_critical", "leave_one_out".  Reference: Williams (1992).
    """
    return ScoreFunction(samples, baseline, generator)

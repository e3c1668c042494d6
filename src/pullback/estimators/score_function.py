"""REINFORCE, with its baselines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pullback.distributions._distribution import StructureDistribution
from pullback.distributions.gibbs import Gibbs
from pullback.distributions.sparsemap import SparseMAPDistribution
from pullback.estimators._estimator import Estimator, Loss, Replay, check_batch, cooled, evaluate, redeem, weigh
from pullback.estimators._without_replacement import MOST, draw
from pullback.regularizers._options import Number, among, by_name, check_count, check_number, now
from pullback.structures._checks import broadcasts
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Sampled:
    """What a baseline may know about the samples of one training step; nothing in it requires grad.

    losses: (samples, *batch).  scores: (*batch, *event).
    mean_of_others: what the other samples of an example say about its expected loss, for each sample like `losses`.
    loss_of_argmax: (*batch), at the cost of one evaluation.
    """

    losses: Tensor
    scores: Tensor
    mean_of_others: Callable[[], Tensor]
    loss_of_argmax: Callable[[], Tensor]


class Baseline(ABC):
    """A guess of each sampled loss, subtracted to lower the variance of the gradient without changing its mean."""

    @abstractmethod
    def guess(self, sampled: Sampled) -> Tensor:
        """A number for each loss (samples, *batch), or for each example, that does not depend on that loss's sample."""

    @property
    def evaluations(self) -> int:
        """How often `guess` evaluates the downstream loss."""
        return 0


@dataclass(frozen=True)
class NoBaseline(Baseline):
    """No baseline: every guess is 0."""

    def guess(self, sampled: Sampled) -> Tensor:
        return torch.zeros_like(sampled.losses)


class RunningAverage(Baseline, nn.Module):
    """The average loss of earlier training steps, 0 before the first.

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

    def guess(self, sampled: Sampled) -> Tensor:
        before = self.average
        if torch.is_grad_enabled():
            present = sampled.losses.mean().to(before)
            present = torch.where(present.isfinite(), present, before)
            self.average = torch.where(before.isnan(), present, self.decay * before + (1 - self.decay) * present)
        return before.nan_to_num(0.0)

    def extra_repr(self) -> str:
        return f"decay={self.decay}"


@dataclass(frozen=True)
class SelfCritical(Baseline):
    """The loss of the argmax, at the cost of one evaluation.  Reference: Rennie et al. (2017)."""

    @property
    def evaluations(self) -> int:
        return 1

    def guess(self, sampled: Sampled) -> Tensor:
        return sampled.loss_of_argmax()


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """The mean loss of the other samples of the same example; needs two or more.

    Reference: Kool, van Hoof and Welling (2019); without replacement, the same authors (2020).
    """

    def guess(self, sampled: Sampled) -> Tensor:
        return sampled.mean_of_others()


class Supplied(Baseline, nn.Module):
    """A baseline of the user's own: a function of the scores, such as a value network, or a tensor.

    The function gets the scores of the batch, detached, and returns one number for each example, or one for all; the
    tensor holds such numbers, and may change in place.  It sends no gradient back: a network is trained by a loss of
    its own, such as (value(scores) − losses)², both detached, and is saved with the estimator.
    """

    def __init__(self, value: Callable[[Tensor], Tensor] | Tensor) -> None:
        super().__init__()
        self.value = value

    def guess(self, sampled: Sampled) -> Tensor:
        with torch.no_grad():
            found = self.value if isinstance(self.value, Tensor) else self.value(sampled.scores)
        batch = sampled.losses.shape[1:]
        if not isinstance(found, Tensor) or not broadcasts(found.shape, batch):
            shape = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"type {type(found).__name__}"
            raise ValueError(
                f"reinforce: the baseline has {shape}; expected a tensor with one number for each example, "
                f"{tuple(batch)}."
            )
        return found.detach()


BASELINES: dict[str, type[Baseline]] = {
    "none": NoBaseline,
    "running_average": RunningAverage,
    "self_critical": SelfCritical,
    "leave_one_out": LeaveOneOut,
}
"""The baselines by the names that `reinforce` knows."""

Distributed = Callable[..., StructureDistribution]
"""What makes a distribution of a structure and its scores: `Gibbs` or `SparseMAPDistribution`."""

DISTRIBUTIONS: Mapping[str, Distributed] = {"gibbs": Gibbs, "sparsemap": SparseMAPDistribution}
"""The distributions by the names that `reinforce` knows."""


class ScoreFunction(Estimator, nn.Module):
    """The score-function estimator of the expected loss, unbiased for any loss, differentiable or not.

    Samples of all examples are drawn and scored as one batch; the decoder sees them one after the other.

    samples, baseline, generator: how many structures are drawn, what is subtracted from their losses, and where random
    numbers come from.
    replacement: whether the samples of an example may be the same.
    distribution: what they are drawn from, `Gibbs` or `SparseMAPDistribution`; the loss that is expected is expected
    under it.
    temperature: divides the scores.
    entropy: β, with which −β H of that distribution is added to what the scores minimize; the losses that are returned
    stay those of the decoder.

    Temperature and entropy are numbers, tensors with one for each example, or functions of no arguments that return
    either; a temperature that is a `Parameter` is trained with the model.
    """

    baseline: Baseline

    def __init__(
        self,
        samples: int = 1,
        baseline: Baseline | str | Callable[[Tensor], Tensor] | Tensor = "none",
        *,
        replacement: bool = True,
        distribution: Distributed | str = Gibbs,
        temperature: Number = 1.0,
        entropy: Number = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_count("reinforce: samples", samples)
        check_number("reinforce: temperature", temperature, above=True)
        check_number("reinforce: entropy", entropy)
        self.samples, self.baseline, self.generator = int(samples), _baseline(baseline), generator
        self.replacement, self.distribution = replacement, _distribution(distribution)
        self.temperature, self.entropy = temperature, entropy
        if isinstance(self.baseline, LeaveOneOut) and samples < 2:
            raise ValueError(f"reinforce: samples is {samples}; a leave-one-out baseline needs at least 2.")
        if samples > MOST and not replacement:
            raise ValueError(f"reinforce: samples is {samples}; expected at most {MOST} without replacement.")

    @property
    def evaluations(self) -> int:
        return self.samples + self.baseline.evaluations

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        weighed, ticket = weigh(structure, structure.restrict(scores))
        p = self.distribution(structure, cooled(structure, weighed, self.temperature), validate_args=False)
        unordered = None if self.replacement else draw(p, self.samples, self.generator)
        drawn = p.sample((self.samples,), generator=self.generator) if unordered is None else unordered.vertices
        replay = Replay(scores) if self.baseline.evaluations else None
        losses = torch.stack([evaluate(structure, downstream, z.clone()) for z in drawn])
        known = losses.detach()

        def mean_of_others() -> Tensor:
            return (known.sum(0) - known) / (self.samples - 1) if unordered is None else unordered.others_of(known)

        def loss_of_argmax() -> Tensor:
            if replay is None:
                raise RuntimeError(f"{self.baseline} asks for an evaluation; its `evaluations` says it needs none.")
            with torch.no_grad():
                return replay.losses(structure, downstream, structure.argmax(scores.detach()))

        guess = self.baseline.guess(Sampled(known, scores.detach(), mean_of_others, loss_of_argmax))
        score = p.log_prob(drawn)
        each = losses + (known - guess.to(known)) * _gradient_of(score)
        mean = each.mean(0) if unordered is None else (unordered.weights * each).sum(0)
        return redeem(ticket, mean - self._bonus(structure, scores, p))

    def _bonus(self, structure: Structure, scores: Tensor, p: StructureDistribution) -> Tensor | float:
        """β H, of which only the gradient counts."""
        strength = now("reinforce: entropy", self.entropy)
        if not isinstance(strength, Tensor) and strength == 0:
            return 0.0
        if isinstance(strength, Tensor):
            check_batch("reinforce: entropy", strength, structure, scores)
        return strength * _gradient_of(p.entropy())

    def extra_repr(self) -> str:
        parts = [f"samples={self.samples}", f"baseline={self.baseline}"]
        parts += [] if self.replacement else ["replacement=False"]
        parts += [] if self.distribution is Gibbs else [f"distribution={self.distribution}"]
        return ", ".join([*parts, f"temperature={self.temperature}, entropy={self.entropy}"])


def _gradient_of(number: Tensor) -> Tensor:
    """Zero, with the gradient of `number`."""
    return number - number.detach()


def _baseline(given: Baseline | str | Callable[[Tensor], Tensor] | Tensor) -> Baseline:
    if isinstance(given, str):
        return by_name("reinforce: baseline", given, BASELINES)
    if isinstance(given, Baseline):
        return given
    if isinstance(given, Tensor) or (callable(given) and not isinstance(given, type)):
        return Supplied(given)
    raise TypeError(
        f"reinforce: baseline is {given!r}; expected a name such as 'leave_one_out', a Baseline such as LeaveOneOut(), "
        "a function of the scores, or a tensor."
    )


def _distribution(given: Distributed | str) -> Distributed:
    if not isinstance(given, str):
        if not callable(given):
            raise TypeError(
                f"reinforce: distribution is {given!r}; expected a name such as 'gibbs', or a class such as Gibbs."
            )
        return given
    if given not in DISTRIBUTIONS:
        raise ValueError(f"reinforce: distribution is {given!r}; expected {among(given, DISTRIBUTIONS)}.")
    return DISTRIBUTIONS[given]


def reinforce(
    samples: int = 1,
    baseline: Baseline | str | Callable[[Tensor], Tensor] | Tensor = "none",
    *,
    replacement: bool = True,
    distribution: Distributed | str = Gibbs,
    temperature: Number = 1.0,
    entropy: Number = 0.0,
    generator: torch.Generator | None = None,
) -> ScoreFunction:
    """REINFORCE: sample structures, and make them likelier the better they do.

    z ~ p(z) ∝ exp⟨s / T, z⟩,  gradient = mean of (L(z) − b) ∇ log p(z) over `samples`;  the decoder gets that of L(z).

    baseline: b, one of `NoBaseline`, `RunningAverage`, `SelfCritical`, `LeaveOneOut`, or their names "none",
    "running_average", "self_critical", "leave_one_out"; or one of your own (`Supplied`): a function of the scores that
    returns one number for each example, or a tensor of them.
    replacement: without it all samples of an example are different, and each counts by the probability to be drawn
    first, given the set of them; at most 12.  Less noise where few structures are likely.
    distribution: p, `Gibbs` or `SparseMAPDistribution`, or their names "gibbs", "sparsemap".  The latter needs no
    partition function.
    temperature, entropy: T, and the strength β of a bonus −β H(p), which keeps p from becoming certain too early.

    Costs `samples` evaluations, drawn and scored as one batch; one more with "self_critical".  Needs a partition
    function, or an argmax alone under "sparsemap".  Unbiased, and noisy: for losses that are a black box, and where
    decoders must see real structures.
    Reference: Williams (1992); Kool, van Hoof and Welling (2019, 2020).
    """
    return ScoreFunction(
        samples,
        baseline,
        replacement=replacement,
        distribution=distribution,
        temperature=temperature,
        entropy=entropy,
        generator=generator,
    )

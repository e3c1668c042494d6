"""What one call of an estimator did: tensors for a program, numbers for a logger, and a sentence for a reader."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.descents._descent import Pulled
from pullback.structures._capabilities import LogLinear
from pullback.structures._limits import TooManyVertices
from pullback.structures._structure import Structure

_LINEAR = 0.5  # a step that moves no part by more ends at no other structure, and is linear in its size
_MOST = 0.5
_UNEVEN = 30.0
_EASY_AS_HARD = 0.4


@dataclass(frozen=True)
class Label:
    """What is known about labels that were pulled back; numbers have one entry for each example.

    target: the labels, shaped like the scores.
    losses: downstream, at the labels.
    distance: ‖start − target‖.
    reach: how far the steps would move the part that they move most, η ‖C ∇L‖∞, if the polytope let them; C removes
    what it cannot see (`Structure.visible`).  None for a label that is not reached by steps.
    elsewhere: whether the label rounds to another structure than its start.
    stuck: whether no structure is better than the start to first order: then no step size helps.  None without steps.
    rescaled: whether the gradient is divided by the steps, which then may be as small as they like.
    """

    target: Tensor
    losses: Tensor
    distance: Tensor
    reach: Tensor | None
    elsewhere: Tensor
    stuck: Tensor | None
    rescaled: bool = False


@dataclass(frozen=True)
class Inspection:
    """One call of an estimator, as `estimator.inspect(structure, scores, downstream)` saw it.

    Tensors have one entry for each example; `scalars()` is a dictionary of means and shares, ready for a logger, and
    `print` shows it as a table with a sentence of advice.

    losses: those that `loss` returned.
    gradient: what the scores received from their sum, shaped like the scores.
    evaluations: how often the downstream loss was evaluated, in the forward and the backward pass.
    entropy: of the Gibbs distribution of the scores, where it is known.
    support: how many structures SparseMAP mixes at these scores;  gap: how far its solution may be from the best.  None
    for many variables in one example, where these would be combinations.
    label: what is known about the labels, where the method pulls labels back.
    """

    losses: Tensor
    gradient: Tensor
    evaluations: int
    entropy: Tensor | None
    support: Tensor | None
    gap: Tensor | None
    label: Label | None = None

    @property
    def target(self) -> Tensor:
        """The pulled-back labels, which the scores are trained towards."""
        if self.label is None:
            raise TypeError("This method pulls no label back: it has no target.")
        return self.label.target

    def scalars(self) -> dict[str, float]:
        """Means over the batch, and shares of it."""
        sizes = self._sizes_of_gradients()
        found = {
            "loss": self.losses.mean(),
            "gradient": sizes.mean(),
            "zero_gradient": is_nothing(sizes).double().mean(),
            "evaluations": torch.tensor(float(self.evaluations)),
        }
        if self.support is not None and self.gap is not None:
            found["support_size"] = self.support.double().mean()
            found["gap"] = self.gap.amax() if self.gap.numel() else self.gap.new_zeros(())
        if self.entropy is not None:
            found["entropy"] = self.entropy.mean()
        if self.label is not None:
            label = self.label
            found |= {
                "loss_at_target": label.losses.mean(),
                "distance": label.distance.mean(),
                "elsewhere": label.elsewhere.double().mean(),
            }
            if label.reach is not None and label.reach.numel():
                found["reach_p10"], found["reach_p90"] = _tenths(label.reach)
            if label.stuck is not None:
                found["stuck"] = label.stuck.double().mean()
        return {name: float(number) for name, number in found.items()}

    @property
    def advice(self) -> str:
        """A sentence about the step size; empty where there is nothing to say."""
        label = self.label
        if label is None or label.reach is None or label.stuck is None or label.reach.numel() == 0:
            return ""
        numbers = self.scalars()
        if numbers["stuck"] > _MOST:
            return (
                f"{numbers['stuck']:.0%} of the examples are at a structure that no neighbor improves: no step size "
                "helps there; add noise, or start from marginals."
            )
        moving = label.reach[label.reach > 0]
        if moving.numel() == 0:
            return "The downstream loss asks for nothing: its gradient is zero in every example."
        low, high = _tenths(moving).tolist()
        if numbers["elsewhere"] > _MOST or (self._easy_by_hard() > _EASY_AS_HARD and numbers["elsewhere"] > 0):
            return (
                f"The step is large: {numbers['elsewhere']:.0%} of the labels are other structures, whatever the loss "
                "of the example; try a smaller one, or Relative()."
            )
        if high < _LINEAR and not label.rescaled:
            return (
                f"The step is small: it moves no part by more than {high:.2g} (a structure is 1 away), so that its "
                "size only scales the encoder's gradient; Relative() has no size to tune."
            )
        if high > _UNEVEN * low:
            return (
                f"Steps differ a lot: a tenth of the examples moves by less than {low:.2g}, a tenth by more than "
                f"{high:.2g}; no single step size fits, Relative() does."
            )
        return ""

    def _sizes_of_gradients(self) -> Tensor:
        batch = self.losses.dim()
        return self.gradient.flatten(batch).norm(dim=-1) if self.gradient.dim() > batch else self.gradient.abs()

    def _easy_by_hard(self) -> float:
        """The mean gradient of the third of the examples with the lowest loss by that of the third with the highest."""
        order = self.losses.flatten().argsort()
        third = len(order) // 3
        if third < 2:
            return 0.0
        sizes = self._sizes_of_gradients().flatten().double()
        hard = sizes[order[-third:]].mean()
        return float(sizes[order[:third]].mean() / hard) if hard > 0 else 0.0

    def __str__(self) -> str:
        lines = [f"{name.replace('_', ' '):<20} {number:>10.4g}" for name, number in self.scalars().items()]
        return "\n".join([*lines, *filter(None, [self.advice])])


def _tenths(numbers: Tensor) -> Tensor:
    """What a tenth of the numbers is below, and what a tenth is above."""
    return torch.quantile(numbers.double(), torch.tensor([0.1, 0.9], dtype=torch.float64, device=numbers.device))


def inspect_label(
    structure: Structure, scores: Tensor, pulled: Pulled, losses: Tensor, gradient: Tensor | None
) -> Label:
    """The record of a label; `losses` are those at the label, `gradient` that at the start, if steps were made."""
    dims, start, target = structure.event_dims, pulled.start, pulled.target
    before, after = (_round(structure, scores, point) for point in (start, target))
    reach = stuck = None
    if gradient is not None and pulled.size is not None:
        usable = scores > -torch.inf
        seen = structure.visible(gradient, usable)
        size = pulled.size if isinstance(pulled.size, Tensor) else torch.full((), pulled.size, dtype=seen.dtype)
        reach = (seen * size).abs().flatten(-dims).amax(-1)
        better = structure.argmax((-gradient).masked_fill(~usable, -torch.inf))
        gain = structure.count_once(gradient * (start - better)).flatten(-dims).sum(-1)
        stuck = gain <= 1e-6 * (gradient * start).abs().flatten(-dims).sum(-1)
    return Label(
        target=target,
        losses=losses,
        distance=structure.count_once((start - target).square()).flatten(-dims).sum(-1).sqrt(),
        reach=reach,
        elsewhere=(before != after).flatten(-dims).any(-1),
        stuck=stuck,
        rescaled=pulled.rescale,
    )


def _round(structure: Structure, scores: Tensor, point: Tensor) -> Tensor:
    """The structure nearest to a point."""
    return structure.argmax((point - 0.5).masked_fill(scores == -torch.inf, -torch.inf))


def inspect_scores(structure: Structure, scores: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The entropy of the Gibbs distribution if there is one, the size of the SparseMAP support, and its gap.

    The last two are None where they would be those of more combinations than one would want to list.
    """
    entropy = None
    if structure.offers(LogLinear) and isinstance(structure, LogLinear):
        entropy = structure.entropy(scores)
    try:
        solution = structure.solve(scores)
    except TooManyVertices:
        return entropy, None, None
    return entropy, solution.mixture.size, solution.gap


def is_nothing(sizes: Tensor) -> Tensor:
    """Which gradients of a batch are zero but for rounding, by their norms: below a billionth of the largest."""
    return sizes <= 1e-9 * sizes.amax() if sizes.numel() else sizes == 0

"""The k-subset toy: find the k items of n that come nearest to a target, when all one has is a gradient estimate.

Small enough to know everything: with n = 10 and k = 5 there are 252 subsets, so that the expected loss, its gradient
and the best subset are exact.  Reference: Niepert, Minervini and Franceschi (2021); measures of Ahmed et al. (2023).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.mistakes import Mistake, check_counts
from pullback.experiments.task import Labelled, Model, Picture, Split, Task, batch_of

DRAWS = 400  # of a random estimator, for its bias and variance; and for the cosine, which is that of their mean


@dataclass(frozen=True)
class Targets:
    """Targets (m, n), and the numbers of the instances (m,)."""

    y: Tensor
    number: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, indices: Tensor) -> "Targets":
        return Targets(self.y[indices], self.number[indices])

    def to(self, device: torch.device) -> "Targets":
        return Targets(self.y.to(device), self.number.to(device))


class Scores(nn.Module):
    """The scores themselves are the parameters: n for each instance.  Where they started is remembered."""

    start: Tensor

    def __init__(self, instances: int, n: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.randn(instances, n))
        self.register_buffer("start", self.scores.detach().clone())

    def forward(self, targets: Targets) -> Tensor:
        return self.scores[targets.number]


class Identity(nn.Module):
    """There is nothing to decode: the subset is the answer."""

    def forward(self, targets: Targets, z: Tensor) -> Tensor:
        return z


def distances(z: Tensor, y: Tensor) -> Tensor:
    """‖z − y‖² of each example."""
    return (z - y).square().sum(-1)


@dataclass(frozen=True)
class SubsetToy(Task):
    """The k items of n nearest to a target: the best subset and the exact gradient are known.

    Attributes:
        n: how many items there are.
        k: how many of them are chosen.
        instances: targets, each learned on its own; measures are means over them.
        data_seed: the seed of the targets.
    """

    n: int = 10
    k: int = 5
    instances: int = 100
    data_seed: int = 0

    name: ClassVar[str] = "subset"
    measure: ClassVar[str] = "gap"
    lower_is_better: ClassVar[tuple[str, ...]] = ("gap", "expected_gap", "bias", "variance")
    enumerable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.k < self.n <= 16:
            raise Mistake(f"n is {self.n} and k is {self.k}; expected 0 < k < n ≤ 16.")
        check_counts(self, "instances")

    def data(self) -> dict[str, Targets]:
        """The same targets throughout: there is nothing to generalize to."""
        generator = torch.Generator().manual_seed(self.data_seed)
        y = torch.randn(self.instances, self.n, generator=generator).abs()
        targets = Targets(y, torch.arange(self.instances))
        return dict.fromkeys(("train", "validation", "test"), targets)

    @property
    def structure(self) -> pb.Structure:
        return pb.Subset(self.k)

    def model(self, estimator: pb.Estimator) -> Model:
        return Model(Scores(self.instances, self.n), Identity(), estimator, self.structure, distances)

    def total(self, losses: Tensor, count: int) -> Tensor:
        """The sum: instances have nothing to do with each other, and a step means the same however many there are."""
        return losses.sum()

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The best subset, and a random one."""
        subsets = pb.Subset(self.k)
        return {
            "gold": lambda targets: subsets.argmax(targets.y),
            "random": lambda targets: subsets.sample(torch.zeros_like(targets.y)),
        }

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Optimality gaps now, and what the estimator's gradient was like where training started."""
        targets: Targets = batch_of(split)
        best = distances(pb.Subset(self.k).argmax(targets.y), targets.y)
        found = {"gap": float((distances(model.latent(targets), targets.y) - best).mean())}
        if isinstance(model.estimator, Labelled):
            return found
        found["expected_gap"] = float((self.expected_loss(model.encoder(targets), targets.y) - best).mean())
        start = model.get_submodule("encoder").get_buffer("start")[targets.number]
        with torch.enable_grad():
            (row,) = pb.compare_gradients(
                self.structure,
                start,
                lambda z: distances(z, targets.y),
                {"": model.estimator},
                draws=DRAWS,
            ).rows
        return {**found, "cosine": row.cosine, "bias": row.bias, "variance": row.variance}

    def expected_loss(self, scores: Tensor, y: Tensor) -> Tensor:
        """Σ p(z) ‖z − y‖² over all subsets, per instance."""
        subsets = pb.Subset(self.k)
        every = subsets.enumerate(scores.shape).vertices.to(scores).unsqueeze(1).expand(-1, *scores.shape)
        return (subsets.log_prob(scores, every).exp() * distances(every, y)).sum(0)

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """The marginals of the first instances beside their best subset."""
        targets: Targets = batch_of(split, 2)
        subsets = pb.Subset(self.k)
        point, gold = subsets.marginals(model.encoder(targets)), subsets.argmax(targets.y)
        items = [f"{i + 1}" for i in range(self.n)]
        return [
            Picture(
                f"Instance {i + 1}: how likely each item is",
                pb.draw(subsets, point, items, index=i, gold=gold).svg,
            )
            for i in range(len(targets))
        ]

"""Latent clusters: each point belongs to one of K clusters, and each cluster has a linear rule of its own.

The label of x is sign(w_z · x − b_z) with z hidden.  An encoder has to find the clusters: no single linear rule fits.
Reference: Mihaylova, Niculae and Martins (2020), section on synthetic data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from sklearn.metrics import v_measure_score
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.mistakes import check_counts
from pullback.experiments.task import Model, Picture, Split, Task, batch_of

TRAIN, VALIDATION, TEST = 5000, 1000, 1000


@dataclass(frozen=True)
class Points:
    """Inputs (m, features), labels 0/1 (m,), and the hidden clusters (m,)."""

    x: Tensor
    y: Tensor
    z: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, indices: Tensor) -> "Points":
        return Points(self.x[indices], self.y[indices], self.z[indices])

    def to(self, device: torch.device) -> "Points":
        return Points(self.x.to(device), self.y.to(device), self.z.to(device))


class Encoder(nn.Module):
    """A score for each cluster."""

    def __init__(self, clusters: int, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, clusters)

    def forward(self, points: Points) -> Tensor:
        scores: Tensor = self.linear(points.x)
        return scores


class Decoder(nn.Module):
    """One linear classifier per cluster, mixed by the latent point: Σ_k z_k (W_k x + b)."""

    def __init__(self, clusters: int, features: int) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(clusters, features, 2)

    def forward(self, points: Points, z: Tensor) -> Tensor:
        # Bilinear(z, x), contracted over x first: one matrix product instead of one per class and example.
        rules = self.bilinear.weight.flatten(0, 1) @ points.x.T  # (2 · clusters, m)
        mixed = rules.T.unflatten(1, (2, -1)) * z.unsqueeze(1)
        answer: Tensor = mixed.sum(-1) + self.bilinear.bias
        return answer


@dataclass(frozen=True)
class Clusters(Task):
    """Hidden clusters, each with a linear rule of its own; no single rule fits all points.

    Attributes:
        clusters: how many there are (K).
        features: the dimension of the points.
        data_seed: the seed of centers, rules and points.
    """

    clusters: int = 3
    features: int = 100
    data_seed: int = 42

    name: ClassVar[str] = "clusters"
    measure: ClassVar[str] = "accuracy"
    percent: ClassVar[tuple[str, ...]] = ("accuracy", "v_measure", "relaxed_accuracy")
    enumerable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_counts(self, "clusters", "features")

    def data(self) -> dict[str, Points]:
        """Parts drawn from the same centers and rules.

        Thresholds are the mean score of each cluster over all points, so that labels are balanced inside each cluster.
        """
        generator = torch.Generator().manual_seed(self.data_seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        centers, rules = draw(self.clusters, self.features), draw(self.clusters, self.features)
        count = TRAIN + VALIDATION + TEST
        z = torch.randint(self.clusters, (count,), generator=generator)
        x = centers[z] + 0.1 * draw(count, self.features)
        score = (rules[z] * x).sum(-1)
        threshold = torch.zeros(self.clusters).scatter_reduce(0, z, score, "mean", include_self=False)
        y = (score > threshold[z]).long()
        parts = [TRAIN, VALIDATION, TEST]
        splits = [Points(*part) for part in zip(x.split(parts), y.split(parts), z.split(parts))]
        return dict(zip(("train", "validation", "test"), splits))

    @property
    def structure(self) -> pb.Structure:
        return pb.Categorical()

    def model(self, estimator: pb.Estimator) -> Model:
        encoder, decoder = Encoder(self.clusters, self.features), Decoder(self.clusters, self.features)
        return Model(encoder, decoder, estimator, self.structure)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true cluster; one cluster for all, which leaves a linear model; and a random one."""

        def one_hot(z: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(z, self.clusters)

        return {
            "gold": lambda points: one_hot(points.z),
            "single": lambda points: one_hot(torch.zeros_like(points.z)),
            "random": lambda points: one_hot(torch.randint(self.clusters, points.z.shape).to(points.z.device)),
        }

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        points = batch_of(split)
        latent = model.latent(points)
        found = {
            "accuracy": _share(model.decoder(points, latent).argmax(-1) == points.y),
            "v_measure": float(v_measure_score(points.z.numpy(), latent.argmax(-1).numpy())),
        }
        relaxed = model.relaxed(points)
        if relaxed is not None:
            found["relaxed_accuracy"] = _share(model.decoder(points, relaxed).argmax(-1) == points.y)
        return found

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """Which latent cluster the points of each true cluster went to."""
        points = batch_of(split)
        found = model.latent(points).argmax(-1)
        shares = torch.zeros(self.clusters, self.clusters)
        shares.index_put_((points.z, found), torch.ones(len(found)), accumulate=True)
        shares /= shares.sum(-1, keepdim=True).clamp_min(1)
        rows, columns = ([f"{kind} {k + 1}" for k in range(self.clusters)] for kind in ("true", "latent"))
        title = "Where the points of each true cluster went"
        drawing = pb.draw(pb.Matching(), shares, rows, choices=columns, title=title)
        return [Picture(drawing.title, drawing.svg)]


def _share(true: Tensor) -> float:
    return float(true.float().mean())

"""Latent clusters: each point belongs to one of K clusters, and each cluster has a linear rule of its own.

The label of x is sign(w_z · x − b_z) with z hidden.  An encoder has to find the clusters: no single linear rule fits.
Reference: Mihaylova, Niculae and Martins (2020), section on synthetic data.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

import pullback as pb

TRAIN, VALIDATION, TEST = 5000, 1000, 1000


@dataclass(frozen=True)
class Split:
    """Inputs (m, features), labels 0/1 (m,), and the hidden clusters (m,)."""

    x: Tensor
    y: Tensor
    z: Tensor


def make_data(clusters: int, features: int, seed: int) -> tuple[Split, Split, Split]:
    """Train, validation and test parts, drawn from the same centers and rules.

    Thresholds are the mean score of each cluster over all points, so that labels are balanced inside each cluster.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    centers, rules = draw(clusters, features), draw(clusters, features)
    count = TRAIN + VALIDATION + TEST
    z = torch.randint(clusters, (count,), generator=generator)
    x = centers[z] + 0.1 * draw(count, features)
    score = (rules[z] * x).sum(-1)
    threshold = torch.zeros(clusters).scatter_reduce(0, z, score, "mean", include_self=False)
    y = (score > threshold[z]).long()
    parts = [TRAIN, VALIDATION, TEST]
    train, validation, test = (Split(*part) for part in zip(x.split(parts), y.split(parts), z.split(parts)))
    return train, validation, test


class Decoder(nn.Module):
    """One linear classifier per cluster, mixed by the latent point: Σ_k z_k (W_k x + b)."""

    def __init__(self, clusters: int, features: int) -> None:
        super().__init__()
        self.bilinear = nn.Bilinear(clusters, features, 2)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        # Bilinear(z, x), contracted over x first: one matrix product instead of one per class and example.
        rules = self.bilinear.weight.flatten(0, 1) @ x.T  # (2 · clusters, m)
        mixed = rules.T.unflatten(1, (2, -1)) * z.unsqueeze(1)
        answer: Tensor = mixed.sum(-1) + self.bilinear.bias
        return answer


def make_model(clusters: int, features: int, estimator: pb.Estimator) -> pb.LatentStructureModel:
    """Linear encoder, argmax over clusters, bilinear decoder, cross-entropy."""
    return pb.LatentStructureModel(
        nn.Linear(features, clusters), Decoder(clusters, features), estimator, pb.Categorical()
    )

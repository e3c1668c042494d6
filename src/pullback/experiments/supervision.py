"""Tasks whose true structures are given in training."""

from typing import Any

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.task import Task


class SupervisedTask(Task):
    """A task that learns the structure itself: nothing is decoded from it, and the rows are losses.

    They are Fenchel–Young losses, which differ in what the model predicts in training: the argmax, marginals, or the
    SparseMAP point.  The gradient is always prediction − gold.
    """

    def losses(self) -> dict[str, pb.Regularizer]:
        return {"perceptron": pb.Unregularized(), "crf": pb.Entropy(), "sparsemap": pb.SquaredNorm()}

    def yardsticks(self) -> list[str]:
        return [*self.known(), "frozen"]

    def estimators(self) -> list[str]:
        return [*self.yardsticks(), *self.losses()]


class Undecoded(nn.Module):
    """The decoder of a supervised task: the structure is the answer."""

    def forward(self, batch: Any, z: Tensor) -> Tensor:
        return z


def mistakes_in(z: Tensor, gold: Tensor) -> Tensor:
    """How many parts of each structure are wrong, where every structure has the same number of them: ½ ‖z − gold‖²."""
    return 0.5 * torch.square(z - gold.to(z.dtype)).flatten(1).sum(-1)

"""Bring your own task: `python own_task.py run marked` trains it, and so do all other commands of `pullback`.

Of a few items one is marked, and the answer is the sign of a number on that item.  Nobody says which item it is: the
encoder has to find the mark, and the decoder reads the item that was chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments import cli
from pullback.experiments.run import Optimizer, Run
from pullback.experiments.task import Model, Split, Task, batch_of
from pullback.experiments.tasks import SETUPS, TASKS


@dataclass(frozen=True)
class Rows:
    """Items (m, n, 4), each with a mark, a number and two features that mean nothing, and the answers (m,)."""

    items: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, indices: Tensor) -> "Rows":
        return Rows(self.items[indices], self.y[indices])


class Finder(nn.Linear):
    """A score for every item."""

    def forward(self, rows: Rows) -> Tensor:
        return super().forward(rows.items).squeeze(-1)


class Reader(nn.Linear):
    """The answer, from the item that was chosen."""

    def forward(self, rows: Rows, z: Tensor) -> Tensor:
        return super().forward((z.unsqueeze(-1) * rows.items).sum(-2))


@dataclass(frozen=True)
class Marked(Task):
    """The sign of the number on the item that is marked.

    Attributes:
        items: how many there are in a row.
        data_seed: the seed of the rows.
    """

    items: int = 5
    data_seed: int = 0

    name: ClassVar[str] = "marked"
    measure: ClassVar[str] = "accuracy"
    percent: ClassVar[tuple[str, ...]] = ("accuracy", "found")
    enumerable: ClassVar[bool] = True

    @property
    def structure(self) -> pb.Structure:
        return pb.Categorical()

    def data(self) -> Mapping[str, Split]:
        generator = torch.Generator().manual_seed(self.data_seed)
        splits = {}
        for split, count in (("train", 1000), ("validation", 500), ("test", 500)):
            items = torch.randn(count, self.items, 4, generator=generator)
            number = items[torch.arange(count), items[..., 0].argmax(-1), 1]
            splits[split] = Rows(items, (number > 0).long())
        return splits

    def model(self, estimator: pb.Estimator) -> Model:
        return Model(Finder(4, 1), Reader(4, 2), estimator, self.structure)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The marked item, for the rows `gold` and `supervised`."""
        return {"gold": lambda rows: pb.Categorical().argmax(rows.items[..., 0])}

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        rows = batch_of(split)
        z = model.latent(rows)
        right = model.decoder(rows, z).argmax(-1) == rows.y
        found = (z * self.known()["gold"](rows)).sum(-1)
        return {"accuracy": float(right.float().mean()), "found": float(found.mean())}


TASKS[Marked.name] = Marked
SETUPS[Marked.name] = Run(Marked(), optimizer=Optimizer(learning_rate=0.05), noise=1.0, steps=200)


def main(arguments: Sequence[str] | None = None) -> None:
    """The `pullback` command, which knows this task too."""
    cli.main(arguments)


if __name__ == "__main__":
    main()

"""Those who look on while a run is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pullback.experiments.records import Record
from pullback.experiments.run import Run


class Watcher:
    """What someone who looks on hears of; does nothing by itself."""

    def on_start(self, run: Run[Any], step: int) -> None:
        """The run begins after `step` steps that were taken before."""

    def on_step(self, step: int, loss: Tensor) -> None:
        """A step was taken."""

    def on_record(self, record: Record) -> None:
        """The model was evaluated."""


@dataclass
class Together(Watcher):
    """Several who look on."""

    watchers: Sequence[Watcher]

    def on_start(self, run: Run[Any], step: int) -> None:
        for watcher in self.watchers:
            watcher.on_start(run, step)

    def on_step(self, step: int, loss: Tensor) -> None:
        for watcher in self.watchers:
            watcher.on_step(step, loss)

    def on_record(self, record: Record) -> None:
        for watcher in self.watchers:
            watcher.on_record(record)

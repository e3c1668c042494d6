"""The interface of a task, and the model that every task trains."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn

import pullback as pb

LIKELY = 0.2  # how likely a part has to be to be drawn


class Split(Protocol):
    """Examples: how many there are, and a batch of those with the given numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Tensor) -> Any:
        """A batch.  Its `y` is what the model has to predict."""


@dataclass(frozen=True)
class Picture:
    """Something a model has learned, as SVG."""

    title: str
    svg: str


class Labelled(pb.Estimator):
    """An estimator that knows a structure for each example, its label: a yardstick for the others.

    `look_at` shows it a batch before it is used, and `label_of(batch)` gives the labels.
    """

    label: Tensor

    def __init__(self, label_of: Callable[[Any], Tensor]) -> None:
        self.label_of = label_of

    def look_at(self, batch: Any) -> None:
        """Remembers the labels of `batch`."""
        self.label = self.label_of(batch)

    @property
    def evaluations(self) -> int:
        return 1


class DecodesLabel(Labelled):
    """Decodes from its label, in training and at test time: the true structure, or one that knows nothing."""

    def loss(self, structure: pb.Structure, scores: Tensor, downstream: Callable[[Tensor], Tensor]) -> Tensor:
        return downstream(self.label.to(scores.dtype)) + no_gradient(structure, scores)

    def __call__(self, structure: pb.Structure, scores: Tensor) -> Tensor:
        return self.label.to(scores.dtype)


def no_gradient(structure: pb.Structure, scores: Tensor) -> Tensor:
    """A zero for each example, which gives the scores a gradient of zeros, so that any model can be trained."""
    return 0 * scores.flatten(-structure.event_dims).sum(-1)


class Model(pb.LatentStructureModel):
    """Encoder, structure and decoder; at test time the decoder sees the argmax, or a yardstick's label."""

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        estimator: pb.Estimator,
        structure: pb.Structure | Callable[[Any], pb.Structure],
        criterion: Callable[[Any, Any], Tensor] | None = None,
    ) -> None:
        test_point = estimator if isinstance(estimator, DecodesLabel) else None
        super().__init__(encoder, decoder, estimator, structure, criterion, test_point)

    def loss(self, x: Any, y: Any) -> Tensor:
        self._look_at(x)
        return super().loss(x, y)

    def latent(self, x: Any) -> Tensor:
        self._look_at(x)
        return super().latent(x)

    def relaxed(self, x: Any) -> Tensor | None:
        """The point that a relaxation trains with, which is not the one it is tested with; None for other methods.

        Without the noise of training, if there was any.
        """
        estimator = self.estimator.inner if isinstance(self.estimator, pb.Perturbed) else self.estimator
        if isinstance(estimator, pb.Relaxation) and estimator.decodes_from is None:
            point: Tensor = estimator(self.structure_of(x), self.encoder(x))
            return point
        return None

    def probabilities(self, x: Any) -> Tensor:
        """How likely each part is: marginals, where the structure has them and no label is decoded."""
        structure = self.structure_of(x)
        if isinstance(self.estimator, DecodesLabel) or not structure.offers(pb.LogLinear):
            return self.latent(x)
        found: Tensor = cast(pb.LogLinear, structure).marginals(self.encoder(x))
        return found

    def _look_at(self, x: Any) -> None:
        if isinstance(self.estimator, Labelled):
            self.estimator.look_at(x)


class Task(ABC):
    """A model with a latent structure, and data to train it on.

    A task is a frozen dataclass: its fields are its settings, and options of the command line.  The first line of its
    docstring is what `pullback tasks` says about it.

    name: what it is called.
    measure: the measure that decides which estimator is best, larger unless `lower_is_better`.
    percent: measures that are shares, and are shown in percent.
    descriptive: measures that describe a model and have no better end.
    row_settings: settings that may differ between rows of one table; any other setting makes another table.
    without_gold: why there is no row `gold`, where there is none.
    """

    name: ClassVar[str]
    measure: ClassVar[str]
    percent: ClassVar[tuple[str, ...]] = ()
    lower_is_better: ClassVar[tuple[str, ...]] = ()
    descriptive: ClassVar[tuple[str, ...]] = ()
    row_settings: ClassVar[tuple[str, ...]] = ()
    without_gold: ClassVar[str] = "it is not known"

    @abstractmethod
    def data(self) -> Mapping[str, Split]:
        """The splits "train", "validation" and "test"; the same whenever it is called."""

    @abstractmethod
    def model(self, estimator: pb.Estimator) -> Model:
        """A fresh model, its parameters drawn from torch's random numbers."""

    @abstractmethod
    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """How good the model is on a split: `measure` and whatever else is of interest."""

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """What the model has learned; nothing unless a task says so."""
        return []

    @property
    @abstractmethod
    def structure(self) -> pb.Structure:
        """The kind of structure; that of a batch may have lengths and masks besides."""

    enumerable: ClassVar[bool] = False
    """Whether the structures are few enough to decode every one in a training step."""

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """Structures that nobody has to learn, as functions of a batch: `gold`, and those that know nothing."""
        return {}

    def losses(self) -> dict[str, pb.Regularizer]:
        """Rows that learn the true structure, each by the Fenchel–Young loss of a regularizer."""
        if "gold" not in self.known():
            return {}
        return {"supervised": pb.Entropy() if self.structure.offers(pb.LogLinear) else pb.SquaredNorm()}

    def total(self, losses: Tensor, count: int) -> Tensor:
        """What is minimized: the mean of the losses of a batch of `count` examples, of which these are some or all."""
        return losses.sum() / count

    # ---- what follows

    def show(self, measure: str, value: float) -> str:
        """A value of a measure as it is printed: shares in percent."""
        return f"{100 * value:.1f}" if measure in self.percent else f"{value:.3g}"

    @property
    def summary(self) -> str:
        """The task in one line."""
        return (type(self).__doc__ or "").strip().splitlines()[0]

    def estimators(self) -> list[str]:
        """The rows of a table: yardsticks first, then what in the catalog fits the structure."""
        return [*self.yardsticks(), *(name for name in pb.CATALOG if self._fits(name))]

    def yardsticks(self) -> list[str]:
        """Rows without which the other numbers say little."""
        return [*self.known(), *self.losses(), "frozen"]

    def from_catalog(self, name: str) -> bool:
        """Whether a row is an estimator of the catalog, and not one that the task makes itself."""
        return name in pb.CATALOG and name not in self.yardsticks() and name not in self.losses()

    def _fits(self, name: str) -> bool:
        entry = pb.CATALOG[name]
        affordable = self.enumerable or entry.evaluations.each != "vertices"
        if entry.given or not self.from_catalog(name):  # no label to give where the truth is not known
            return False
        return entry.serves(self.structure) and affordable


def batch_of(split: Split, count: int | None = None) -> Any:
    """The first `count` examples of a split, or all of it."""
    return split[torch.arange(len(split) if count is None else min(count, len(split)))]

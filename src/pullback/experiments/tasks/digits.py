"""Digits in order: images of different digits, the sorted list of what they show, and no word about which is which.

The list 0, 3, 4, 8, 9 says that the picture at place one is a 0.  Which of the five pictures that is, is latent: an
encoder puts the pictures in order, and a decoder names the digit at each place, one picture at a time, without knowing
the place.  It can name them only if they stand in the right order.  Images are scikit-learn's, 8 × 8 pixels.  Weak
supervision by sorted lists, and permutations as latent variables: Grover et al. (2019), Mena et al. (2018).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import pullback as pb
from pullback.experiments.mistakes import Mistake, check_counts
from pullback.experiments.task import Model, Picture, Split, Task, batch_of

PIXELS, DIGITS = 64, 10
VALIDATION, TEST = 300, 300  # images; the other 1,197 are for training


# ---- the data


def images_of_digits(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Images (count, 64) of numbers from 0 to 1, and their digits (count,): three parts that share no image."""
    loaded = load_digits()
    order = torch.randperm(len(loaded.target), generator=torch.Generator().manual_seed(seed))
    images = torch.tensor(loaded.data, dtype=torch.float32)[order] / 16
    digits = torch.tensor(loaded.target)[order]
    sizes = [len(order) - VALIDATION - TEST, VALIDATION, TEST]
    return dict(zip(("train", "validation", "test"), zip(images.split(sizes), digits.split(sizes))))


@dataclass(frozen=True)
class Lists:
    """Images (m, n, 64) in any order, and the digits (m, n) that they show, none of them twice."""

    images: Tensor
    digits: Tensor

    @property
    def y(self) -> Tensor:
        """What the model has to predict: the digits (m, n) in ascending order."""
        return self.digits.sort(-1).values

    @property
    def places(self) -> Tensor:
        """What it has to find by itself: the place (m, n) of each image, from 0."""
        return self.digits.argsort(-1).argsort(-1)

    def to(self, device: torch.device) -> "Lists":
        return Lists(self.images.to(device), self.digits.to(device))


class Drawn:
    """So many lists of n images with different digits, drawn from the images of one part."""

    def __init__(self, images: Tensor, digits: Tensor, n: int, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        kinds = torch.rand(count, DIGITS, generator=generator).argsort(-1)[:, :n]
        by_digit = [(digits == digit).nonzero().flatten() for digit in range(DIGITS)]
        sizes = torch.tensor([len(some) for some in by_digit])[kinds]
        within = (torch.rand(count, n, generator=generator) * sizes).long()
        starts = torch.tensor([0, *(len(some) for some in by_digit)]).cumsum(0)[kinds]
        self.images, self.digits, self.chosen = images, digits, torch.cat(by_digit)[starts + within]

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, indices: Tensor) -> Lists:
        chosen = self.chosen[indices]
        return Lists(self.images[chosen], self.digits[chosen])


# ---- the model


def perceptron(size: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())


class Encoder(nn.Module):
    """Scores of each image, `parts` of them, from what it looks like and what all of them look like on average."""

    def __init__(self, parts: int, hidden: int = 128) -> None:
        super().__init__()
        self.look = perceptron(PIXELS, hidden)
        self.compare = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, parts))

    def forward(self, lists: Lists) -> Tensor:
        seen = self.look(lists.images)
        together = seen.mean(1, keepdim=True).expand_as(seen)
        scores: Tensor = self.compare(torch.cat([seen, together], -1))  # (m, n, parts)
        return scores.squeeze(-1)


class Decoder(nn.Module):
    """Logits (m, n, 10) of the digit at each place, from features of the image that stands there.

    place: from a latent point to a matrix (m, n, n) that says how much of each image stands at each place.
    """

    def __init__(self, place: Callable[[Tensor], Tensor], hidden: int = 128) -> None:
        super().__init__()
        self.place = place
        self.look, self.name = perceptron(PIXELS, hidden), nn.Linear(hidden, DIGITS)

    def forward(self, lists: Lists, z: Tensor) -> Tensor:
        in_order = self.place(z).mT @ self.look(lists.images)
        logits: Tensor = self.name(in_order)
        return logits


def soft_places(ranks: Tensor, width: float = 0.5) -> Tensor:
    """Ranks 1, …, n (m, n) as a matrix (m, n, n): most of an image stands at its rank, and some at those beside it.

    softmax of −(rank − place)² / width over places.  A matrix of zeros and ones would have no gradient in the ranks.
    Reference: Prillo and Eisenschlos (2020).
    """
    places = torch.arange(1, ranks.shape[-1] + 1, device=ranks.device)
    return (-(ranks.unsqueeze(-1) - places).square() / width).softmax(-1)


def surprise(logits: Tensor, digits: Tensor) -> Tensor:
    """−log p of a list of digits."""
    return cross_entropy(logits.mT, digits, reduction="none").sum(-1)


# ---- the task


@dataclass(frozen=True)
class Digits(Task):
    """Images of digits are put in order, when all that is known is the sorted list of digits.

    Attributes:
        latent: matching: which image goes to which place; or ranking: the rank of each image.
        n: how many images are in a list, all of different digits.
        train: how many lists to train on.
        test: how many to validate on, and to test on; of images that are not seen in training.
        data_seed: the seed of the split of the images, and of the lists.
    """

    latent: Literal["matching", "ranking"] = "matching"
    n: int = 5
    train: int = 50_000
    test: int = 1000
    data_seed: int = 3

    name: ClassVar[str] = "digits"
    measure: ClassVar[str] = "exact"
    percent: ClassVar[tuple[str, ...]] = ("exact", "elements", "named")

    def __post_init__(self) -> None:
        if not 2 <= self.n <= DIGITS:
            raise Mistake(f"n is {self.n}; expected 2 to {DIGITS} different digits.")
        check_counts(self, "train", "test")

    def data(self) -> dict[str, Drawn]:
        counts = {"train": self.train, "validation": self.test, "test": self.test}
        return {
            part: Drawn(*images, self.n, counts[part], 3 * self.data_seed + number)
            for number, (part, images) in enumerate(images_of_digits(self.data_seed).items())
        }

    @property
    def structure(self) -> pb.Structure:
        return pb.Matching() if self.latent == "matching" else pb.Ranking()

    def model(self, estimator: pb.Estimator) -> Model:
        matching = self.latent == "matching"
        encoder = Encoder(self.n if matching else 1)
        decoder = Decoder((lambda pairs: pairs) if matching else soft_places)
        return Model(encoder, decoder, estimator, self.structure, surprise)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true order; and a random one."""
        return {
            "gold": lambda lists: self._vertex(lists.places),
            "random": lambda lists: self._vertex(torch.rand(lists.digits.shape).argsort(-1).to(lists.digits.device)),
        }

    def _vertex(self, places: Tensor) -> Tensor:
        """Places (m, n), from 0, as a matching or a ranking."""
        return pb.Matching.pairs(places, self.n) if self.latent == "matching" else places + 1.0

    def _places(self, z: Tensor) -> Tensor:
        return pb.Matching.partners(z) if self.latent == "matching" else z.round().long() - 1

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Lists that are put in order without a mistake, images at their places, and places whose digit is named."""
        lists: Lists = batch_of(split)
        z = model.latent(lists)
        right = self._places(z) == lists.places
        named = model.decoder(lists, z).argmax(-1) == lists.y
        return {"exact": _share(right.all(-1)), "elements": _share(right), "named": _share(named)}

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """Where the images of a few lists were put, beside where they belong."""
        lists: Lists = batch_of(split, 3)
        z, gold = model.latent(lists), self._vertex(lists.places)
        shown = []
        for i, digits in enumerate(lists.digits.tolist()):
            images, places = [f"a {digit}" for digit in digits], [f"{place + 1}." for place in range(self.n)]
            title = f"Images of {', '.join(map(str, digits))} in order"
            drawing = pb.draw(self.structure, z, images, choices=places, index=i, gold=gold.to(z), title=title)
            shown.append(Picture(title, drawing.svg))
        return shown


def _share(true: Tensor) -> float:
    return float(true.float().mean())

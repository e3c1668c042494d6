"""Polarity: is a sentence for or against a film, through a latent dependency tree over its words.

The decoder has word vectors of its own, without context.  It passes messages from words to their heads and reads the
answer at the root, so that what it knows about a sentence is what the tree brings there.
Data: Pang and Lee (2005).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.files import DataFolder
from pullback.experiments.mistakes import check_counts
from pullback.experiments.modules import Biaffine, BiLSTM
from pullback.experiments.task import LIKELY, Model, Picture, Split, batch_of
from pullback.experiments.tasks.reviews import SIZE, Batch, GloveOrTrained, Reviews, ReviewTask, judged, some_short

CHUNK = 250  # examples that are evaluated at a time


class Encoder(nn.Module):
    """A BiLSTM over words, and a score for every arc."""

    def __init__(self, reviews: Reviews, hidden: int = 64) -> None:
        super().__init__()
        self.words = GloveOrTrained(reviews)
        self.lstm = BiLSTM(SIZE, hidden)
        self.arcs = Biaffine(2 * hidden)

    def forward(self, batch: Batch) -> Tensor:
        scores: Tensor = self.arcs(self.lstm(self.words(batch.tokens), batch.lengths))
        return scores


class TreeDecoder(nn.Module):
    """Rounds of messages from modifiers to heads over word vectors; the answer is read at the root."""

    def __init__(self, reviews: Reviews, rounds: int, size: int = 64, dropout: float = 0.3) -> None:
        super().__init__()
        self.rounds = rounds
        self.words = nn.Sequential(GloveOrTrained(reviews), nn.Dropout(dropout), nn.Linear(SIZE, size))
        self.root = nn.Parameter(0.1 * torch.randn(size))
        self.message = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))
        self.update = nn.Sequential(nn.Linear(2 * size, size), nn.ReLU(), nn.Linear(size, size))
        self.norm = nn.LayerNorm(size)
        self.answer = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, batch: Batch, z: Tensor) -> Tensor:
        nodes = torch.cat([self.root.expand(len(z), 1, -1), self.words(batch.tokens)], 1)
        state = nodes
        for _ in range(self.rounds):
            received = z @ self.message(state)  # summed over modifiers
            state = self.norm(nodes + self.update(torch.cat([nodes, received], -1)))
        logits: Tensor = self.answer(state[:, 0])
        return logits


class BiLSTMDecoder(nn.Module):
    """A BiLSTM over the words and the mean of its states: what the encoder's network can do without any tree."""

    def __init__(self, reviews: Reviews, hidden: int = 64, dropout: float = 0.3) -> None:
        super().__init__()
        self.words = nn.Sequential(GloveOrTrained(reviews), nn.Dropout(dropout))
        self.lstm = BiLSTM(SIZE, hidden)
        self.answer = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, batch: Batch, z: Tensor) -> Tensor:
        states = self.lstm(self.words(batch.tokens), batch.lengths)  # 0 beyond the end
        logits: Tensor = self.answer(states.sum(1) / batch.lengths.unsqueeze(-1))
        return logits


@dataclass(frozen=True)
class Polarity(ReviewTask):
    """Whether a sentence is for or against a film, through a latent dependency tree over its words.

    Attributes:
        decoder: tree, which hears words through the tree alone; or bilstm, which ignores the tree, for comparison.
        rounds: how many rounds of messages; a word that is more arcs away from the root is not heard.
        longest: sentences with more words are cut after so many.
        data_folder: a folder with sentence_polarity, and with glove100 for word vectors; a sample if it is empty.
    """

    decoder: Literal["tree", "bilstm"] = "tree"
    rounds: int = 3
    longest: int = 40
    data_folder: DataFolder = ""

    name: ClassVar[str] = "polarity"
    measure: ClassVar[str] = "accuracy"
    percent: ClassVar[tuple[str, ...]] = ("accuracy", "relaxed_accuracy", "heard", "neighbors")
    descriptive: ClassVar[tuple[str, ...]] = ("heard", "depth", "neighbors")
    without_gold: ClassVar[str] = "nobody knows the true trees of these sentences"

    def __post_init__(self) -> None:
        check_counts(self, "rounds", "longest")

    @property
    def structure(self) -> pb.Structure:
        return pb.DependencyTree()

    def trees(self, batch: Batch) -> pb.DependencyTree:
        """The trees of a batch; any number of words may be below the root."""
        return pb.DependencyTree(batch.lengths)

    def model(self, estimator: pb.Estimator) -> Model:
        reviews = self.reviews
        encoder = Encoder(reviews)
        decoder = TreeDecoder(reviews, self.rounds) if self.decoder == "tree" else BiLSTMDecoder(reviews)
        return Model(encoder, decoder, estimator, self.trees)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """All words below the root; each below the one before it; and a random tree.  Nobody knows the true ones.

        A decoder that ignores the tree is a yardstick itself.
        """
        return {"flat": flat, "chain": chain, "random": self._random} if self.decoder == "tree" else {}

    def estimators(self) -> list[str]:
        """Without a tree there is nothing to learn about it."""
        return super().estimators() if self.decoder == "tree" else ["frozen"]

    def _random(self, batch: Batch) -> Tensor:
        return self.trees(batch).sample(torch.zeros_like(chain(batch)))

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Accuracy, and what trees are like: words that the decoder hears, their depths, heads that are neighbors."""
        found: dict[str, list[Tensor]] = {}
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            z = model.latent(batch)
            some = {"accuracy": model.decoder(batch, z).argmax(-1) == batch.y}
            relaxed = model.relaxed(batch)
            if relaxed is not None:
                some["relaxed_accuracy"] = model.decoder(batch, relaxed).argmax(-1) == batch.y
            if self.decoder == "tree":
                heads, depth = pb.DependencyTree.heads(z), depths(z)[batch.inside]
                places = torch.arange(1, heads.shape[1] + 1, device=heads.device)
                some["heard"] = depth <= self.rounds
                some["depth"] = depth
                some["neighbors"] = ((heads > 0) & ((heads - places).abs() == 1))[batch.inside]
            for name, values in some.items():
                found.setdefault(name, []).append(values.float())
        return {name: float(torch.cat(values).mean()) for name, values in found.items()}

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """How likely the arcs of a few short sentences are."""
        if self.decoder != "tree":
            return []
        batch: Batch = batch_of(split)
        trees, arcs = self.trees(batch), model.probabilities(batch)
        answers = model.decoder(batch, model.latent(batch)).argmax(-1).tolist()
        shown = []
        for i in some_short(batch, longest=15, count=4):
            drawing = pb.draw(trees, arcs, self.reviews.words(batch, i), index=i, threshold=LIKELY)
            shown.append(Picture(judged(int(batch.y[i]), answers[i]), drawing.svg))
        return shown


def flat(batch: Batch) -> Tensor:
    """All words below the root: a bag of words."""
    return pb.DependencyTree.arcs(torch.where(batch.inside, 0, -1))


def chain(batch: Batch) -> Tensor:
    """Each word below the one before it, and the first below the root: a recurrent network from right to left."""
    places = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    return pb.DependencyTree.arcs(torch.where(batch.inside, places, -1))


def depths(trees: Tensor) -> Tensor:
    """How many arcs each word (m, n) is away from the root; 0 beyond the end."""
    reached, total, depth = trees[:, :1], torch.zeros_like(trees[:, :1]), 0
    while reached.any():
        depth += 1
        total = total + depth * reached
        reached = reached @ trees
    return total[:, 0, 1:]

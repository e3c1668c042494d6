"""Rationales: a few words of a sentence, chosen before the classifier sees them, that say for or against a film.

The encoder reads the whole sentence and chooses; the decoder sees the vectors of the chosen words, without context and
without order, and nothing else.  Data: Pang and Lee (2005).  Reference: Lei, Barzilay and Jaakkola (2016).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import pullback as pb
from pullback.experiments.files import DataFolder
from pullback.experiments.mistakes import Mistake, check_counts
from pullback.experiments.modules import BiLSTM
from pullback.experiments.task import Model, Picture, Split, batch_of
from pullback.experiments.tasks.reviews import SIZE, Batch, GloveOrTrained, Reviews, ReviewTask, judged, some_short

CHUNK = 250  # examples that are evaluated at a time


class Encoder(nn.Module):
    """A BiLSTM over words, and a score for choosing each (m, n); with `tags`, beside a 0 for not choosing it (m, n, 2).

    Scores stay within ±`bound`, smoothly.
    """

    def __init__(self, reviews: Reviews, tags: bool, hidden: int = 64, bound: float = 8.0) -> None:
        super().__init__()
        self.tags, self.bound = tags, bound
        self.words = GloveOrTrained(reviews)
        self.lstm = BiLSTM(SIZE, hidden)
        self.score = nn.Linear(2 * hidden, 1)

    def forward(self, batch: Batch) -> Tensor:
        states = self.lstm(self.words(batch.tokens), batch.lengths)
        scores = self.bound * torch.tanh(self.score(states) / self.bound)
        return nn.functional.pad(scores, (1, 0)) if self.tags else scores.squeeze(-1)


class Decoder(nn.Module):
    """An answer from the mean of the chosen words, and the share of words that were chosen."""

    def __init__(self, reviews: Reviews, size: int = 64, dropout: float = 0.3) -> None:
        super().__init__()
        self.words = nn.Sequential(GloveOrTrained(reviews), nn.Dropout(dropout), nn.Linear(SIZE, size), nn.ReLU())
        self.answer = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, batch: Batch, z: Tensor) -> tuple[Tensor, Tensor]:
        weights = chosen(z)
        count = weights.sum(-1)
        mean = (weights.unsqueeze(1) @ self.words(batch.tokens)).squeeze(1) / count.clamp_min(1).unsqueeze(-1)
        return self.answer(mean), count / batch.lengths


def chosen(z: Tensor) -> Tensor:
    """How far each word is chosen (m, n), from a subset (m, n) or from tags (m, n, 2)."""
    return z[..., 1] if z.dim() == 3 else z


@dataclass(frozen=True)
class Rationales(ReviewTask):
    """A few words, chosen before the classifier sees them, that say whether a sentence is for or against a film.

    Attributes:
        choice: words, each for itself and never more than the budget; or spans, words that stand together: tags with
            transitions, whose budget is kept by a price.
        share: the budget, a share of the words of the sentence; for words, the number is rounded up.
        together: what two neighbors add to the score if both are chosen, or neither; for spans.  If it is large
            beside the first scores of an encoder, all words of a sentence are chosen or none, and it stays so.
        price: how fast the loss grows with the difference between the share that is chosen and the budget; for spans.
        longest: sentences with more words are cut after so many.
        data_folder: a folder with sentence_polarity, and with glove100 for word vectors; a sample if it is empty.
    """

    choice: Literal["words", "spans"] = "words"
    share: float = 0.2
    together: float = 0.1
    price: float = 1.0
    longest: int = 40
    data_folder: DataFolder = ""

    name: ClassVar[str] = "rationales"
    measure: ClassVar[str] = "accuracy"
    percent: ClassVar[tuple[str, ...]] = ("accuracy", "relaxed_accuracy", "chosen", "alone", "empty")
    descriptive: ClassVar[tuple[str, ...]] = ("chosen", "alone", "empty")
    without_gold: ClassVar[str] = "nobody has marked the words that matter"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise Mistake(f"share is {self.share}; expected a number between 0 and 1.")
        check_counts(self, "longest")
        for name in ("together", "price"):
            if not 0 <= getattr(self, name) < math.inf:
                raise Mistake(f"{name} is {getattr(self, name)}; expected a finite number ≥ 0.")

    # ---- the model

    @property
    def structure(self) -> pb.Structure:
        return pb.Subset.at_most(1) if self.choice == "words" else pb.Tagging(self._transitions)

    @property
    def _transitions(self) -> Tensor:
        return self.together * torch.eye(2)

    def selections(self, batch: Batch) -> pb.Structure:
        """What may be chosen in a batch."""
        if self.choice == "words":
            return pb.Subset.at_most(self.budget(batch), lengths=batch.lengths)
        return pb.Tagging(self._transitions.to(batch.tokens.device), lengths=batch.lengths)

    def budget(self, batch: Batch) -> Tensor:
        """How many words may be chosen in each sentence."""
        return (self.share * batch.lengths).ceil().long()

    def model(self, estimator: pb.Estimator) -> Model:
        reviews = self.reviews
        encoder = Encoder(reviews, tags=self.choice == "spans")
        return Model(encoder, Decoder(reviews), estimator, self.selections, self.criterion)

    def criterion(self, found: tuple[Tensor, Tensor], label: Tensor) -> Tensor:
        """Cross-entropies, and the price of spans that are off the budget: without it all words or none are chosen."""
        logits, share = found
        errors = cross_entropy(logits, label, reduction="none")
        return errors + self.price * (share - self.share).abs() if self.choice == "spans" else errors

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """Every word, whatever the budget; and random words, or a random span, within it."""
        return {"every_word": self._every_word, "random": self._random}

    def _every_word(self, batch: Batch) -> Tensor:
        return self._vertices(batch, batch.inside)

    def _random(self, batch: Batch) -> Tensor:
        places = torch.rand(batch.tokens.shape).to(batch.tokens.device)
        if self.choice == "words":
            return pb.Subset(self.budget(batch), lengths=batch.lengths).argmax(places)
        first = (places[:, :1] * (batch.lengths - self.budget(batch) + 1).unsqueeze(-1)).floor()
        word = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        return self._vertices(batch, (first <= word) & (word < first + self.budget(batch).unsqueeze(-1)))

    def _vertices(self, batch: Batch, choice: Tensor) -> Tensor:
        """The vertices that choose these words (m, n)."""
        if self.choice == "words":
            return choice.float()
        return pb.Tagging.one_hot(torch.where(batch.inside, choice.long(), -1), 2)

    # ---- what is measured

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Accuracy; the shares of words that are chosen, of these without a neighbor, and of sentences without any."""
        found: dict[str, list[Tensor]] = {"accuracy": [], "chosen": [], "alone": [], "empty": []}
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            z = model.latent(batch)
            answers, _ = model.decoder(batch, z)
            words = chosen(z) > 0.5
            near = nn.functional.pad(words, (1, 1))
            found["accuracy"].append(answers.argmax(-1) == batch.y)
            found["chosen"].append(words[batch.inside])
            found["alone"].append(~(near[:, :-2] | near[:, 2:])[words])
            found["empty"].append(~words.any(-1))
            relaxed = model.relaxed(batch)
            if relaxed is not None:
                right = model.decoder(batch, relaxed)[0].argmax(-1) == batch.y
                found.setdefault("relaxed_accuracy", []).append(right)
        parts = {name: torch.cat(values).float() for name, values in found.items()}
        return {name: float(values.mean()) if len(values) else 0.0 for name, values in parts.items()}

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """A few sentences with the chosen words highlighted."""
        batch: Batch = batch_of(split)
        z = model.latent(batch)
        answers = model.decoder(batch, z)[0].argmax(-1).tolist()
        shown = []
        for i in some_short(batch, longest=25, count=8):
            words = self.reviews.words(batch, i)
            drawing = pb.draw(pb.Binary(), chosen(z)[i, : len(words)], words)
            shown.append(Picture(judged(int(batch.y[i]), answers[i]), drawing.svg))
        return shown

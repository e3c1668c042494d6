"""Sentences of film reviews, for or against the film, as words with vectors.

The data are those of Pang and Lee (2005).  Folds 0 to 7 are for training, 8 is for validation and 9 for testing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor, nn

from pullback.experiments.batches import Listed, Vocabulary, padded
from pullback.experiments.files import lines_of
from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import Split, Task
from pullback.experiments.words import GLOVE_SIZE, has_glove, read_glove

FILE = "sentence_polarity/sentence_polarity.tsv"
LINE = re.compile(r"([01])\t([0-9])\t(.*\S.*)")
SIZE = GLOVE_SIZE  # of word vectors
FEWEST = 2  # how often training has to have a word that gets a vector of its own


@dataclass(frozen=True)
class Sentence:
    """Words, and whether they are for the film (1) or against it (0)."""

    words: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class Batch:
    """Words as numbers (m, n), 0 beyond the end; lengths and labels (m,)."""

    tokens: Tensor
    lengths: Tensor
    y: Tensor

    @property
    def inside(self) -> Tensor:
        """True for words, false beyond the end (m, n)."""
        return self.tokens > 0

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.lengths.to(device), self.y.to(device))


@dataclass(frozen=True)
class Reviews:
    """The sentences of each split, and what is known about their words.

    vocabulary: all words, so that pictures can show every one.
    glove: (words, SIZE) GloVe's vectors, 0 for words it does not have.
    rows: (words,) which trained vector is added to it: none (0), that of all rare words (1), or the word's own.
    """

    splits: dict[str, tuple[Sentence, ...]]
    vocabulary: Vocabulary
    glove: Tensor
    rows: Tensor

    def split(self, name: str) -> Listed:
        """A split, in batches when they are asked for."""
        return Listed(self.splits[name], self.collate)

    def collate(self, sentences: Sequence[Sentence]) -> Batch:
        """Sentences side by side."""
        return Batch(
            padded([self.vocabulary.numbers(one.words) for one in sentences]),
            torch.tensor([len(one.words) for one in sentences]),
            torch.tensor([one.label for one in sentences]),
        )

    def words(self, batch: Batch, index: int) -> list[str]:
        """The words of one example."""
        return [self.vocabulary.words[number] for number in batch.tokens[index, : batch.lengths[index]].tolist()]


class GloveOrTrained(nn.Module):
    """Vectors of words (m, n, SIZE): GloVe's, which stay as they are, or trained ones for words it does not have."""

    glove: Tensor
    rows: Tensor

    def __init__(self, reviews: Reviews) -> None:
        super().__init__()
        self.register_buffer("glove", reviews.glove, persistent=False)
        self.register_buffer("rows", reviews.rows, persistent=False)
        self.trained = nn.Embedding(1 + int(reviews.rows.max()), SIZE, padding_idx=0)
        with torch.no_grad():
            self.trained.weight.mul_(0.4)  # the scale of GloVe's numbers

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.glove[tokens] + self.trained(self.rows[tokens])
        return vectors


def judged(label: int, answer: int) -> str:
    """What is said about the picture of a sentence."""
    sides = ("against", "for")
    return f"{sides[label]} the film; the model says {sides[answer]}"


class ReviewTask(Task):
    """A task about these sentences: the settings say where they are and after how many words they are cut."""

    longest: int
    data_folder: str

    @property
    def reviews(self) -> Reviews:
        return read_reviews(self.data_folder, self.longest)

    def data(self) -> dict[str, Split]:
        return {name: self.reviews.split(name) for name in ("train", "validation", "test")}


def some_short(batch: Batch, longest: int, count: int) -> list[int]:
    """Examples with 5 to `longest` words, from all over a batch: files have the sentences against films first."""
    short = ((batch.lengths >= 5) & (batch.lengths <= longest)).nonzero().flatten()
    return short[torch.linspace(0, max(len(short) - 1, 0), min(count, len(short))).long()].tolist()


# ---- files


@lru_cache(maxsize=4)
def read_reviews(folder: str, longest: int) -> Reviews:
    """The reviews of a data folder, each cut after its first `longest` words; with GloVe's vectors if it has them.

    folder: the data folder; "" for the sample that is built in.
    """
    splits = _read_sentences(lines_of(folder, FILE), longest)
    training = [one.words for one in splits["train"]]
    vocabulary = Vocabulary(one.words for sentences in splits.values() for one in sentences)
    glove = torch.zeros(len(vocabulary), SIZE)
    if folder and has_glove(folder):
        _read_glove(folder, vocabulary, glove)
    return Reviews(splits, vocabulary, glove, _rows(vocabulary, training, glove))


def _read_sentences(lines: Iterable[str], longest: int) -> dict[str, tuple[Sentence, ...]]:
    """Sentences by split.  A line is a label, a fold and words between spaces, with tabs between the three."""
    found: dict[str, list[Sentence]] = {"train": [], "validation": [], "test": []}
    for number, line in enumerate(lines, 1):
        parts = LINE.fullmatch(line)
        if parts is None:
            raise Mistake(f"{FILE}, line {number}: not a label 0 or 1, a fold 0 to 9 and words, with tabs between.")
        label, fold, text = parts.groups()
        split = {"8": "validation", "9": "test"}.get(fold, "train")
        found[split].append(Sentence(tuple(text.split()[:longest]), int(label)))
    for split, sentences in found.items():
        if not sentences:
            raise Mistake(f"{FILE}: no sentence for {split}; folds 0 to 7 are train, 8 is validation, 9 is test.")
    return {split: tuple(sentences) for split, sentences in found.items()}


def _read_glove(folder: str, vocabulary: Vocabulary, vectors: Tensor) -> None:
    """Writes GloVe's vectors of the words that it has into `vectors`."""
    rows, table = read_glove(folder)
    numbers = [number for number, word in enumerate(vocabulary.words) if word in rows]
    vectors[numbers] = table[[rows[vocabulary.words[number]] for number in numbers]]


def _rows(vocabulary: Vocabulary, training: Iterable[Sequence[str]], glove: Tensor) -> Tensor:
    """Which trained vector each word has."""
    counts = Counter(word for words in training for word in words)
    has_vector = glove.any(-1).tolist()
    rows, own = [], Vocabulary.UNKNOWN
    for number, word in enumerate(vocabulary.words):
        if number == Vocabulary.PADDING or has_vector[number]:
            rows.append(0)
        elif counts[word] < FEWEST:
            rows.append(Vocabulary.UNKNOWN)
        else:
            own += 1
            rows.append(own)
    return torch.tensor(rows)

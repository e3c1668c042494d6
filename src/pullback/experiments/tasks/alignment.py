"""Letters to sounds: how a word is pronounced, learned through a latent alignment of its letters with its phones.

Letters may be silent, or stand for more than one phone, and nobody says which letter makes which phone.  Every letter
has two slots, and each slot makes one phone or nothing.  In training an encoder, which sees the word and its phones,
aligns slots with phones; the decoder, which sees the word alone, learns to make at each slot what the alignment says.
Every phone has one slot, phones stay in order, and a slot without a phone is silent: a global alignment in which a slot
goes on to the next phone (match) or stays silent (down), and no phone comes without a slot (right).

To pronounce a word nobody needs its alignment: the decoder makes the likeliest phone, or nothing, at each slot.  So the
encoder is there for training alone, and is judged by what the decoder learned from it.  Given the letters, slots are
independent of each other, as in CTC (Graves et al., 2006), whose loss sums over all alignments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.batches import Listed, Vocabulary, padded
from pullback.experiments.files import DataFolder, lines_of
from pullback.experiments.mistakes import Mistake
from pullback.experiments.modules import BiLSTM
from pullback.experiments.task import Model, Picture, Split, Task, batch_of

SLOTS = 2  # of a letter
SILENT = Vocabulary.PADDING  # the number of no phone
MATCH, DOWN = 0, 1  # moves of an alignment: a slot makes the next phone, or nothing
BUILT_IN = "ita"


# ---- the data


@dataclass(frozen=True)
class Words:
    """Letters (m, longest), phones (m, longest) and how many of each there are (m,), (m,)."""

    letters: Tensor
    y: Tensor
    letter_count: Tensor
    phone_count: Tensor

    def to(self, device: torch.device) -> "Words":
        return Words(*(one.to(device) for one in vars(self).values()))


@dataclass(frozen=True)
class Pronounced:
    """A word and its phones."""

    word: str
    phones: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether there are slots enough for all phones."""
        return len(self.phones) <= SLOTS * len(self.word)


def read(folder: str, language: str, part: str) -> list[Pronounced]:
    """The words of a file: one in each line, a tab, and phones between spaces."""
    name = f"g2p/{language}_{part}.tsv"
    found = []
    for number, line in enumerate(lines_of(folder, name), 1):
        word, _, phones = line.partition("\t")
        if not word or not phones.split():
            raise Mistake(f"{name}, line {number}: not a word, a tab and its phones: {line!r}")
        found.append(Pronounced(word, tuple(phones.split())))
    if not found:
        raise Mistake(f"{name} has no words.")
    return found


@lru_cache(maxsize=4)
def dictionary(folder: str, language: str) -> "Dictionary":
    return Dictionary(folder, language)


class Dictionary:
    """Words to train, validate and test on; the letters and phones of training, as numbers.

    A word with more phones than slots is left out of training; elsewhere it stays, and is never right.
    """

    def __init__(self, folder: str, language: str) -> None:
        train, validation, test = (read(folder, language, part) for part in ("train", "dev", "test"))
        train = [one for one in train if one.fits]
        self.letters = Vocabulary([one.word for one in train])
        self.phones = Vocabulary([one.phones for one in train])
        every = {"train": train, "validation": validation, "test": test}
        self.splits = {part: Listed(words, self.collate) for part, words in every.items()}

    def collate(self, words: Sequence[Pronounced]) -> Words:
        return Words(
            padded([self.letters.numbers(one.word) for one in words]),
            padded([self.phones.numbers(one.phones) for one in words]),
            torch.tensor([len(one.word) for one in words]),
            torch.tensor([len(one.phones) for one in words]),
        )


# ---- the model


class Slots(nn.Module):
    """States (m, 2n, 2 · hidden) of the slots of a word: a BiLSTM over letters, and which slot of its letter it is."""

    def __init__(self, letters: int, embedding: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(letters, embedding)
        self.lstm = BiLSTM(embedding, hidden)
        self.which = nn.Parameter(torch.randn(SLOTS, 2 * hidden) / hidden**0.5)

    def forward(self, words: Words) -> Tensor:
        states = self.lstm(self.embedding(words.letters), words.letter_count)
        both: Tensor = (states.unsqueeze(2) + self.which).flatten(1, 2)
        return both


class Encoder(nn.Module):
    """Scores (m, 1 + slots, 1 + phones, 3) of moves: of a slot with a phone, and of a silent slot; 0 the start."""

    def __init__(self, letters: int, phones: int, embedding: int = 32, hidden: int = 32) -> None:
        super().__init__()
        self.slots = Slots(letters, embedding, hidden)
        self.phones = nn.Embedding(phones, 2 * hidden)
        self.silent = nn.Linear(2 * hidden, 1)

    def forward(self, words: Words) -> Tensor:
        states = self.slots(words)
        match = states @ self.phones(words.y).mT / states.shape[-1] ** 0.5  # (m, slots, phones)
        match = nn.functional.pad(match, (1, 0, 1, 0))
        down = nn.functional.pad(self.silent(states), (0, 0, 1, 0)).expand_as(match)
        return torch.stack([match, down, torch.zeros_like(match)], -1)


class Decoder(nn.Module):
    """What each slot makes, from the letters alone; an alignment says which phone is to be looked up where."""

    def __init__(self, letters: int, phones: int, embedding: int = 48, hidden: int = 96) -> None:
        super().__init__()
        self.slots = Slots(letters, embedding, hidden)
        self.phone = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, phones))

    def log_probabilities(self, words: Words) -> Tensor:
        """Of each phone, or of silence, at each slot: (m, slots, phones)."""
        log_p: Tensor = self.phone(self.slots(words)).log_softmax(-1)
        return log_p

    def forward(self, words: Words, z: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities (m, phones, phones) of what is made where phone j is, and (m,) of silence elsewhere."""
        log_p = self.log_probabilities(words)
        moves = z[:, 1:]  # without the start
        made = moves[:, :, 1:, MATCH].mT @ log_p
        silence = (moves[..., DOWN].sum(-1) * log_p[..., SILENT]).sum(-1)
        return made, silence

    def pronounce(self, words: Words) -> list[list[int]]:
        """The phones of each word: the likeliest at every slot, without the silent ones."""
        best = self.log_probabilities(words).argmax(-1)
        counts = (SLOTS * words.letter_count).tolist()
        return [[phone for phone in row[:count] if phone != SILENT] for row, count in zip(best.tolist(), counts)]


def surprise(found: tuple[Tensor, Tensor], phones: Tensor) -> Tensor:
    """−log p of the phones and of the silence between them: of a mixture of alignments, the mean over them."""
    made, silence = found
    return -made.gather(-1, phones.unsqueeze(-1)).sum((1, 2)) - silence


# ---- the task


@dataclass(frozen=True)
class Pronunciation(Task):
    """How words are pronounced, through a latent alignment of their letters with their phones.

    Attributes:
        language: dut, eng_us, fre, gre, hun, ice or ita; that which is built in is ita.
        data_folder: a folder with a folder g2p, to read from it instead of the small sample that is built in.
    """

    language: str = BUILT_IN
    data_folder: DataFolder = ""

    name: ClassVar[str] = "alignment"
    measure: ClassVar[str] = "exact"
    percent: ClassVar[tuple[str, ...]] = ("exact", "phone_errors")
    lower_is_better: ClassVar[tuple[str, ...]] = ("phone_errors",)
    without_gold: ClassVar[str] = "nobody knows which letter makes which phone"

    def __post_init__(self) -> None:
        if not self.data_folder and self.language != BUILT_IN:
            raise Mistake(f"language is {self.language!r}, and --data is not given; {BUILT_IN} alone is built in.")

    @property
    def dictionary(self) -> Dictionary:
        return dictionary(self.data_folder, self.language)

    def data(self) -> dict[str, Listed]:
        return self.dictionary.splits

    @property
    def structure(self) -> pb.Structure:
        return pb.Alignment()

    def alignments(self, words: Words) -> pb.Alignment:
        """The alignments of a batch: slots as rows, phones as columns, a start before both; no phone without a slot."""
        m, n, k = len(words.y), SLOTS * words.letters.shape[1], words.y.shape[1]
        allowed = torch.tensor([True, True, False], device=words.y.device).expand(m, n + 1, k + 1, 3)
        lengths = torch.stack([SLOTS * words.letter_count + 1, words.phone_count + 1], -1)
        return pb.Alignment(lengths, allowed)

    def model(self, estimator: pb.Estimator) -> Model:
        sizes = len(self.dictionary.letters), len(self.dictionary.phones)
        return Model(Encoder(*sizes), Decoder(*sizes), estimator, self.alignments, surprise)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """Phones spread evenly over the slots; and a random alignment.  Nobody knows the true one."""
        return {"diagonal": self._diagonal, "random": lambda words: self.alignments(words).sample(_nothing(words))}

    def _diagonal(self, words: Words) -> Tensor:
        scores = _nothing(words)
        slots, phones = (torch.arange(1, size, device=words.y.device) - 0.5 for size in scores.shape[1:3])
        slots = slots / (SLOTS * words.letter_count.unsqueeze(-1))
        phones = phones / words.phone_count.unsqueeze(-1)
        scores[:, 1:, 1:, MATCH] = -(slots.unsqueeze(-1) - phones.unsqueeze(1)).square()
        return self.alignments(words).argmax(scores)

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Words whose phones are all right, and errors in phones for each true phone; no alignment is used."""
        words: Words = batch_of(split)
        right, errors, total = 0, 0, int(words.phone_count.sum())
        decoder: Any = model.decoder
        for found, true, count in zip(decoder.pronounce(words), words.y.tolist(), words.phone_count.tolist()):
            distance = edit_distance(found, true[:count])
            right, errors = right + (distance == 0), errors + distance
        return {"exact": right / len(split), "phone_errors": errors / total}

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """The alignments of a few words."""
        examples: Sequence[Pronounced] = split.examples  # type: ignore[attr-defined]
        chosen = [i for i, one in enumerate(examples) if one.fits and 4 <= len(one.word) <= 8][:3]
        if not chosen:
            return []
        words = split[torch.tensor(chosen)]
        z, shown = model.latent(words), []
        for i, number in enumerate(chosen):
            one = examples[number]
            slots = [mark for letter in one.word for mark in (letter, f"{letter}′")]
            title = f"Which slots of {one.word} make its phones"
            drawing = pb.draw(
                self.alignments(words), z, ["·", *slots], choices=["·", *one.phones], index=i, title=title
            )
            shown.append(Picture(title, drawing.svg))
        return shown


def _nothing(words: Words) -> Tensor:
    """Scores that prefer no alignment."""
    return torch.zeros(len(words.y), SLOTS * words.letters.shape[1] + 1, words.y.shape[1] + 1, 3, device=words.y.device)


def edit_distance(found: Sequence[int], true: Sequence[int]) -> int:
    """The fewest insertions, deletions and substitutions that make `true` of `found`.

    >>> edit_distance([1, 2, 3], [2, 4, 3])
    2
    """
    row = list(range(len(true) + 1))
    for i, one in enumerate(found, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(true, 1):
            before, row[j] = row[j], min(before + (one != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]

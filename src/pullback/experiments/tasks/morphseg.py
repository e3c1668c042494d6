"""Morphs: Czech words cut into morphs that nobody has marked; known is which morphs a word has, in no order.

It is what a dictionary with glosses says: the parts of a word, and not where one ends and the next begins.  The decoder
reads each segment by itself and says which morph it is.  Data: Batsuren et al. (2022).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import poisson_nll_loss

import pullback as pb
from pullback.experiments.batches import Listed, Vocabulary, padded
from pullback.experiments.files import DataFolder, lines_of
from pullback.experiments.mistakes import Mistake, check_counts
from pullback.experiments.modules import BiLSTM
from pullback.experiments.spans import share_of_found
from pullback.experiments.task import Model, Picture, Split, Task

FILES = {
    "train": "morphseg/ces.word.train.tsv",
    "validation": "morphseg/ces.word.dev.tsv",
    "test": "morphseg/ces.word.test.gold.tsv",
}
CHUNK = 512  # words that are cut at once in evaluation
SMOOTHING = 0.001  # of counts in the loss: the gradient of a morph that is missing is at most 1 / SMOOTHING

Morphs = tuple[str, ...]


# ---- data


def read(lines: Sequence[str], name: str) -> Iterator[Morphs]:
    """The morphs of each line: a word, a tab, and its morphs with " @@" between them."""
    for number, line in enumerate(lines, 1):
        word, _, rest = line.partition("\t")
        morphs = tuple(rest.partition("\t")[0].split(" @@"))
        if not word or "".join(morphs) != word or not all(morphs):
            raise Mistake(f"{name}, line {number}: {line!r} is not a word, a tab and the morphs it is made of.")
        yield morphs


@dataclass(frozen=True)
class Words:
    """Morphs of the words of each split, numbers of letters, and numbers of morphs that are frequent enough."""

    morphs: dict[str, list[Morphs]]
    letters: Vocabulary
    kinds: Vocabulary


@lru_cache(maxsize=1)
def read_all(folder: str, longest: int, widest: int, fewest: int) -> Words:
    """Words of up to `longest` letters, and `widest` in a morph; those of training are not in the other splits."""
    words = {split: list(read(lines_of(folder, file), file)) for split, file in FILES.items()}
    trained = {"".join(morphs) for morphs in words["train"]}
    for split, file in FILES.items():
        unseen = [morphs for morphs in words[split] if split == "train" or "".join(morphs) not in trained]
        words[split] = [
            morphs for morphs in unseen if len("".join(morphs)) <= longest and max(map(len, morphs)) <= widest
        ]
        if not words[split]:
            raise Mistake(f"{file}: no word is left.")
    letters = Vocabulary("".join(morphs) for morphs in words["train"])
    return Words(words, letters, Vocabulary(words["train"], fewest))


@dataclass(frozen=True)
class Batch:
    """Letters (m, n), lengths (m,), and the true cuts as segments (m, n, w, 1), which the decoder does not see.

    y: how often each kind of morph is in a word, (m, kinds).  number: of each word in its split.
    """

    letters: Tensor
    lengths: Tensor
    segments: Tensor
    y: Tensor
    number: Tensor

    def to(self, device: torch.device) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


# ---- the model


class Encoder(nn.Module):
    """A BiLSTM over letters, and a score for each segment from its first and its last letter, and its width."""

    def __init__(self, letters: int, widest: int, hidden: int) -> None:
        super().__init__()
        self.widest = widest
        self.embedding = nn.Embedding(letters, hidden, padding_idx=0)
        self.lstm = BiLSTM(hidden, hidden)
        self.first, self.last = nn.Linear(2 * hidden, hidden), nn.Linear(2 * hidden, hidden)
        self.width = nn.Parameter(torch.zeros(widest, hidden))
        self.score = nn.Linear(hidden, 1)

    def forward(self, batch: Batch) -> Tensor:
        states = self.lstm(self.embedding(batch.letters), batch.lengths)
        pairs = self.first(states).unsqueeze(2) + windows(self.last(states), self.widest) + self.width
        scores: Tensor = self.score(torch.tanh(pairs))
        return scores


class Decoder(nn.Module):
    """Says of each segment which morph it is, by its letters alone, and counts the morphs of the chosen segments."""

    def __init__(self, letters: int, kinds: int, widest: int, hidden: int) -> None:
        super().__init__()
        self.letters, self.widest = letters, widest
        self.embedding = nn.Embedding(letters * widest, hidden)  # a letter at each place of a segment
        self.width = nn.Parameter(0.1 * torch.randn(widest, hidden))
        self.kind = nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, kinds))

    def forward(self, batch: Batch, z: Tensor) -> Tensor:
        """The expected number of each kind of morph, (m, kinds)."""
        counts: Tensor = (z.squeeze(-1).flatten(1).unsqueeze(1) @ self.kinds(batch).flatten(1, 2)).squeeze(1)
        return counts

    def kinds(self, batch: Batch) -> Tensor:
        """How likely a segment is each kind of morph, (m, n, w, kinds)."""
        places = torch.arange(self.widest, device=batch.letters.device)
        letters = windows(batch.letters.unsqueeze(-1), self.widest).squeeze(-1)  # (m, n, w)
        read = self.embedding(letters + self.letters * places).cumsum(2)  # the letters of a segment, added up
        probabilities: Tensor = self.kind(read + self.width).softmax(-1)
        return probabilities


def windows(rows: Tensor, widest: int) -> Tensor:
    """(m, n, w, d) from (m, n, d): what stands 0, 1, …, w − 1 positions on, and zeros beyond the end."""
    further = torch.cat([rows, rows.new_zeros(len(rows), widest - 1, rows.shape[-1])], 1)
    return further.unfold(1, widest, 1).mT


def miscounts(counts: Tensor, y: Tensor) -> Tensor:
    """The loss of each word: that of Poisson variables with means `counts`, where y were counted."""
    return poisson_nll_loss(counts, y, log_input=False, eps=SMOOTHING, reduction="none").sum(-1)


# ---- the task


@dataclass(frozen=True)
class MorphSegmentation(Task):
    """Where Czech words are cut into morphs, learned from which morphs they have.

    Attributes:
        longest: the most letters of a word.
        widest: the most letters of a morph; words with longer ones are left out.
        fewest: how often a morph has to be seen in training to be a kind of its own; all others, most of them stems,
            are one kind.
        hidden: the size of layers.
        data_folder: a folder with the words in morphseg; a built-in sample of a few words if it is empty.
    """

    longest: int = 12
    widest: int = 8
    fewest: int = 50
    hidden: int = 64
    data_folder: DataFolder = ""

    name: ClassVar[str] = "morphseg"
    measure: ClassVar[str] = "boundary_f1"
    percent: ClassVar[tuple[str, ...]] = ("boundary_f1", "boundary_precision", "boundary_recall", "morph_f1", "words")

    def __post_init__(self) -> None:
        check_counts(self, "longest", "widest", "fewest", "hidden")

    @property
    def _words(self) -> Words:
        return read_all(self.data_folder, self.longest, self.widest, self.fewest)

    def data(self) -> dict[str, Split]:
        return {split: Listed(list(enumerate(some)), self._collate) for split, some in self._words.morphs.items()}

    def _collate(self, numbered: Sequence[tuple[int, Morphs]]) -> Batch:
        words, some = self._words, [morphs for _, morphs in numbered]
        letters = padded([words.letters.numbers("".join(morphs)) for morphs in some])
        counts = torch.zeros(len(some), len(words.kinds))
        for row, morphs in enumerate(some):
            for kind, count in Counter(words.kinds.numbers(morphs)).items():
                counts[row, kind] = count
        return Batch(
            letters=letters,
            lengths=torch.tensor([sum(map(len, morphs)) for morphs in some]),
            segments=self._parts([list(map(len, morphs)) for morphs in some], letters.shape[1]),
            y=counts,
            number=torch.tensor([number for number, _ in numbered]),
        )

    def _parts(self, widths: Sequence[Sequence[int]], n: int) -> Tensor:
        """Segmentations into segments of these widths."""
        segments = [[(sum(each[:i]), width, 0) for i, width in enumerate(each)] for each in widths]
        return pb.Segmentation.vertex(segments, n, self.widest, 1)

    @property
    def structure(self) -> pb.Structure:
        return pb.Segmentation()

    def model(self, estimator: pb.Estimator) -> Model:
        letters, kinds = len(self._words.letters), len(self._words.kinds)
        encoder = Encoder(letters, self.widest, self.hidden)
        decoder = Decoder(letters, kinds, self.widest, self.hidden)
        return Model(encoder, decoder, estimator, lambda batch: pb.Segmentation(batch.lengths), miscounts)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true cuts; as few as there can be; one after every letter; and random ones."""

        def whole(batch: Batch) -> Tensor:
            w = self.widest
            widths = [[w] * (n // w) + [n % w] * (n % w > 0) for n in batch.lengths.tolist()]
            return self._parts(widths, batch.letters.shape[1]).to(batch.letters.device)

        def letters(batch: Batch) -> Tensor:
            widths = [[1] * n for n in batch.lengths.tolist()]
            return self._parts(widths, batch.letters.shape[1]).to(batch.letters.device)

        def random(batch: Batch) -> Tensor:
            return pb.Segmentation(batch.lengths).sample(torch.zeros_like(batch.segments))

        return {"gold": lambda batch: batch.segments, "whole": whole, "letters": letters, "random": random}

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """F1 of cuts inside words; F1 of morphs, the likeliest one of each segment; and words that are cut right."""
        cuts, whole = [], 0
        right = counted = 0.0
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            z = model.latent(batch)
            pairs = list(zip(_cuts(z), _cuts(batch.segments)))
            cuts += pairs
            whole += sum(found == true for found, true in pairs)
            counts = self._counts(model, batch, z)
            right += float(torch.minimum(counts, batch.y).sum())
            counted += float(counts.sum() + batch.y.sum())
        found = {f"boundary_{name}": value for name, value in share_of_found(cuts).items()}
        return {**found, "morph_f1": 2 * right / counted, "words": whole / len(split)}

    def _counts(self, model: Model, batch: Batch, z: Tensor) -> Tensor:
        """How often each kind of morph is the likeliest one of a segment."""
        decoder = model.get_submodule("decoder")
        assert isinstance(decoder, Decoder)
        likeliest = decoder.kinds(batch).argmax(-1).flatten(1)  # (m, n · w)
        return torch.zeros_like(batch.y).scatter_add(1, likeliest, z.flatten(1))

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """How a few words are cut, beside the true cuts."""
        words = self._words.morphs["test"]
        batch: Batch = split[torch.tensor([number for number, one in enumerate(words) if len(one) > 2][:6] or [0])]
        z = model.latent(batch)
        shown = []
        for i, number in enumerate(batch.number.tolist()):
            word = "".join(words[number])
            drawing = pb.draw(pb.Segmentation(batch.lengths), z, list(word), index=i, gold=batch.segments)
            shown.append(Picture(" ".join(words[number]), drawing.svg))
        return shown


def _cuts(segments: Tensor) -> list[set[int]]:
    """Where a segment begins inside each word."""
    return [{start for start, _, _ in each if start > 0} for each in pb.Segmentation.segments(segments)]

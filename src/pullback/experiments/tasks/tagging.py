"""Names in posts: which words are names of persons, places and the like, as tags B-X, I-X and O.

A BiLSTM scores the tags of each word, and transitions say which tags follow each other.  The losses differ in what they
predict in training: the best tags, their probabilities, or the SparseMAP point.  References: Lample et al. (2016);
Derczynski et al. (2017) for the data.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import pullback as pb
from pullback.experiments.batches import Listed, padded
from pullback.experiments.files import DataFolder, lines_of
from pullback.experiments.mistakes import Mistake, check_counts, check_shares
from pullback.experiments.modules import BiLSTM
from pullback.experiments.spans import share_of_found, spans_of
from pullback.experiments.supervision import SupervisedTask, Undecoded, mistakes_in
from pullback.experiments.task import Model, Picture, Split
from pullback.experiments.words import Lexicon, WordVectors

FILES = {
    "train": "wnut17/wnut17train.conll",
    "validation": "wnut17/emerging.dev.conll",
    "test": "wnut17/emerging.test.annotated",
}
LABELS = ("corporation", "creative-work", "group", "location", "person", "product")
SCHEME = pb.Tagging.bio(LABELS)
CHUNK = 256  # posts that are tagged at once in evaluation

Transitions = Literal["learned", "fixed", "none"]


# ---- data


@dataclass(frozen=True)
class Post:
    """Words and the numbers of their tags."""

    words: tuple[str, ...]
    tags: tuple[int, ...]


def read(lines: Sequence[str], name: str) -> Iterator[Post]:
    """The posts of a file: a word, a tab and a tag in each line, and a line without a word between posts."""
    words: list[str] = []
    tags: list[int] = []
    for number, line in enumerate([*lines, ""], 1):
        word, tab, tag = line.partition("\t")
        if not word.strip() and not tag.strip():
            if words:
                yield Post(tuple(words), tuple(tags))
            words, tags = [], []
            continue
        if not tab or tag not in SCHEME.names:
            raise Mistake(f"{name}, line {number}: {line!r} is not a word, a tab and a tag such as B-person.")
        scores = SCHEME.transitions[tags[-1]] if tags else SCHEME.start
        here = SCHEME.names.index(tag)
        if scores[here] == -torch.inf:
            raise Mistake(f"{name}, line {number}: {tag} begins a name; expected B{tag[1:]} before it.")
        words.append(word)
        tags.append(here)


@dataclass(frozen=True)
class Posts:
    """Posts of each split, and the numbers of their words."""

    posts: dict[str, list[Post]]
    lexicon: Lexicon


@lru_cache(maxsize=1)
def read_all(folder: str) -> Posts:
    """The three files."""
    posts = {split: list(read(lines_of(folder, file), file)) for split, file in FILES.items()}
    for split, some in posts.items():
        if not some:
            raise Mistake(f"{FILES[split]}: there are no posts in it.")
    every = (one.words for some in posts.values() for one in some)
    return Posts(posts, Lexicon([one.words for one in posts["train"]], every, folder))


@dataclass(frozen=True)
class Batch:
    """Numbers of words (m, n, 5), lengths (m,), and true tags (m, n) with −1 in padding.

    y: the tags as vertices, (m, n, t).  number: of each post in its split.
    """

    words: Tensor
    lengths: Tensor
    tags: Tensor
    y: Tensor
    number: Tensor

    def to(self, device: torch.device) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


# ---- the model


class Encoder(nn.Module):
    """Vectors of words, a BiLSTM, and a score for every tag of a word; and transitions, the same for all posts.

    Where the transitions are learned, tags that may not follow each other still do not.
    """

    start: Tensor
    transitions: Tensor

    def __init__(self, lexicon: Lexicon, hidden: int, dropout: float, transitions: Transitions) -> None:
        super().__init__()
        tags = len(SCHEME.names)
        self.vectors = WordVectors(lexicon)
        self.lstm = BiLSTM(self.vectors.size, hidden)
        self.tags = nn.Linear(2 * hidden, tags)
        self.dropout = nn.Dropout(dropout)
        restricted = transitions != "none"
        for name, table in (("start", SCHEME.start), ("transitions", SCHEME.transitions)):
            self.register_buffer(name, table if restricted else torch.zeros_like(table))
        self.learned_start = nn.Parameter(torch.zeros(tags)) if transitions == "learned" else None
        self.learned_transitions = nn.Parameter(torch.zeros(tags, tags)) if transitions == "learned" else None

    def forward(self, batch: Batch) -> Tensor:
        states = self.lstm(self.dropout(self.vectors(batch.words)), batch.lengths)
        scores: Tensor = self.tags(self.dropout(states))
        return scores

    def sequences(self, batch: Batch) -> pb.Tagging:
        """The sequences of tags of a batch, with the present scores of transitions."""
        transitions, start = self.transitions, self.start
        if self.learned_transitions is not None and self.learned_start is not None:
            transitions, start = transitions + self.learned_transitions, start + self.learned_start
        return pb.Tagging(transitions, start=start, lengths=batch.lengths)


# ---- the task


@dataclass(frozen=True)
class NameTagging(SupervisedTask):
    """Names of persons, places and the like in posts, as tags learned from true ones with three losses.

    Attributes:
        transitions: learned, scores for each pair of tags; fixed, every name begins with a B; none, where each tag is
            predicted for itself, and the CRF is a softmax for each word.
        hidden: the size of the BiLSTM in each direction.
        dropout: the share of inputs and states of the BiLSTM that are dropped in training.
        data_folder: a folder with the posts in wnut17, and with GloVe vectors in glove100 if they are to be used; a
            built-in sample of a few posts if it is empty.
    """

    transitions: Transitions = "learned"
    hidden: int = 96
    dropout: float = 0.4
    data_folder: DataFolder = ""

    name: ClassVar[str] = "tagging"
    measure: ClassVar[str] = "f1"
    percent: ClassVar[tuple[str, ...]] = ("f1", "precision", "recall")
    row_settings: ClassVar[tuple[str, ...]] = ("transitions",)

    def __post_init__(self) -> None:
        check_counts(self, "hidden")
        check_shares(self, "dropout")

    def data(self) -> dict[str, Split]:
        posts = read_all(self.data_folder).posts
        return {split: Listed(list(enumerate(some)), self._collate) for split, some in posts.items()}

    def _collate(self, numbered: Sequence[tuple[int, Post]]) -> Batch:
        lexicon, posts = read_all(self.data_folder).lexicon, [one for _, one in numbered]
        tags = padded([one.tags for one in posts], -1)
        return Batch(
            words=pad_sequence([lexicon.numbers(one.words) for one in posts], batch_first=True),
            lengths=torch.tensor([len(one.words) for one in posts]),
            tags=tags,
            y=pb.Tagging.one_hot(tags, len(SCHEME.names)),
            number=torch.tensor([number for number, _ in numbered]),
        )

    @property
    def structure(self) -> pb.Structure:
        return pb.Tagging(SCHEME.transitions, start=SCHEME.start)

    def model(self, estimator: pb.Estimator) -> Model:
        encoder = Encoder(read_all(self.data_folder).lexicon, self.hidden, self.dropout, self.transitions)
        return Model(encoder, Undecoded(), estimator, encoder.sequences, mistakes_in)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true tags; no name at all; and random names."""

        def outside(batch: Batch) -> Tensor:
            return pb.Tagging.one_hot(batch.tags.clamp_max(0), len(SCHEME.names))

        def random(batch: Batch) -> Tensor:
            sequences = pb.Tagging(SCHEME.transitions, start=SCHEME.start, lengths=batch.lengths)
            return sequences.sample(torch.zeros(batch.y.shape, device=batch.y.device))

        return {"gold": lambda batch: batch.y, "outside": outside, "random": random}

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """F1, precision and recall of names: both ends and the kind have to be right."""
        pairs = []
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            found = pb.Tagging.tags(model.latent(batch))
            pairs += list(zip(_spans(found), _spans(batch.tags)))
        return share_of_found(pairs)

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """The tags of a few posts with names in them, beside the true ones."""
        posts = read_all(self.data_folder).posts["test"]
        chosen = [number for number, one in enumerate(posts) if any(one.tags) and len(one.words) <= 10][:4]
        if not chosen:
            return []
        batch: Batch = split[torch.tensor(chosen)]
        sequences, z = model.structure_of(batch), model.latent(batch)
        shown = []
        for i, number in enumerate(batch.number.tolist()):
            words = list(posts[number].words)
            drawing = pb.draw(sequences, z, words, choices=SCHEME.names, index=i, gold=batch.y.to(z))
            shown.append(Picture(" ".join(words), drawing.svg))
        return shown


def _spans(tags: Tensor) -> list[set[tuple[int, int, str]]]:
    return [spans_of([SCHEME.names[tag] for tag in row if tag >= 0]) for row in tags.tolist()]

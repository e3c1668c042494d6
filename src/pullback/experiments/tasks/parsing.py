"""Dependency parsing: what an encoder learns of trees if the true ones are known.

Words, a BiLSTM and a score for every arc; the losses differ in what they predict in training: the best tree, the
probabilities of arcs, or the SparseMAP point.  References: Kiperwasser and Goldberg (2016), Dozat and Manning (2017).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

import pullback as pb
from pullback.experiments.batches import Listed, padded
from pullback.experiments.files import DataFolder, lines_of
from pullback.experiments.mistakes import Mistake, check_counts, check_shares
from pullback.experiments.modules import Biaffine, BiLSTM
from pullback.experiments.supervision import SupervisedTask, Undecoded, mistakes_in
from pullback.experiments.task import LIKELY, Model, Picture, Split
from pullback.experiments.tasks.conllu import Sentence, read
from pullback.experiments.words import Lexicon, WordVectors

FILES = {
    "train": "ud_english_ewt/en_ewt-ud-train.conllu",
    "validation": "ud_english_ewt/en_ewt-ud-dev.conllu",
    "test": "ud_english_ewt/en_ewt-ud-test.conllu",
}
CHUNK = 128  # sentences that are parsed at once in evaluation


@dataclass(frozen=True)
class Batch:
    """Numbers of words (m, n, 5), lengths (m,), true heads (m, n) with −1 in padding, and which words are punctuation.

    y: the true trees, (m, 1 + n, 1 + n).  number: of each sentence in its split.
    """

    words: Tensor
    lengths: Tensor
    heads: Tensor
    is_punctuation: Tensor
    y: Tensor
    number: Tensor

    def to(self, device: torch.device) -> "Batch":
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True)
class Treebank:
    """Sentences of each split, and the numbers of their words."""

    sentences: dict[str, list[Sentence]]
    lexicon: Lexicon


@lru_cache(maxsize=1)
def treebank(folder: str, longest: int) -> Treebank:
    """The sentences with up to `longest` words."""
    sentences = {split: list(read(lines_of(folder, file), file)) for split, file in FILES.items()}
    short = {split: [one for one in some if len(one) <= longest] for split, some in sentences.items()}
    for split, some in short.items():
        if not some:
            raise Mistake(f"{FILES[split]}: no sentence has up to {longest} words.")
    every = (one.words for some in short.values() for one in some)
    return Treebank(short, Lexicon([one.words for one in short["train"]], every, folder))


class Encoder(nn.Module):
    """Vectors of words, a BiLSTM over them, and a score for every arc."""

    def __init__(self, lexicon: Lexicon, hidden: int, dropout: float) -> None:
        super().__init__()
        self.vectors = WordVectors(lexicon)
        self.lstm = BiLSTM(self.vectors.size, hidden)
        self.arcs = Biaffine(2 * hidden, hidden, bound=16.0, slope=0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch) -> Tensor:
        states = self.lstm(self.dropout(self.vectors(batch.words)), batch.lengths)
        scores: Tensor = self.arcs(self.dropout(states))
        return scores


@dataclass(frozen=True)
class Parsing(SupervisedTask):
    """Dependency trees of English sentences, learned from true ones with three losses.

    Attributes:
        projective: trees in which no two arcs cross; sentences whose true tree has such arcs are not trained on then.
        longest: the most words of a sentence, in training and at test time.
        hidden: the size of the BiLSTM in each direction, and of the layers that score arcs.
        dropout: the share of inputs and states of the BiLSTM that are dropped in training.
        data_folder: a folder with the treebank in ud_english_ewt, and with GloVe vectors in glove100 if they are to be
            used; a built-in sample of a few short sentences if it is empty.
    """

    projective: bool = False
    longest: int = 30
    hidden: int = 128
    dropout: float = 0.3
    data_folder: DataFolder = ""

    name: ClassVar[str] = "parsing"
    measure: ClassVar[str] = "uas"
    percent: ClassVar[tuple[str, ...]] = ("uas", "uas_without_punctuation", "whole_trees")
    row_settings: ClassVar[tuple[str, ...]] = ("projective",)

    def __post_init__(self) -> None:
        check_counts(self, "longest", "hidden")
        check_shares(self, "dropout")

    def data(self) -> dict[str, Split]:
        sentences = self._treebank.sentences
        trained = [one for one in sentences["train"] if not self.projective or one.is_projective]
        splits = {**sentences, "train": trained}
        return {split: Listed(list(enumerate(some)), self._collate) for split, some in splits.items()}

    @property
    def _treebank(self) -> Treebank:
        return treebank(self.data_folder, self.longest)

    def _collate(self, numbered: Sequence[tuple[int, Sentence]]) -> Batch:
        lexicon, sentences = self._treebank.lexicon, [one for _, one in numbered]
        heads = padded([one.heads for one in sentences], -1)
        return Batch(
            words=pad_sequence([lexicon.numbers(one.words) for one in sentences], batch_first=True),
            lengths=torch.tensor([len(one) for one in sentences]),
            heads=heads,
            is_punctuation=padded([[tag == "PUNCT" for tag in one.tags] for one in sentences]).bool(),
            y=pb.DependencyTree.arcs(heads),
            number=torch.tensor([number for number, _ in numbered]),
        )

    @property
    def structure(self) -> pb.Structure:
        return pb.DependencyTree(projective=self.projective, single_root=True)

    def trees(self, batch: Batch) -> pb.DependencyTree:
        """The trees of a batch."""
        return pb.DependencyTree(batch.lengths, projective=self.projective, single_root=True)

    def model(self, estimator: pb.Estimator) -> Model:
        encoder = Encoder(self._treebank.lexicon, self.hidden, self.dropout)
        return Model(encoder, Undecoded(), estimator, self.trees, mistakes_in)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true tree; all words below the first; each below the word before or after it; and a random tree."""

        def flat(batch: Batch) -> Tensor:
            first = torch.arange(batch.heads.shape[1], device=batch.heads.device) == 0
            return pb.DependencyTree.arcs(torch.where(batch.heads < 0, -1, torch.where(first, 0, 1)))

        def chain(batch: Batch) -> Tensor:
            before = torch.arange(batch.heads.shape[1], device=batch.heads.device)
            return pb.DependencyTree.arcs(torch.where(batch.heads < 0, -1, before))

        def reversed_chain(batch: Batch) -> Tensor:
            after = torch.arange(2, batch.heads.shape[1] + 2, device=batch.heads.device)
            after = torch.where(after > batch.lengths.unsqueeze(-1), 0, after)
            return pb.DependencyTree.arcs(torch.where(batch.heads < 0, -1, after))

        def random(batch: Batch) -> Tensor:
            return self.trees(batch).sample(torch.zeros_like(batch.y, dtype=torch.get_default_dtype()))

        chains = {"chain": chain, "reversed_chain": reversed_chain}
        return {"gold": lambda batch: batch.y, "flat": flat, **chains, "random": random}

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """The share of words with the right head (UAS), with and without punctuation, and of trees that are all right.

        The first counts every word, as the shared task of 2018 did; the second leaves out words tagged PUNCT.
        """
        right, punctuation, whole = [], [], []
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            inside = batch.heads >= 0
            agree = pb.DependencyTree.heads(model.latent(batch)) == batch.heads
            right.append(agree[inside])
            punctuation.append(batch.is_punctuation[inside])
            whole.append((agree | ~inside).all(-1))
        every, is_punctuation = torch.cat(right).float(), torch.cat(punctuation)
        return {
            "uas": float(every.mean()),
            "uas_without_punctuation": float(every[~is_punctuation].mean()),
            "whole_trees": float(torch.cat(whole).float().mean()),
        }

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """How likely the arcs of a few sentences are, beside the true ones."""
        sentences = self._treebank.sentences["test"]
        chosen = [number for number, one in enumerate(sentences) if 7 <= len(one) <= 14][:4]
        if not chosen:
            return []
        batch: Batch = split[torch.tensor(chosen)]
        trees, arcs = self.trees(batch), model.probabilities(batch)
        shown = []
        for i, number in enumerate(batch.number.tolist()):
            words = list(sentences[number].words)
            drawing = pb.draw(trees, arcs, words, index=i, gold=batch.y.to(arcs), threshold=LIKELY)
            shown.append(Picture(" ".join(words), drawing.svg))
        return shown

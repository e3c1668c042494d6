"""Words as vectors: what is learned of a word, its ending and its shape, and GloVe where there is a file of it."""

import io
import itertools
import lzma
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from pullback.experiments.batches import Vocabulary
from pullback.experiments.files import lines_of, path_of
from pullback.experiments.mistakes import Mistake

GLOVE, GLOVE_SIZE = "glove100", 100


def shape_of(word: str) -> str:
    """The kinds of letters in a word, in order: Xx for Prague, X for UN, d for 1968, x-x for ice-cold.

    >>> shape_of("iPhone6")
    'xXxd'
    """
    kinds = ("X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in word)
    return "".join(kind for kind, _ in itertools.groupby(kinds))[:8]


def read_glove(folder: str) -> tuple[dict[str, int], Tensor]:
    """Words with their rows, and vectors (words, 100), from glove100/words.txt and glove100/vectors.f16.npy."""
    rows = {word: row for row, word in enumerate(lines_of(folder, f"{GLOVE}/words.txt"))}
    path = path_of(folder, f"{GLOVE}/vectors.f16.npy")
    try:
        content = path.read_bytes()
        vectors = np.load(io.BytesIO(lzma.decompress(content) if path.suffix == ".xz" else content))
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise Mistake(f"{path} cannot be read: {error}") from error
    if vectors.shape != (len(rows), GLOVE_SIZE):
        raise Mistake(
            f"{path} has shape {vectors.shape}; expected a row of {GLOVE_SIZE} for each of {len(rows)} words."
        )
    return rows, torch.from_numpy(vectors).float()


class Lexicon:
    """The numbers of words: of the word itself, of its beginning, ending and shape, and of its row in GloVe.

    training: sentences whose words get vectors of their own; a word has to be seen twice for that.
    every: all sentences, whose words keep their GloVe vectors.
    folder: the data folder.  GloVe is used where it has a folder glove100; row 0 is that of words without a vector.
    """

    def __init__(self, training: Sequence[Sequence[str]], every: Iterable[Sequence[str]], folder: str) -> None:
        columns = zip(*(parts for sentence in training for parts in map(_parts, sentence)))
        self.vocabularies = [Vocabulary([column], fewest=2) for column in columns]
        self._numbers: dict[str, list[int]] = {}
        self._rows: dict[str, int] = {}
        self.vectors = torch.zeros(1, 0)
        if folder and has_glove(folder):
            rows, vectors = read_glove(folder)
            known = sorted({word.lower() for sentence in every for word in sentence} & rows.keys())
            self._rows = {word: number for number, word in enumerate(known, 1)}
            chosen = vectors[[rows[word] for word in known]]
            self.vectors = torch.cat([torch.zeros(1, vectors.shape[1]), chosen / chosen.std()])

    def numbers(self, words: Sequence[str]) -> Tensor:
        """The numbers of a sentence, (n, 5)."""
        return torch.tensor([self._of_word(word) for word in words])

    def _of_word(self, word: str) -> list[int]:
        if word not in self._numbers:
            trained = [found.numbers([part])[0] for found, part in zip(self.vocabularies, _parts(word))]
            self._numbers[word] = [*trained, self._rows.get(word.lower(), 0)]
        return self._numbers[word]


def _parts(word: str) -> tuple[str, str, str, str]:
    return word.lower(), word[:3].lower(), word[-3:].lower(), shape_of(word)


def has_glove(folder: str) -> bool:
    """Whether there are GloVe vectors in a data folder."""
    return (Path(folder) / GLOVE).is_dir()


class WordVectors(nn.Module):
    """Vectors (m, n, size) of words given as numbers (m, n, 5); those of GloVe are not trained."""

    glove: Tensor

    def __init__(self, lexicon: Lexicon, sizes: Sequence[int] = (64, 24, 24, 16)) -> None:
        super().__init__()
        self.trained = nn.ModuleList(
            nn.Embedding(len(vocabulary), size, padding_idx=0) for vocabulary, size in zip(lexicon.vocabularies, sizes)
        )
        self.register_buffer("glove", lexicon.vectors, persistent=False)  # the lexicon has it whenever it is needed
        self.size = sum(sizes) + self.glove.shape[1]

    def forward(self, numbers: Tensor) -> Tensor:
        trained = [embedding(numbers[..., column]) for column, embedding in enumerate(self.trained)]
        return torch.cat([*trained, self.glove[numbers[..., -1]]], -1)

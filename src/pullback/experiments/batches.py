"""Examples that are there already and the order in which they come, words as numbers, and rows side by side."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Listed:
    """A split of examples in a list, put together by `collate` when they are asked for."""

    def __init__(self, examples: Sequence[Any], collate: Callable[[Sequence[Any]], Any]) -> None:
        self.examples, self.collate = examples, collate

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, indices: Tensor) -> Any:
        return self.collate([self.examples[number] for number in indices.tolist()])


class Order:
    """In which order the examples come: a new permutation in every pass, known from the seed and the step alone.

    Several processes share each batch.
    """

    def __init__(self, size: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        self.size, self.batch = size, min(batch_size or size, size)
        self.seed, self.rank, self.processes = seed, rank, processes
        self._pass, self._permutation = -1, torch.empty(0)

    def indices(self, step: int) -> Tensor:
        """The examples of the step after `step` steps; all of them in their own order if the batch is everything."""
        if self.batch == self.size:
            return torch.arange(self.size)[self.rank :: self.processes]
        number, position = divmod(step, self.size // self.batch)
        if number != self._pass:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + number)
            self._pass, self._permutation = number, torch.randperm(self.size, generator=generator)
        return self._permutation[position * self.batch :][: self.batch][self.rank :: self.processes]


class Vocabulary:
    """Words as numbers: 0 is padding, 1 every word that is seldom or never seen in training."""

    PADDING, UNKNOWN = 0, 1

    def __init__(self, sentences: Iterable[Sequence[str]], fewest: int = 1) -> None:
        """`fewest`: how often a word has to be seen to have a number of its own."""
        counts = Counter(word for sentence in sentences for word in sentence)
        kept = sorted(word for word, count in counts.items() if count >= fewest)
        self.words = ("<pad>", "<unknown>", *kept)
        self._numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def numbers(self, words: Sequence[str]) -> list[int]:
        """The number of each word."""
        return [self._numbers.get(word, self.UNKNOWN) for word in words]


def padded(rows: Sequence[Sequence[int]], value: int = 0) -> Tensor:
    """Rows of integers side by side, (rows, longest), with `value` beyond the end of each."""
    longest = max(map(len, rows), default=0)
    return torch.from_numpy(np.array([[*row, *[value] * (longest - len(row))] for row in rows], dtype=np.int64))

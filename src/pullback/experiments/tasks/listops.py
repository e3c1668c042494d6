"""ListOps: the value of an expression such as [MAX 2 [MIN 8 3 ] 5 ], through a latent tree over its tokens.

The decoder passes messages from tokens to their heads and reads the answer at the first token: it can know the value
only if the tree brings arguments to their operators.  Simplified as by Paulus et al. (2020): MIN, MAX and MED alone.
Reference: Nangia and Bowman (2018).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from zlib import crc32

import torch
from torch import Tensor, nn

import pullback as pb
from pullback.experiments.batches import Listed, padded
from pullback.experiments.files import DataFolder, lines_of
from pullback.experiments.mistakes import Mistake
from pullback.experiments.modules import Biaffine, BiLSTM
from pullback.experiments.task import LIKELY, Model, Picture, Split, Task
from pullback.experiments.tasks.expressions import (
    CLOSE,
    NUMBERS,
    OPERATORS,
    WORDS,
    Expression,
    draw_tokens,
    parse,
    read,
)

FIRST_OPERATOR, CLOSING = NUMBERS[OPERATORS[0]], NUMBERS[CLOSE]
CHUNK = 250  # examples that are evaluated at a time


# ---- batches


@dataclass(frozen=True)
class Batch:
    """Tokens (m, n), 0 beyond the end; their heads (m, n), −1 beyond the end; lengths, values and depths (m,)."""

    tokens: Tensor
    heads: Tensor
    lengths: Tensor
    y: Tensor
    depth: Tensor

    @property
    def arcs(self) -> Tensor:
        return pb.DependencyTree.arcs(self.heads)

    def to(self, device: torch.device) -> "Batch":
        moved = (part.to(device) for part in (self.tokens, self.heads, self.lengths, self.y, self.depth))
        return Batch(*moved)


def collate(expressions: Sequence[Expression]) -> Batch:
    """Expressions side by side."""
    return Batch(
        padded([[NUMBERS[token] for token in one.tokens] for one in expressions]),
        padded([one.heads for one in expressions], -1),
        torch.tensor([len(one.tokens) for one in expressions]),
        torch.tensor([one.value for one in expressions]),
        torch.tensor([one.depth for one in expressions]),
    )


class Drawn:
    """So many expressions of a split, each drawn when it is asked for, by a seed of its own.

    Of ten expressions eight are for training, one is for validation and one for testing, whatever the seed: no
    expression is in two of them.
    """

    def __init__(self, task: "ListOps", split: str, count: int) -> None:
        self.task, self.count, self.split = task, count, split
        self.one = lru_cache(maxsize=None)(self._one)

    def _one(self, number: int) -> Expression:
        generator = random.Random(f"{self.task.data_seed} {self.split} {number}")
        depth = 1 + number % self.task.depth  # equal shares
        while True:
            tokens = draw_tokens(generator, depth, self.task.arguments)
            if self.task.shortest <= len(tokens) <= self.task.longest and split_of(tokens) == self.split:
                return parse(tokens)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, indices: Tensor) -> Batch:
        return collate([self.one(number) for number in indices.tolist()])


@lru_cache(maxsize=3)
def drawn(task: "ListOps", split: str, count: int) -> Drawn:
    """A split that is drawn once for all runs of a process."""
    return Drawn(task, split, count)


def split_of(tokens: Sequence[str]) -> str:
    """The split that an expression belongs to."""
    return {8: "validation", 9: "test"}.get(crc32(" ".join(tokens).encode()) % 10, "train")


# ---- the model


class Encoder(nn.Module):
    """A BiLSTM over tokens, and a score for every arc."""

    def __init__(self, embedding: int = 48, hidden: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), embedding)
        self.lstm = BiLSTM(embedding, hidden)
        self.arcs = Biaffine(2 * hidden)

    def forward(self, batch: Batch) -> Tensor:
        scores: Tensor = self.arcs(self.lstm(self.embedding(batch.tokens), batch.lengths))
        return scores


class Decoder(nn.Module):
    """Token embeddings of its own, and rounds of messages from modifiers to heads; the answer is read at token 1.

    Layers see tokens one after the other, without the padding, which is half of a batch.
    """

    def __init__(self, rounds: int, size: int = 64, hidden: int = 96) -> None:
        super().__init__()
        self.rounds = rounds
        self.embedding = nn.Embedding(len(WORDS), size)
        self.message = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.update = nn.Sequential(nn.Linear(2 * size, hidden), nn.ReLU(), nn.Linear(hidden, size))
        self.norm = nn.LayerNorm(size)
        self.answer = nn.Sequential(nn.Linear(size, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, batch: Batch, z: Tensor) -> Tensor:
        arcs = z[:, 1:, 1:]  # the root sends nothing
        inside = (batch.tokens > 0).flatten().nonzero().squeeze(-1)
        first = batch.lengths.cumsum(0) - batch.lengths  # where each expression begins
        tokens = state = self.embedding(batch.tokens.flatten()[inside])
        for remaining in reversed(range(self.rounds)):
            sent = tokens.new_zeros(batch.tokens.numel(), tokens.shape[-1]).index_copy(0, inside, self.message(state))
            received = arcs @ sent.view(*batch.tokens.shape, -1)  # summed over modifiers
            if remaining:
                state = self._updated(tokens, received.flatten(0, 1)[inside])
            else:  # nobody listens to the others any more
                state = self._updated(tokens[first], received[:, 0])
        logits: Tensor = self.answer(state)
        return logits

    def _updated(self, tokens: Tensor, received: Tensor) -> Tensor:
        updated: Tensor = self.norm(tokens + self.update(torch.cat([tokens, received], -1)))
        return updated


# ---- the task


@dataclass(frozen=True)
class ListOps(Task):
    """The value of a nested expression through a latent dependency tree over its tokens.

    Attributes:
        depth: that of the deepest expressions; all depths are equally frequent.
        shortest: the fewest tokens.
        longest: the most tokens.
        arguments: the most arguments of an operator.
        typed: only operators may be heads; without it a digit can head a group as well for this decoder.
        train: how many expressions to train on.
        test: how many to validate on, and to test on.
        data_seed: the seed of the expressions.
        data_folder: a folder with published files, to test on one of them instead of on expressions of our own.
        published: the file to test on; expressions with other operators than ours are left out.
    """

    depth: int = 3
    shortest: int = 4
    longest: int = 20
    arguments: int = 4
    typed: bool = True
    train: int = 100_000
    test: int = 1000
    data_seed: int = 7
    data_folder: DataFolder = ""
    published: str = "test_d20a.tsv"

    name: ClassVar[str] = "listops"
    measure: ClassVar[str] = "accuracy"
    descriptive: ClassVar[tuple[str, ...]] = ("flat_uas",)

    @property
    def percent(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("accuracy", "edges", "uas", "flat_uas", *(f"accuracy_{d + 1}" for d in range(self.depth)))

    def __post_init__(self) -> None:
        for name, least in (("depth", 1), ("train", 1), ("test", 1), ("arguments", 2)):
            if getattr(self, name) < least:
                raise Mistake(f"{name} is {getattr(self, name)}; expected an integer ≥ {least}.")
        if self.shortest > self.longest or self.longest < 3 * self.depth + 1:
            raise Mistake(f"no expression is {self.depth} deep and {self.shortest} to {self.longest} tokens long.")
        if self.shortest > 2 + self.arguments:
            raise Mistake(f"an expression of depth 1 has at most {2 + self.arguments} tokens, not {self.shortest}.")

    def data(self) -> dict[str, Split]:
        test: Split = drawn(self, "test", self.test)
        if self.data_folder:
            name = f"listops/{self.published}"
            test = Listed(list(read(lines_of(self.data_folder, name), name))[: self.test], collate)
            if not len(test):
                raise Mistake(f"{name}: no expression uses nothing but {', '.join(OPERATORS)}.")
        return {
            "train": drawn(self, "train", self.train),
            "validation": drawn(self, "validation", self.test),
            "test": test,
        }

    @property
    def structure(self) -> pb.Structure:
        return pb.DependencyTree()

    def trees(self, batch: Batch) -> pb.DependencyTree:
        """The trees of a batch: the root governs the first token, and only operators govern if `typed`."""
        m, n = batch.tokens.shape
        allowed = torch.zeros(m, n + 1, n + 1, dtype=torch.bool, device=batch.tokens.device)
        allowed[:, 0, 1] = True
        heads = is_operator(batch.tokens) if self.typed else batch.tokens > 0
        allowed[:, 1:, 1:] = heads.unsqueeze(-1)
        return pb.DependencyTree(batch.lengths, allowed)

    def model(self, estimator: pb.Estimator) -> Model:
        return Model(Encoder(), Decoder(self.depth + 1), estimator, self.trees)

    def known(self) -> dict[str, Callable[[Any], Tensor]]:
        """The true tree; all tokens below the first; each below the last operator before it; and a random tree."""
        return {"gold": lambda batch: batch.arcs, "flat": flat, "chain": chain, "random": self._random}

    def _random(self, batch: Batch) -> Tensor:
        return self.trees(batch).sample(torch.zeros_like(batch.arcs))

    def measures(self, model: Model, split: Split) -> dict[str, float]:
        """Accuracy, also by depth; and how many heads are right: without and with closing brackets (UAS).

        Every token has one head, so that precision and recall of edges are the same number.
        """
        right, depths, edges, all_edges, flat_edges = [], [], [], [], []
        for numbers in torch.arange(len(split)).split(CHUNK):
            batch: Batch = split[numbers]
            z = model.latent(batch)
            right.append(model.decoder(batch, z).argmax(-1) == batch.y)
            depths.append(batch.depth)
            inside, closing = batch.heads >= 0, batch.tokens == CLOSING
            agree = pb.DependencyTree.heads(z) == batch.heads
            edges.append(agree[inside & ~closing])
            all_edges.append(agree[inside])
            flat_edges.append((pb.DependencyTree.heads(flat(batch)) == batch.heads)[inside])
        correct, depth = torch.cat(right).float(), torch.cat(depths)
        found = {
            "accuracy": float(correct.mean()),
            "edges": float(torch.cat(edges).float().mean()),
            "uas": float(torch.cat(all_edges).float().mean()),
            "flat_uas": float(torch.cat(flat_edges).float().mean()),
        }
        by_depth = {f"accuracy_{d}": correct[depth == d] for d in range(1, self.depth + 1)}
        return {**found, **{name: float(some.mean()) for name, some in by_depth.items() if len(some)}}

    def pictures(self, model: Model, split: Split) -> list[Picture]:
        """How likely the arcs of a few expressions are, beside the true ones."""
        batch: Batch = split[torch.arange(min(3 * self.depth, len(split)))]
        trees, arcs = self.trees(batch), model.probabilities(batch)
        chosen = [i for i in range(len(batch.y)) if batch.lengths[i] <= 20][-3:]
        shown = []
        for i in chosen:
            words = [WORDS[number] for number in batch.tokens[i, : batch.lengths[i]].tolist()]
            drawing = pb.draw(trees, arcs, words, index=i, gold=batch.arcs.to(arcs), threshold=LIKELY)
            shown.append(Picture(" ".join(words), drawing.svg))
        return shown


def is_operator(tokens: Tensor) -> Tensor:
    return (tokens >= FIRST_OPERATOR) & (tokens < CLOSING)


def flat(batch: Batch) -> Tensor:
    """All tokens below the first."""
    heads = torch.where(batch.heads > 0, 1, batch.heads)
    return pb.DependencyTree.arcs(heads)


def chain(batch: Batch) -> Tensor:
    """Each token below the last operator before it."""
    positions = torch.arange(1, batch.tokens.shape[1] + 1, device=batch.tokens.device).expand_as(batch.tokens)
    last = (positions * is_operator(batch.tokens)).cummax(-1).values
    before = torch.nn.functional.pad(last, (1, 0))[:, :-1]
    return pb.DependencyTree.arcs(torch.where(batch.heads >= 0, before, -1))

"""A small dependency parser, trained on a treebank in a minute or two, for scores that have been learned.

Word and tag embeddings, a bidirectional LSTM and a biaffine layer (Dozat and Manning, 2017); the loss is the negative
log-likelihood of the tree, by our own log-partition.  One root per sentence, as in Universal Dependencies.
"""

from __future__ import annotations

import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

import pullback as pb

ROOT, UNKNOWN = "<root>", "<unknown>"


class Sentence(NamedTuple):
    """Words and tags, the root's first, and the head of every word."""

    words: list[str]
    tags: list[str]
    heads: list[int]


class Batch(NamedTuple):
    words: Tensor  # (batch, n + 1)
    tags: Tensor  # (batch, n + 1)
    heads: Tensor  # (batch, n), −1 beyond the sentence
    lengths: Tensor  # (batch,)


def read_treebank(folder: Path, part: str) -> list[Sentence]:
    """The sentences of the file *-ud-PART.conllu, which may be compressed by xz."""
    path = next(iter(sorted(folder.glob(f"*-ud-{part}.conllu*"))), None)
    if path is None:
        raise FileNotFoundError(f"{folder} has no file *-ud-{part}.conllu or *-ud-{part}.conllu.xz")
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        text = file.read()
    sentences = []
    for block in text.strip().split("\n\n"):
        rows = [line.split("\t") for line in block.split("\n") if not line.startswith("#")]
        rows = [row for row in rows if row[0].isdigit()]
        words, tags = [ROOT, *(row[1].lower() for row in rows)], [ROOT, *(row[3] for row in rows)]
        sentences.append(Sentence(words, tags, [int(row[6]) for row in rows]))
    return sentences


class Parser(nn.Module):
    def __init__(self, sentences: list[Sentence], width: int = 128):
        super().__init__()
        count = Counter(word for sentence in sentences for word in sentence.words)
        known = [UNKNOWN, *sorted(word for word, times in count.items() if times > 1)]
        self.word_index = {word: i for i, word in enumerate(known)}
        self.tag_index = {tag: i for i, tag in enumerate(sorted({tag for s in sentences for tag in s.tags}))}
        self.words, self.tags = nn.Embedding(len(known), 64), nn.Embedding(len(self.tag_index), 32)
        self.encoder = nn.LSTM(96, width, batch_first=True, bidirectional=True)
        self.head, self.modifier = nn.Linear(2 * width, width), nn.Linear(2 * width, width)
        self.biaffine = nn.Linear(width, width)

    def batch(self, sentences: list[Sentence]) -> Batch:
        words = [torch.tensor([self.word_index.get(word, 0) for word in s.words]) for s in sentences]
        tags = [torch.tensor([self.tag_index.get(tag, 0) for tag in s.tags]) for s in sentences]
        heads = [torch.tensor(s.heads) for s in sentences]
        lengths = torch.tensor([len(s.heads) for s in sentences])
        padded = (pad_sequence(rows, batch_first=True) for rows in (words, tags))
        return Batch(*padded, pad_sequence(heads, batch_first=True, padding_value=-1), lengths)

    def forward(self, batch: Batch) -> Tensor:
        """Scores (batch, head, modifier)."""
        embedded = torch.cat([self.words(batch.words), self.tags(batch.tags)], -1)
        packed = pack_padded_sequence(embedded, batch.lengths + 1, batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)[0]
        heads, modifiers = self.head(states).relu(), self.modifier(states).relu()
        return self.biaffine(heads) @ modifiers.mT


def trained_parser(folder: Path, epochs: int = 3) -> Parser:
    sentences = read_treebank(folder, "train")
    torch.manual_seed(0)  # initialization takes no generator
    parser = Parser(sentences)
    optimizer = torch.optim.Adam(parser.parameters(), lr=3e-3, betas=(0.9, 0.9))
    chunks = [parser.batch(chunk) for chunk in _chunks(sentences, words=800)]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=epochs * len(chunks))
    for _ in range(epochs):
        for i in torch.randperm(len(chunks)).tolist():
            scores, batch = parser(chunks[i]), chunks[i]
            trees = pb.DependencyTree(batch.lengths, single_root=True)
            loss = -trees.log_prob(scores, trees.arcs(batch.heads)).sum() / batch.lengths.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parser.parameters(), 5.0)
            optimizer.step()
            schedule.step()
    return parser


def _chunks(sentences: list[Sentence], words: int) -> Iterator[list[Sentence]]:
    """Sentences of similar lengths, about `words` words in all."""
    chunk: list[Sentence] = []
    for sentence in sorted(sentences, key=lambda s: len(s.heads)):
        if chunk and (len(chunk) + 1) * len(sentence.heads) > words:
            yield chunk
            chunk = []
        chunk.append(sentence)
    yield chunk


@torch.no_grad()
def attachment(parser: Parser, sentences: list[Sentence]) -> float:
    """The share of words that get their head (UAS)."""
    right = total = 0
    for chunk in _chunks(sentences, words=800):
        batch = parser.batch(chunk)
        trees = pb.DependencyTree(batch.lengths, single_root=True)
        right += int((trees.heads(trees.argmax(parser(batch))) == batch.heads)[batch.heads >= 0].sum())
        total += int(batch.lengths.sum())
    return right / total

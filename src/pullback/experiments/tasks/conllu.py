"""Sentences of a treebank in CoNLL-U: their words, tags and heads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pullback.experiments.mistakes import Mistake


@dataclass(frozen=True)
class Sentence:
    """Words, their universal part-of-speech tags, and their heads; 0 is the root."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def is_projective(self) -> bool:
        """Whether no two arcs cross, the root standing before the first word."""
        arcs = [tuple(sorted(arc)) for arc in enumerate(self.heads, 1)]
        return not any(a < c < b < d for a, b in arcs for c, d in arcs)


def read(lines: Sequence[str], name: str) -> Iterator[Sentence]:
    """The sentences of a file; a line that cannot be read is a `Mistake` that names it.

    Words that stand for several others (2-3) and words that were left out (8.1) have no place in the tree, and are
    passed over.
    """
    numbered = [(number, line) for number, line in enumerate(lines, 1) if not line.startswith("#")]
    for is_sentence, block in groupby(numbered, lambda one: bool(one[1].strip())):
        if is_sentence:
            yield _sentence(list(block), name)


def _sentence(block: Sequence[tuple[int, str]], name: str) -> Sentence:
    rows = []
    for number, line in block:
        columns = line.split("\t")
        if len(columns) != 10:
            raise Mistake(f"{name}, line {number}: {len(columns)} columns between tabs; expected 10.")
        if not ("-" in columns[0] or "." in columns[0]):
            rows.append((number, columns))
    for position, (number, columns) in enumerate(rows, 1):
        if columns[0] != str(position):
            raise Mistake(f"{name}, line {number}: the word has number {columns[0]!r}; expected {position}.")
        if not columns[6].isdecimal() or int(columns[6]) > len(rows):
            raise Mistake(f"{name}, line {number}: the head is {columns[6]!r}; expected one of 0 to {len(rows)}.")
    sentence = Sentence(
        tuple(columns[1] for _, columns in rows),
        tuple(columns[3] for _, columns in rows),
        tuple(int(columns[6]) for _, columns in rows),
    )
    if not _is_tree(sentence.heads):
        raise Mistake(f"{name}, line {block[0][0]}: the heads {sentence.heads} are not a tree with one root.")
    return sentence


def _is_tree(heads: Sequence[int]) -> bool:
    """Whether every word leads to the root, and one hangs on it."""
    below = {0}
    for _ in heads:
        below |= {word for word, head in enumerate(heads, 1) if head in below}
    return heads.count(0) == 1 and len(below) == len(heads) + 1

"""Constituency trees: binary trees over the spans of a sentence."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from math import comb
from typing import Any

import torch
from torch import Tensor

from pullback.operators import constituency
from pullback.operators._family import Family
from pullback.structures import _brackets
from pullback.structures._checks import check_flag, check_tolerance
from pullback.structures._compiled import Compiled
from pullback.structures._constants import constant
from pullback.structures._limits import check_count
from pullback.structures._numbers import without_mean


@constant
def _words_and_spans(size: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """0, 1, …, and the spans of so many words: those that do not end before they start."""
    words = torch.arange(size, device=device)
    return words, words.unsqueeze(-1) <= words


@dataclass(frozen=True, eq=False)
class ConstituencyTree(Compiled):
    """Binary trees over the words of a sentence: the sentence is split in two, and so is each part of several words.

    Scores: (..., n, n); scores[..., i, j] is that of the span from word i to word j, both included.  Below the diagonal
    they are never read, and outputs and gradients are exactly zero.  A tree has 2n − 1 spans: the n single words on the
    diagonal, the whole sentence, and n − 2 between them.

    lengths: the number of words of each example, n if not given;  words beyond it are padding, and 0 words give zeros.
    mask: shaped like the scores, true for spans (and labels) that are allowed.
    labelled: every span of a tree has exactly one of t labels; scores are (..., n, n, t).
    tolerance: the largest gap that SparseMAP may stop at, see `Structure.tolerance`; None is exact.

    There are C(2n − 2, n − 1) / n trees (Catalan numbers), times t²ⁿ⁻¹ with labels.  Argmax (the algorithm of Cocke,
    Kasami and Younger), log-partition and marginals (inside–outside) take O(n³ + n² t).  SparseMAP is by the active-set
    method, of flat scores by the chart.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    labelled: bool = False
    tolerance: float | None = None

    def __post_init__(self) -> None:
        check_flag("ConstituencyTree", "labelled", self.labelled)
        check_tolerance("ConstituencyTree", self.tolerance)

    @property
    def event_dims(self) -> int:  # type: ignore[override]
        return 3 if self.labelled else 2

    @property
    def _operators(self) -> Family:
        return constituency.labelled_trees if self.labelled else constituency.trees

    # ---- what a tree is

    def check_event(self, event: torch.Size) -> None:
        if event[0] != event[1]:
            expected = "(..., n, n, t)" if self.labelled else "(..., n, n)"
            raise ValueError(
                f"ConstituencyTree: scores have parts of shape {tuple(event)}; expected {expected} for n words."
            )

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        words, spans = _words_and_spans(shape[-self.event_dims], device)
        if self.lengths is not None:
            spans = spans & (words < self.lengths.to(device).unsqueeze(-1)).unsqueeze(-2)
        if self.labelled:
            spans = spans.unsqueeze(-1)
        return spans if self.mask is None else spans & self.mask.to(device)

    def _without_offset(self, scores: Tensor) -> Tensor:
        """Every tree has each single word, with some label, and n − 1 wider spans."""
        best = scores.detach() if not self.labelled else scores.detach().amax(-1)
        is_word = torch.eye(best.shape[-1], dtype=torch.bool, device=best.device)
        widest = best.masked_fill(is_word, -torch.inf).amax((-2, -1), keepdim=True)
        offset = torch.where(is_word, best, widest)
        offset = offset.masked_fill(offset == -torch.inf, 0)
        return scores - (offset.unsqueeze(-1) if self.labelled else offset)

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        """Every tree has each single word and the whole sentence, with some label, and n − 2 other spans."""
        usable = self.allowed(gradient.shape, gradient.device) if usable is None else usable
        seen = super().visible(gradient, usable)
        n = gradient.shape[-self.event_dims]
        words = torch.arange(n, device=gradient.device)
        lengths = torch.tensor(n) if self.lengths is None else self.lengths
        whole = (words.unsqueeze(-1) == 0) & (words == lengths.to(gradient.device)[..., None, None] - 1)
        certain = (words.unsqueeze(-1) == words) | whole
        certain = certain.unsqueeze(-1) if self.labelled else certain
        others = usable & ~certain
        between = without_mean(seen.masked_fill(~others, 0), others, tuple(range(-self.event_dims, 0)))
        if not self.labelled:
            return between  # a part that is always there cannot be seen
        return torch.where(certain, without_mean(seen, usable, (-1,)), between)

    def _slots(self, event: Sequence[int]) -> Tensor:
        """Spans of one width that start in the same stretch of so many words: they cross, so a tree has one at most."""
        n = event[0]
        first = torch.tensor([0, *itertools.accumulate(n // width for width in range(1, n + 1))])
        words = torch.arange(n)
        width = (words - words.unsqueeze(-1) + 1).clamp_min(1)
        slots = first[width - 1] + words.unsqueeze(-1) // width
        return slots.unsqueeze(-1).expand(*event) if self.labelled else slots

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        (n,) = length
        labels = event[2] if self.labelled else 1
        check_count("ConstituencyTree", comb(2 * n - 2, n - 1) // n * labels ** (2 * n - 1) if n else 1)
        every = [
            [(i * event[0] + j) * labels + label for (i, j), label in zip(spans, chosen)]
            for spans in (_bracketings(0, n) if n else [()])
            for chosen in itertools.product(range(labels), repeat=len(spans))
        ]
        index = torch.tensor(every, dtype=torch.long)
        return torch.zeros(len(every), event[0] ** 2 * labels).scatter(1, index, 1.0).reshape(-1, *event)

    # ---- brackets

    @staticmethod
    def brackets(tree: Tensor, words: Sequence[str] | None = None, labels: Sequence[str] | None = None) -> str:
        """One tree as text, `((0 1) 2)`: a vertex (n, n), or (n, n, t) if labelled, padding included.

        words: their names, their numbers if not given.  labels: their names, numbers if not given; a labelled tree is
        written as in treebanks, `(S (NP (D the) (N cat)) (V sleeps))`.
        """
        return _brackets.write(tree, words, labels)

    @staticmethod
    def spans(brackets: Any, labels: Sequence[str] | None = None, size: int | None = None) -> Tensor:
        """The vertex (n, n) of one tree given as text, `((the cat) sleeps)`, or as nested tuples of words.

        labels: the names of all t labels; the tree is then labelled, `(S (NP (D the) (N cat)) (V sleeps))`, and the
        vertex is (n, n, t).  size: the number of words to pad to.
        """
        return _brackets.read(brackets, labels, size)


def _bracketings(start: int, end: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The spans of every binary tree over the words start, …, end − 1."""
    if end == start + 1:
        yield ((start, start),)
        return
    for split in range(start + 1, end):
        for left, right in itertools.product(_bracketings(start, split), _bracketings(split, end)):
            yield ((start, end - 1), *left, *right)

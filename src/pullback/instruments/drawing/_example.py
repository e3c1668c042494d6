"""What a picture is made from: one example of a batch, with its words and its gold vertex."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pullback.instruments.drawing import _text
from pullback.structures._structure import Structure

FAINT = 0.05
SURE = 0.995
_OUTSIDE = 1e-3  # solvers in float32 stay well within it


@dataclass(frozen=True, order=True)
class Part:
    """A part of a structure that is to be drawn: its index, its probability, and whether gold has it."""

    index: tuple[int, ...]
    p: float
    is_gold: bool | None = None
    """None if there is no gold to compare with."""
    is_shown: bool = True
    """Whether the probability is large enough to be drawn; if not, the part is here because gold has it."""

    @property
    def is_missed(self) -> bool:
        """Whether gold has the part and the point rather does not."""
        return bool(self.is_gold) and self.p < 0.5

    @property
    def css(self) -> str:
        """The class of what is drawn for it."""
        return "" if self.is_gold is None else "agreed" if self.is_gold else "extra"

    @property
    def text(self) -> str:
        """Its probability, unless that is one or too small to be worth writing."""
        return _text.share(self.p) if FAINT <= self.p <= SURE else ""


@dataclass(frozen=True, eq=False)
class Example:
    """One example of a batch of points, and what the caller says about it.

    structure, points, golds: of the whole batch.  index: which example, a number for each dimension of the batch.
    items, choices: as the caller gave them; `items_for` and `choices_for` check them.
    threshold: the smallest probability that is drawn.
    """

    structure: Structure
    points: Tensor
    index: tuple[int, ...] = ()
    golds: Tensor | None = None
    items: Any = None
    choices: Any = None
    threshold: float = 0.01

    @property
    def kind(self) -> str:
        """The name of the structure."""
        return type(self.structure).__name__

    @property
    def event(self) -> torch.Size:
        """The shape of the parts."""
        return self.points.shape[self.points.dim() - self.structure.event_dims :]

    @property
    def length(self) -> tuple[int, ...]:
        """How long the example is, without padding: a number for each axis of a length."""
        longest = self.structure.longest(self.event)
        if self.structure.lengths is None:
            return tuple(longest)
        numbers = self.pick(self.structure.lengths, 1 if len(longest) > 1 else 0).reshape(-1)
        return tuple(int(number) for number in numbers)

    @cached_property
    def allowed(self) -> Tensor:
        """Which parts exist: (*event)."""
        allowed = self.structure.allowed(self.points.shape, torch.device("cpu"))
        if allowed is None:
            return torch.ones(self.event, dtype=torch.bool)
        return allowed.expand(self.points.shape)[self.index]

    @cached_property
    def point(self) -> Tensor:
        """The probabilities (*event) of the parts; zero at those that do not exist."""
        return self._parts_of(self.points)

    @cached_property
    def gold(self) -> Tensor | None:
        """The vertex (*event) to compare with, if there is one."""
        return None if self.golds is None else self._parts_of(self.golds)

    def pick(self, field: Tensor, dims: int = 0) -> Tensor:
        """What belongs to this example in a field of the structure, (*batch) and `dims` dimensions more."""
        batch = self.points.shape[: len(self.index)]
        return field.detach().cpu().expand(*batch, *field.shape[field.dim() - dims :])[self.index]

    def inner(self, structure: Structure, points: Tensor, golds: Tensor | None, **changes: Any) -> Example:
        """The example of a structure within this one."""
        return replace(self, structure=structure, points=points, golds=golds, **changes)

    def parts(self, point: Tensor | None = None, gold: Tensor | None = None) -> list[Part]:
        """The parts to draw, the most probable last: those above the threshold, and those of gold.

        Of another tensor than the point if given, such as sums over parts.
        """
        if point is None:
            point, gold = self.point, self.gold
        chosen = point >= self.threshold
        shown = chosen if gold is None else chosen | (gold > 0.5)
        found = [
            Part(
                tuple(index),
                min(1.0, float(point[tuple(index)])),
                None if gold is None else bool(gold[tuple(index)] > 0.5),
                bool(chosen[tuple(index)]),
            )
            for index in shown.nonzero().tolist()
        ]
        return sorted(found, key=lambda part: part.p)

    @property
    def is_vertex(self) -> bool:
        """Whether the point is made of zeros and ones."""
        return bool(((self.point < 1e-6) | (self.point > 1 - 1e-6)).all())

    # ---- the caller's words

    def items_for(self, count: int, what: str, hint: str = "") -> list[str]:
        """The text of each of `count` items, such as words; their numbers if none are given."""
        return self._checked("items", self.items, count, what, hint)

    def choices_for(self, count: int, what: str) -> list[str]:
        """The text of each of `count` choices, such as tags; their numbers if none are given."""
        return self._checked("choices", self.choices, count, what)

    def _checked(self, argument: str, given: Any, count: int, what: str, hint: str = "") -> list[str]:
        if given is None:
            return [str(i) for i in range(count)]
        if not isinstance(given, Sequence) and not hasattr(given, "tolist"):
            raise TypeError(f"draw: {argument} are a {type(given).__name__}; expected a list, one for each {what}.")
        given = given.tolist() if hasattr(given, "tolist") else list(given)
        if len(given) != count:
            expected = f"{count}, one for each {what}{hint}"
            raise ValueError(f"draw: {len(given)} {argument} were given for {self.kind}; expected {expected}.")
        return [_text.clean(each) for each in given]

    # ---- plumbing

    def _parts_of(self, whole: Tensor) -> Tensor:
        one = whole.detach().cpu()[self.index].double()
        one = one.masked_fill(~self.allowed, 0)  # padding may hold anything
        if not bool(one.isfinite().all()):
            raise ValueError(f"draw: a point of {self.kind} holds NaN or infinite numbers; expected finite ones.")
        if self.structure.is_zero_one:
            low, high = (float(one.min()), float(one.max())) if one.numel() else (0.0, 0.0)
            if low < -_OUTSIDE or high > 1 + _OUTSIDE:
                raise ValueError(
                    f"draw: a point of {self.kind} holds numbers from {low:.3g} to {high:.3g}; expected probabilities "
                    "from 0 to 1, such as `argmax`, `sparsemap` or `marginals` of the scores."
                )
        return one

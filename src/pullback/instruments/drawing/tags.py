"""Sequences of tags: under each word a box for each tag, and lines between neighbors."""

import itertools
from typing import NamedTuple

from torch import Tensor

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, Point, on_dark, straight
from pullback.instruments.drawing._example import SURE, Example, Part
from pullback.instruments.drawing._row import Slot, lines, slots
from pullback.structures.chain import Chain
from pullback.structures.tagging import Tagging

_HIGH, _STEP = 22.0, 36.0
_FEW = 8


def draw_tags(structure: Tagging, example: Example) -> Canvas:
    """A box for each tag of each word, darker if more probable; lines along the sequence if the point is one."""
    lattice = _lattice(example, example.point, example.gold)
    chosen = (example.point > 0.5).nonzero().tolist() if example.is_vertex else []
    neighbors = [(i, before, tag) for (_, before), (i, tag) in itertools.pairwise(chosen)]
    return lattice.draw([], neighbors)


def draw_pairs(structure: Chain, example: Example) -> Canvas:
    """Boxes for tags, and lines for pairs of neighbors, which are the parts of a chain."""
    lattice = _lattice(example, example.point.sum(-2), None if example.gold is None else example.gold.sum(-2))
    return lattice.draw([part for part in example.parts() if part.index[0] > 0], [])


class Lattice(NamedTuple):
    """Words in a row, the tags that each may have, and where they are drawn."""

    words: list[str]
    names: list[str]
    parts: list[Part]
    row: list[Slot]
    heights: dict[int, float]
    wide: float

    def draw(self, pairs: list[Part], neighbors: list[tuple[int, int, int]]) -> Canvas:
        """Line by line; pairs are parts that connect two tags, neighbors are connected without being parts."""
        canvas = Canvas()
        y = 0.0
        for line in lines(self.row):
            canvas.place(self._draw_line(line, pairs, neighbors), 0, y)
            y = canvas.bounds[3] + 22
        if not self.words:
            canvas.text(0, 14, "no words", "small", anchor="start")
        return canvas

    def _draw_line(self, line: range, pairs: list[Part], neighbors: list[tuple[int, int, int]]) -> Canvas:
        canvas = Canvas()
        for tag, y in self.heights.items():
            name = self.names[tag]
            x = self.row[line.start].left - 8
            canvas.text(x, y + 15, _text.shorten(name, 14), "small", anchor="end", title=name)
        inner = line[1:]  # what leads to the first word of a line begins in the line above
        for index in (index for index in neighbors if index[0] in inner):
            ends = self._ends(index)
            canvas.line(straight(*ends), ends, "ghost", stroke_width=2.0)
        for part in (part for part in pairs if part.index[0] in inner):
            ends = self._ends(part.index)
            title = f"{self.names[part.index[1]]} → {self.names[part.index[2]]}: {part.p:.3f}"
            canvas.part_line(straight(*ends), ends, part, title)
        for i in line:
            canvas.text(self.row[i].center, 0, _text.shorten(self.words[i]), title=self.words[i])
        for part in (part for part in self.parts if part.index[0] in line):
            self._draw_tag(canvas, part)
        return canvas

    def _ends(self, index: tuple[int, ...]) -> list[Point]:
        """Where the line from a tag to the next begins and ends."""
        i, before, tag = index
        return [
            (self.row[i - 1].center + self.wide / 2, self.heights[before] + _HIGH / 2),
            (self.row[i].center - self.wide / 2, self.heights[tag] + _HIGH / 2),
        ]

    def _draw_tag(self, canvas: Canvas, part: Part) -> None:
        i, tag = part.index
        title = f"{self.words[i]}, {self.names[tag]}: {part.p:.3f}"
        x, y = self.row[i].center, self.heights[tag]
        canvas.part_box(x - self.wide / 2, y, self.wide, _HIGH, part, title, "tag")
        text = self.names[tag] if part.p > SURE else _text.share(part.p)
        if part.is_shown and _text.width(text, 12) <= self.wide:
            canvas.text(x, y + 15, text, f"small {on_dark(part)}", title=title)


def _lattice(example: Example, point: Tensor, gold: Tensor | None) -> Lattice:
    """The lattice of tags with the probabilities (n, t); of many tags, those that are used."""
    n, t = example.length[0], point.shape[-1]
    words, names = example.items_for(n, "word"), example.choices_for(t, "tag")
    parts = example.parts(point, gold)
    used = sorted({part.index[1] for part in parts}) if t > _FEW else list(range(t))
    sure = [_text.width(names[part.index[1]], 12) + 8 for part in parts if part.p > SURE]
    wide = min(max([40.0, *sure]), 80.0)
    heights = {tag: 16 + _STEP * i for i, tag in enumerate(used)}
    return Lattice(words, names, parts, slots(words, least=wide + 14), heights, wide)

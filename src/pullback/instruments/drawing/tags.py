"""Sequences of tags: under each word a box for each tag, and lines between neighbors."""

import itertools

from torch import Tensor

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, on_dark, straight
from pullback.instruments.drawing._example import Example, Part
from pullback.instruments.drawing._row import Slot, lines, slots
from pullback.structures.chain import Chain
from pullback.structures.tagging import Tagging

_WIDE, _HIGH, _STEP = 40.0, 22.0, 36.0
_FEW = 8


def draw_tags(structure: Tagging, example: Example) -> Canvas:
    """A box for each tag of each word, darker if more probable; lines along the sequence if the point is one."""
    steps = []
    if example.is_vertex:
        chosen = [(i, tag) for i, tag in example.point.nonzero().tolist()]
        steps = [(Part((i, before, tag), 1.0), False) for (_, before), (i, tag) in itertools.pairwise(chosen)]
    return _draw_lattice(example, example.point, example.gold, steps)


def draw_pairs(structure: Chain, example: Example) -> Canvas:
    """Boxes for tags, and lines for pairs of neighbors, which are the parts of a chain."""
    gold = None if example.gold is None else example.gold.sum(-2)
    steps = [(part, True) for part in example.parts() if part.index[0] > 0]
    return _draw_lattice(example, example.point.sum(-2), gold, steps)


def _draw_lattice(example: Example, point: Tensor, gold: Tensor | None, steps: list[tuple[Part, bool]]) -> Canvas:
    """Line by line; steps are pairs of neighboring tags, and whether they are parts."""
    n, t = example.length[0], point.shape[-1]
    words, names = example.labels_for(n, "word"), example.names_for(t, "tag")
    parts = example.parts(point, gold)
    used = sorted({part.index[1] for part in parts}) if t > _FEW else list(range(t))
    height = {tag: 16 + _STEP * i for i, tag in enumerate(used)}
    row = slots(words, least=_WIDE + 14)
    canvas = Canvas()
    y = 0.0
    for line in lines(row):
        block = Canvas()
        _draw_names(block, names, height, row[line.start].left)
        for part, is_part in steps:
            if part.index[0] in line and part.index[0] - 1 in line:
                _draw_step(block, part, is_part, row, height, names)
        for i in line:
            block.text(row[i].center, 0, _text.shorten(words[i]), title=words[i])
        for part in parts:
            if part.index[0] in line:
                _draw_tag(block, part, row[part.index[0]], height, words, names)
        canvas.place(block, 0, y)
        y = canvas.bounds[3] + 22
    if n == 0:
        canvas.text(0, 14, "no words", "small", anchor="start")
    return canvas


def _draw_names(canvas: Canvas, names: list[str], height: dict[int, float], left: float) -> None:
    for tag, y in height.items():
        canvas.text(left - 8, y + 15, _text.shorten(names[tag], 14), "small", anchor="end", title=names[tag])


def _draw_step(
    canvas: Canvas, part: Part, is_part: bool, row: list[Slot], height: dict[int, float], names: list[str]
) -> None:
    i, before, tag = part.index
    ends = [
        (row[i - 1].center + _WIDE / 2, height[before] + _HIGH / 2),
        (row[i].center - _WIDE / 2, height[tag] + _HIGH / 2),
    ]
    if is_part:
        canvas.part_line(straight(*ends), ends, part, f"{names[before]} → {names[tag]}: {part.p:.3f}")
    else:
        canvas.line(straight(*ends), ends, "ghost", stroke_width=2.0)


def _draw_tag(
    canvas: Canvas, part: Part, slot: Slot, height: dict[int, float], words: list[str], names: list[str]
) -> None:
    i, tag = part.index
    title = f"{words[i]}, {names[tag]}: {part.p:.3f}"
    x, y = slot.center - _WIDE / 2, height[tag]
    canvas.box(x, y, _WIDE, _HIGH, "paper")  # no line is seen through a box
    canvas.part_box(x, y, _WIDE, _HIGH, part, title, "tag")
    if part.is_shown:
        css = f"small {on_dark(part)}"
        canvas.text(slot.center, y + 15, _text.share(part.p), css, title=title)

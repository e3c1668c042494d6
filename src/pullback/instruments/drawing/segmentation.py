"""Segmentations: bars under the words, one for each segment."""

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, on_dark
from pullback.instruments.drawing._example import SURE, Example, Part
from pullback.instruments.drawing._row import Slot, lines, slots, stacked
from pullback.instruments.drawing._style import label_class
from pullback.structures.segmentation import Segmentation

_BAR = 22.0


def draw_segments(structure: Segmentation, example: Example) -> Canvas:
    """A bar for each segment, colored by its label and darker if more probable, the likeliest nearest to the words."""
    (n,) = example.length
    labels = example.items_for(n, "position")
    names = example.choices_for(example.event[2], "label of segments")
    if example.choices is None and len(names) == 1:
        names = [""]
    row = slots(labels, gap=10, least=22)
    parts = sorted(example.parts(), key=lambda part: (not part.is_shown, -part.p))
    levels = stacked([(part.index[0], part.index[0] + part.index[1] + 1) for part in parts])
    canvas = Canvas()
    y = 0.0
    for line in lines(row):
        block = Canvas()
        for i in line:
            block.text(row[i].center, 0, _text.shorten(labels[i]), title=labels[i])
        for part, level in zip(parts, levels):
            start, width = part.index[:2]
            inside = [i for i in range(start, start + width + 1) if i in line]  # a segment may go on in the next line
            if inside:
                title = f"{names[part.index[2]]} {' '.join(labels[start : start + width + 1])}: {part.p:.3f}".strip()
                _draw_bar(block, part, row[inside[0]], row[inside[-1]], 10 + (_BAR + 5) * level, names, title)
        canvas.place(block, 0, y)
        y = canvas.bounds[3] + 22
    if n == 0:
        canvas.text(0, 14, "no positions", "small", anchor="start")
    return canvas


def _draw_bar(canvas: Canvas, part: Part, first: Slot, last: Slot, y: float, names: list[str], title: str) -> None:
    left, right = first.left + 1.5, last.right - 1.5
    canvas.part_box(left, y, right - left, _BAR, part, title, label_class(part.index[2]))
    name, probability = names[part.index[2]], "" if part.p > SURE or not part.is_shown else _text.share(part.p)
    for text in (f"{name} {probability}".strip(), name, probability):
        if text and _text.width(text, 12) <= right - left - 2:
            canvas.text((left + right) / 2, y + 15, text, f"small {on_dark(part)}", title=title)
            return

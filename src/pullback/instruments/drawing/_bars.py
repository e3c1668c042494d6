"""Bars: one for each part, whatever the parts are."""

from dataclasses import replace

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas
from pullback.instruments.drawing._example import Example, Part

_MOST = 60
_WIDE, _HIGH = 160.0, 22.0


def bars(example: Example) -> Canvas:
    """A bar for each part that is used, with its index; what any structure looks like if nothing else is known."""
    labels = example.items_for(example.length[0], "item") if len(example.event) == 1 else []
    if example.structure.is_zero_one:
        return draw_bars(example.parts(), labels)
    return draw_bars(_any_numbers(example), labels, longest=float(example.point.abs().max()))


def draw_bars(parts: list[Part], labels: list[str], longest: float = 1.0) -> Canvas:
    """Bars below each other, the largest of them if there are too many.

    labels: of the items of a list, if the parts are one.  longest: the number whose bar has the full length.
    """
    canvas = Canvas()
    number = _text.share if longest == 1 else "{:.2f}".format
    rows = sorted(sorted(parts, key=lambda part: -abs(part.p))[:_MOST])
    for row, part in enumerate(rows):
        y = row * (_HIGH + 6)
        label = labels[part.index[0]] if labels else _text.listed(part.index)
        title = f"{label}: {part.p:.3f}"
        canvas.text(-10, y + 16, _text.shorten(label), anchor="end", title=label)
        canvas.box(0, y, _WIDE, _HIGH, "track")
        canvas.part_fill(0, y, max(_WIDE * abs(part.p) / longest, 3), _HIGH, replace(part, p=1.0), title)
        canvas.part_outline(0, y, _WIDE, _HIGH, part, title)
        canvas.text(_WIDE + 8, y + 15, number(part.p), "small", anchor="start")
    if not rows:
        canvas.text(0, 16, "nothing is chosen", "small", anchor="start")
    if len(parts) > len(rows):
        y = len(rows) * (_HIGH + 6) + 14
        canvas.text(0, y, f"and {len(parts) - len(rows)} more", "small", anchor="start")
    return canvas


def _any_numbers(example: Example) -> list[Part]:
    """The parts of a structure whose vertices are not zeros and ones: all that are not zero."""
    used = example.point != 0
    return [Part(tuple(index), float(example.point[tuple(index)])) for index in used.nonzero().tolist()]

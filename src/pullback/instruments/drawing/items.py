"""Items in a list: words with a background for subsets and bits, bars for a single choice."""

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._bars import draw_bars
from pullback.instruments.drawing._canvas import Canvas, on_dark
from pullback.instruments.drawing._example import SURE, Example, Part
from pullback.instruments.drawing._row import LINE
from pullback.structures._structure import Structure

_FEW = 20


def draw_choice(structure: Structure, example: Example) -> Canvas:
    """A bar for each category; of many, for those that are likely."""
    (n,) = example.length
    labels = example.items_for(n, "item")
    parts = example.parts()
    if n <= _FEW:
        here = {part.index for part in parts}
        gold = None if example.gold is None else False
        parts += [Part((i,), 0.0, gold, is_shown=False) for i in range(n) if (i,) not in here and example.allowed[i]]
    return draw_bars(parts, labels)


def draw_highlights(structure: Structure, example: Example) -> Canvas:
    """The items one after the other, with a background that is stronger the more probable they are."""
    (n,) = example.length
    labels = example.items_for(n, "item")
    parts = {part.index[0]: part for part in example.parts()}
    canvas = Canvas()
    x, y = 0.0, 0.0
    for i, label in enumerate(labels):
        wide = _text.width(_text.shorten(label)) + 12
        if x > 0 and x + wide > LINE:
            x, y = 0.0, y + 46
        css = ""
        if i in parts:
            part = parts[i]
            canvas.part_box(x, y, wide, 28, part, f"{label}: {part.p:.3f}")
            css = on_dark(part)
            if part.is_shown and part.p <= SURE:
                canvas.text(x + wide / 2, y + 41, _text.share(part.p), "small")
        canvas.text(x + wide / 2, y + 19, _text.shorten(label), css, title=label)
        x += wide + 4
    if n == 0:
        canvas.text(0, 14, "no items", "small", anchor="start")
    return canvas

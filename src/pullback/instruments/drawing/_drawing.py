"""A drawing as a file, and the frame around a picture."""

import os
from dataclasses import dataclass
from pathlib import Path

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas
from pullback.instruments.drawing._example import Part
from pullback.instruments.drawing._style import style

_MARGIN = 14.0
_KINDS = {
    "in both": Part((), 1.0, is_gold=True),
    "not in gold": Part((), 1.0, is_gold=False),
    "in gold alone": Part((), 0.0, is_gold=True, is_shown=False),
}


@dataclass(frozen=True, repr=False)
class Drawing:
    """A picture as SVG: notebooks show it, `svg` is its text, `save` writes it to a file.

    It needs nothing else: colors follow the light or dark mode of the reader, and it shrinks to the width of a page.
    Several may be pasted into one page.
    """

    svg: str
    title: str
    width: int
    height: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the drawing to a file whose name ends in .svg."""
        path = Path(path)
        if path.suffix.lower() != ".svg":
            raise ValueError(f"Drawing.save: the file is {path.name!r}; expected a name that ends in .svg.")
        path.write_text(self.svg + "\n", encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Drawing: {_text.shorten(self.title, 60)}>"


def framed(canvas: Canvas, title: str, has_gold: bool) -> Drawing:
    """A picture on paper, with its style, its title and what colors and dashes mean."""
    described = canvas.described()
    if has_gold:
        left, _, _, bottom = canvas.bounds
        canvas.place(_legend(canvas.is_of_lines), left, bottom + 16, "legend")
    left, top, right, bottom = canvas.bounds
    x, y = left - _MARGIN, top - _MARGIN
    width, height = round(right - left + 2 * _MARGIN), round(bottom - top + 2 * _MARGIN)
    name = _text.escaped(title)
    corner = f"{_text.number(x)} {_text.number(y)}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pullback-drawing" role="img" aria-label="{name}" '
        f'viewBox="{corner} {width} {height}" width="{width}" height="{height}" style="max-width:100%;height:auto">'
        f"<title>{name}</title><desc>{_text.escaped(described)}</desc><style>{style()}</style>"
        f'<rect class="paper" x="{_text.number(x)}" y="{_text.number(y)}" width="{width}" height="{height}" rx="8"/>'
        f"{canvas.shapes}</svg>"
    )
    return Drawing(svg, _text.clean(title), width, height)


def _legend(is_of_lines: bool) -> Canvas:
    """What it looks like where the point and gold agree, and where they do not."""
    legend = Canvas()
    x = 0.0
    for text, part in _KINDS.items():
        if is_of_lines:
            legend.part_line(f"M{_text.number(x)} 7H{_text.number(x + 24)}", [(x, 0), (x + 24, 14)], part)
        else:
            legend.part_box(x, 0, 24, 14, part)
        legend.text(x + 30, 11, text, "small", anchor="start")
        x += 30 + _text.width(text, 12) + 16
    return legend

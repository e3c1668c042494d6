"""What pictures draw on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._example import Part

Point = tuple[float, float]


class Canvas:
    """Shapes at any coordinates, y going down; it grows with what is drawn on it.

    `text`, `box`, `line`, `dot` and `place` are for everything around the parts of a structure.  `part_line` and
    `part_box` draw the parts themselves: the more probable the stronger, and in the way that says whether gold has
    them.  A title is what is shown when the mouse rests on a shape; those of parts make up the description.
    """

    is_of_lines = False
    """Whether parts are lines, also in the legend; boxes if not."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self._corners: list[Point] = []
        self._told: list[tuple[float, str]] = []

    # ---- around the parts

    def text(
        self, x: float, y: float, text: str, css: str = "", *, anchor: str = "middle", turn: float = 0, title: str = ""
    ) -> None:
        """A line of text whose baseline is at y; css "small" is for what is less important than words."""
        wide = _text.width(_text.clean(text), 12 if "small" in css or "share" in css else 16)
        left = x - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
        turned = {}
        if turn:  # for a label that leans over its column
            turned = {"transform": f"rotate({_text.number(turn)} {_text.number(x)} {_text.number(y)})"}
            self._reach((x + 0.72 * wide, y - 0.72 * wide), (x - 4, y + 4))
        else:
            self._reach((left, y - 14), (left + wide, y + 4))
        self._add("text", css, {"x": x, "y": y, "text_anchor": anchor, **turned}, title, text)

    def box(self, x: float, y: float, wide: float, high: float, css: str, *, title: str = "", **more: float) -> None:
        """A rectangle with its upper left corner at (x, y)."""
        self._reach((x, y), (x + wide, y + high))
        self._add("rect", css, {"x": x, "y": y, "width": wide, "height": high, "rx": 3.0, **more}, title)

    def line(self, path: str, through: Iterable[Point], css: str, *, title: str = "", **more: float) -> None:
        """A line along an SVG path; `through` are points that the canvas must have room for."""
        self._reach(*through)
        self._add("path", css, {"d": path, **more}, title)

    def dot(self, x: float, y: float, radius: float, css: str, *, title: str = "", **more: float) -> None:
        """A circle around (x, y)."""
        self._reach((x - radius, y - radius), (x + radius, y + radius))
        self._add("circle", css, {"cx": x, "cy": y, "r": radius, **more}, title)

    def place(self, other: Canvas, x: float, y: float, css: str = "") -> None:
        """Another canvas with its upper left corner at (x, y)."""
        left, top, right, bottom = other.bounds
        self._reach((x, y), (x + right - left, y + bottom - top))
        at = f"{_text.number(x - left)} {_text.number(y - top)}"
        kind = f' class="{css}"' if css else ""
        self._shapes.append(f'<g{kind} transform="translate({at})">{other.shapes}</g>')
        self._told += other._told
        self.is_of_lines |= other.is_of_lines

    # ---- parts

    def part_line(
        self, path: str, through: Iterable[Point], part: Part, title: str = "", tip: tuple[Point, Point] | None = None
    ) -> None:
        """A part as a line, wider and darker if more probable; dashed where gold has it and the point does not.

        tip: where an arrow ends, and its direction, of length 1.
        """
        self.is_of_lines = True
        through = list(through)
        if part.is_shown:
            self.tell(part, title)
            strength = {"stroke_width": 1 + 2.4 * part.p, "stroke_opacity": 0.2 + 0.8 * part.p}
            self.line(path, through, f"line part {part.css}", title=title, **strength)
        if part.is_missed:
            self.line(path, through, "line missed", title=f"{title}, in gold", stroke_width=1.6)
        if tip is not None:
            kind = "missed" if part.is_missed else part.css
            opacity = 1.0 if part.is_missed else 0.2 + 0.8 * part.p
            self.line(_arrow(*tip), [tip[0]], f"tip {kind}", fill_opacity=opacity)

    def part_box(
        self,
        x: float,
        y: float,
        wide: float,
        high: float,
        part: Part,
        title: str = "",
        css: str = "",
        darkest: float = 0.9,
    ) -> None:
        """A part as a box, darker if more probable, with an outline where gold has it; dashed if the point does not."""
        self.part_fill(x, y, wide, high, part, title, css, darkest)
        self.part_outline(x, y, wide, high, part, title)

    def part_fill(
        self,
        x: float,
        y: float,
        wide: float,
        high: float,
        part: Part,
        title: str = "",
        css: str = "",
        darkest: float = 0.9,
    ) -> None:
        """The box alone."""
        if part.is_shown:
            self.tell(part, title)
            opacity = 0.06 + (darkest - 0.06) * part.p
            self.box(x, y, wide, high, f"fill part {part.css} {css}", title=title, fill_opacity=opacity)

    def part_outline(self, x: float, y: float, wide: float, high: float, part: Part, title: str = "") -> None:
        """The outline alone."""
        if part.is_gold:
            kind = "missed" if part.is_missed else "agreed"
            self.box(x + 1, y + 1, max(wide - 2, 1), high - 2, f"outline {kind}", title=f"{title}, in gold")

    def part_text(self, x: float, y: float, text: str, part: Part, title: str = "") -> None:
        """What is written on the line of a part, if anything."""
        if text:
            self.text(x, y, text, f"share {'missed' if part.is_missed else part.css}", title=title)

    def tell(self, part: Part, title: str) -> None:
        """Adds a part to the description, which readers have who cannot see the drawing."""
        if title:
            self._told.append((part.p, title))

    # ---- what was drawn

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        if not self._corners:
            return 0.0, 0.0, 0.0, 0.0
        across, down = zip(*self._corners)
        return min(across), min(down), max(across), max(down)

    @property
    def shapes(self) -> str:
        """The shapes as SVG, without the element around them."""
        return "".join(self._shapes)

    def described(self, most: int = 30) -> str:
        """The most probable parts in words."""
        told = sorted(self._told, key=lambda pair: -pair[0])
        more = f"; and {len(told) - most} more" if len(told) > most else ""
        return "; ".join(title for _, title in told[:most]) + more

    def _reach(self, *corners: Point) -> None:
        self._corners.extend((float(x), float(y)) for x, y in corners)

    def _add(self, tag: str, css: str, attributes: Mapping[str, float | str], title: str = "", text: str = "") -> None:
        kind = f' class="{" ".join(css.split())}"' if css.strip() else ""
        written = "".join(f' {name.replace("_", "-")}="{_written(name, value)}"' for name, value in attributes.items())
        inside = (f"<title>{_text.escaped(title)}</title>" if title else "") + _text.escaped(text)
        self._shapes.append(f"<{tag}{kind}{written}>{inside}</{tag}>" if inside else f"<{tag}{kind}{written}/>")


def _written(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.2f}" if name.endswith("opacity") else _text.number(value)


def on_dark(part: Part) -> str:
    """The class of a text on the box of a part."""
    return "on-dark" if part.is_shown and part.p > 0.75 else "on-light"


def curve(*points: Point) -> str:
    """The path through a first point and then, by threes, two handles and a point each."""
    written = [f"{_text.number(x)} {_text.number(y)}" for x, y in points]
    pieces = (" ".join(written[i : i + 3]) for i in range(1, len(written), 3))
    return f"M{written[0]}" + "".join(f"C{piece}" for piece in pieces)


def straight(*points: Point) -> str:
    """The path from point to point."""
    return "M" + "L".join(f"{_text.number(x)} {_text.number(y)}" for x, y in points)


def _arrow(end: Point, direction: Point) -> str:
    """A small triangle that points to `end`."""
    (x, y), (dx, dy) = end, direction
    back = (x - 7 * dx, y - 7 * dy)
    return straight(end, (back[0] - 3.6 * dy, back[1] + 3.6 * dx), (back[0] + 3.6 * dy, back[1] - 3.6 * dx)) + "Z"

"""Small charts as SVG: lines with bands, and labelled points.  Colors are classes, which the page fills in.

Drawn at the width of a phone, so that texts can be read there; a wide page has several side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 444, 290
LEFT, RIGHT, TOP, BOTTOM = 58, 154, 14, 44
LINE = 15  # the height of a label
LETTER = 7  # the width of a letter, rather too wide than too narrow
SLOT = 36  # the width of a place beside the axis; names of neighbors stand at different heights
COLORS = 8


@dataclass(frozen=True)
class Series:
    """A line: points (x, y), a band (x, low, high) around it if there is one, and the number of its color.

    color: None for a yardstick, which is gray.
    beside: values that have no place on the axis: what they are called, (y, low, high).
    """

    name: str
    points: Sequence[tuple[float, float]]
    color: int | None
    band: Sequence[tuple[float, float, float]] = ()
    beside: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def heights(self) -> list[float]:
        """Every y that has to be seen."""
        bounds = [bound for _, *bounds in self.band for bound in bounds]
        return [*(y for _, y in self.points), *bounds, *(y for values in self.beside.values() for y in values)]

    @property
    def end(self) -> float:
        """The height at the right."""
        return list(self.beside.values())[-1][0] if self.beside else self.points[-1][1]


@dataclass(frozen=True)
class Axis:
    """From numbers to a stretch of the drawing."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            value, low, high = (math.log10(max(number, 1e-12)) for number in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return round(self.begin + (value - low) / (high - low) * (self.end - self.begin), 1)

    @property
    def ticks(self) -> list[float]:
        """Round numbers on the way."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for factors in ((1,), (1, 3), (1, 2, 5)):
                found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
                inside = [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
                if len(inside) >= 3:
                    most = max(int(abs(self.end - self.begin) / 30), 2)
                    return inside[:: math.ceil(len(inside) / min(most, 6))]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (factor * step) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, first + 7) if step * i <= self.high + 1e-9 * step]


def axis(values: Sequence[float], begin: float, end: float, log: bool = False) -> Axis:
    """An axis with room for all values."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 1.0)
    if log:
        return Axis(low / 1.15, high * 1.15, begin, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return Axis(low - room, high + room, begin, end)


def lines(
    title: str, series: Sequence[Series], x_label: str, y_label: str, *, log_x: bool = False, log_y: bool = False
) -> str:
    """Lines with bands, each named at its right end; what has no place on the axis stands beside it."""
    slots = list(dict.fromkeys(name for one in series for name in one.beside))
    end = WIDTH - RIGHT - SLOT * len(slots) - (SLOT / 3 if slots else 0)
    across = axis([x for one in series for x, _ in one.points], LEFT, end, log_x)
    up = axis([y for one in series for y in one.heights], HEIGHT - BOTTOM, TOP, log_y)
    places = {name: WIDTH - RIGHT - SLOT * (i + 0.5) for i, name in enumerate(reversed(slots))}
    below = [HEIGHT - BOTTOM + 18 + LINE * ((i + 1) % 2) for i in range(len(slots))]
    shapes = [
        f'<text class="tick" x="{places[name]}" y="{y}" text-anchor="middle">{escape(name)}</text>'
        for name, y in zip(slots, below)
    ]
    shapes += [_band(one, across, up) for one in series if one.band]
    for i, one in enumerate(series):
        shapes += _line(one, across, up)
        aside = 5 * (i - (len(series) - 1) / 2)  # so that none hides another
        for name, (y, low, high) in one.beside.items():
            x = round(places[name] + aside, 1)
            shapes.append(f'<path class="curve {_color(one.color)}" d="M{x} {up(low)}V{up(high)}"/>')
            shapes.append(_dot(x, up(y), one.color, f"{one.name}, {name}: {y:.3g}"))
    shapes += _end_labels([(one.name, up(one.end), one.color) for one in series])
    return _framed(title, across, up, x_label, y_label, shapes)


def _band(one: Series, across: Axis, up: Axis) -> str:
    there = [f"{across(x)},{up(high)}" for x, _, high in one.band]
    back = [f"{across(x)},{up(low)}" for x, low, _ in reversed(one.band)]
    return f'<polygon class="band {_color(one.color)}" points="{" ".join(there + back)}"/>'


def _line(one: Series, across: Axis, up: Axis) -> list[str]:
    if not one.points:
        return []
    path = " ".join(f"{across(x)},{up(y)}" for x, y in one.points)
    last = escape(f"{one.name}: {one.points[-1][1]:.3g}")
    line = f'<polyline class="curve {_color(one.color)}" points="{path}"><title>{last}</title></polyline>'
    return [line, *(_dot(across(x), up(y), one.color) for x, y in one.points if len(one.points) < 6)]


def _dot(x: float, y: float, color: int | None, title: str = "", radius: int = 3) -> str:
    """A circle, and a square from the third round of colors on."""
    shown = f"<title>{escape(title)}</title>" if title else ""
    kind = f'class="dot {_color(color)}"'
    if (color or 0) < 2 * COLORS:
        return f'<circle {kind} cx="{x}" cy="{y}" r="{radius}">{shown}</circle>'
    corner, side = f'x="{round(x - radius, 1)}" y="{round(y - radius, 1)}"', 2 * radius
    return f'<rect {kind} {corner} width="{side}" height="{side}">{shown}</rect>'


def _color(number: int | None) -> str:
    """Classes that the page gives a color and, in later rounds of the colors, other dashes and dots."""
    if number is None:
        return "ref"
    return f"c{number % COLORS}" + (f" again{number // COLORS}" if number >= COLORS else "")


def points(
    title: str,
    named: Sequence[tuple[str, float, float, int | None]],
    x_label: str,
    y_label: str,
    *,
    log_x: bool = False,
) -> str:
    """Points (name, x, y, color); names stand beside them as far as there is room, those of the first points first."""
    across = axis([x for _, x, _, _ in named], LEFT + 8, WIDTH - RIGHT, log_x)
    up = axis([y for _, _, y, _ in named], HEIGHT - BOTTOM, TOP)
    places = [(across(x), up(y)) for _, x, y, _ in named]
    shapes = [
        _dot(at, height, color, f"{name}: {y:.4g}", radius=5)
        for (name, _, y, color), (at, height) in zip(named, places)
    ]
    taken = [Box(at - 4, height - 4, at + 4, height + 4) for at, height in places]
    for (name, _, _, color), (at, height) in zip(named, places):
        free = (box for box in _beside(at, height, _short(name)) if not any(box.meets(other) for other in taken))
        box = next(free, None)
        if box is not None:
            taken.append(box)
            text = f'x="{round(box.left, 1)}" y="{round(box.bottom - 3, 1)}">{escape(_short(name))}'
            shapes.append(f'<text class="{_color(color)}" {text}</text>')
    return _framed(title, across, up, x_label, y_label, shapes)


@dataclass(frozen=True)
class Box:
    """A rectangle of the drawing."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        apart = self.right <= other.left or other.right <= self.left or self.bottom <= other.top
        return not (apart or other.bottom <= self.top)


def _beside(x: float, y: float, text: str) -> list[Box]:
    """Places for the name of a point inside the drawing: right of it, left of it, and a line above or below."""
    width = LETTER * len(text)
    corners = [(left, y + shift) for shift in (0, LINE, -LINE) for left in (x + 8, x - 8 - width)]
    boxes = [Box(left, middle - LINE / 2, left + width, middle + LINE / 2) for left, middle in corners]
    return [box for box in boxes if box.left >= LEFT and box.right <= WIDTH and 0 <= box.top <= HEIGHT - BOTTOM - LINE]


def _end_labels(ends: Sequence[tuple[str, float, int | None]]) -> list[str]:
    """Names at the right edge, pushed apart."""
    ordered = sorted(ends, key=lambda end: end[1])
    places: list[float] = []
    for _, height, _ in ordered:
        places.append(max(height + 4, places[-1] + LINE if places else TOP + 4))
    excess = places[-1] - (HEIGHT - 6) if places else 0
    if excess > 0:
        places = [max(place - excess, TOP + 4 + LINE * i) for i, place in enumerate(places)]
    x = WIDTH - RIGHT + 8
    return [
        f'<text class="{_color(color)}" x="{x}" y="{round(place, 1)}">{escape(_short(name))}</text>'
        for (name, _, color), place in zip(ordered, places)
    ]


def _short(name: str) -> str:
    return name if len(name) <= 20 else f"{name[:19]}…"


def _framed(title: str, across: Axis, up: Axis, x_label: str, y_label: str, shapes: Sequence[str]) -> str:
    grid = []
    for tick in up.ticks:
        grid.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick)}" y2="{up(tick)}"/>')
        grid.append(f'<text class="tick" x="{LEFT - 6}" y="{up(tick) + 4}" text-anchor="end">{_number(tick)}</text>')
    for tick in across.ticks:
        at = across(tick)
        grid.append(
            f'<text class="tick" x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_number(tick)}</text>'
        )
    middle, center = (across.begin + across.end) / 2, (TOP + HEIGHT - BOTTOM) / 2
    grid.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    grid.append(
        f'<text class="label" transform="translate(13 {center}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(grid)}{''.join(shapes)}</svg>"
    )


def _number(value: float) -> str:
    """A number at an axis; 1e-4 is shorter than 0.0001."""
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:.4g}"
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")

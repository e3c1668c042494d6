"""Small charts as SVG: lines with bands, and labelled points.  Colors are classes, which the page fills in."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 500, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 150, 14, 44
LINE = 15  # the height of a label
COLORS = 8


@dataclass(frozen=True)
class Series:
    """A line: points (x, y), a band (x, low, high) around it if there is one, and the number of its color."""

    name: str
    points: Sequence[tuple[float, float]]
    color: int
    band: Sequence[tuple[float, float, float]] = ()


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
            found = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
            inside = [tick for tick in found if self.low * 0.999 <= tick <= self.high * 1.001]
            tens = [tick for tick in inside if round(math.log10(tick)) == math.log10(tick)]
            return tens if len(tens) >= 3 else inside
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 5, 10) if (self.high - self.low) / (factor * step) <= 6)
        first = math.ceil(self.low / step - 1e-9)
        return [step * i for i in range(first, first + 7) if step * i <= self.high + 1e-9 * step]


def axis(values: Sequence[float], begin: float, end: float, log: bool = False) -> Axis:
    """An axis with room for all values."""
    finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if log:
        return Axis(low / 1.15, high * 1.15, begin, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    return Axis(low - room, high + room, begin, end)


def lines(title: str, series: Sequence[Series], x_label: str, y_label: str, *, log_x: bool = False) -> str:
    """Lines with bands, each named at its right end."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points] + [y for one in series for band in one.band for y in band[1:]]
    across = axis(xs, LEFT, WIDTH - RIGHT, log_x)
    up = axis(ys, HEIGHT - BOTTOM, TOP)
    shapes = []
    for one in series:
        if one.band:
            there = [f"{across(x)},{up(high)}" for x, _, high in one.band]
            back = [f"{across(x)},{up(low)}" for x, low, _ in reversed(one.band)]
            shapes.append(f'<polygon class="band c{one.color % COLORS}" points="{" ".join(there + back)}"/>')
    for one in series:
        path = " ".join(f"{across(x)},{up(y)}" for x, y in one.points)
        dashed = " dashed" if one.color >= COLORS else ""
        last = f"{one.name}: {one.points[-1][1]:.3g}"
        shapes.append(
            f'<polyline class="curve c{one.color % COLORS}{dashed}" points="{path}"><title>{escape(last)}</title>'
            "</polyline>"
        )
        if len(one.points) < 6:
            shapes += [
                f'<circle class="dot c{one.color % COLORS}" cx="{across(x)}" cy="{up(y)}" r="3"/>'
                for x, y in one.points
            ]
    shapes += _end_labels([(one.name, up(one.points[-1][1]), one.color) for one in series])
    return _framed(title, across, up, x_label, y_label, shapes)


def points(
    title: str, named: Sequence[tuple[str, float, float, int]], x_label: str, y_label: str, *, log_x: bool = False
) -> str:
    """Points (name, x, y, color), each with its name beside it."""
    across = axis([x for _, x, _, _ in named], LEFT + 8, WIDTH - RIGHT, log_x)
    up = axis([y for _, _, y, _ in named], HEIGHT - BOTTOM, TOP)
    shapes: list[str] = []
    taken: list[tuple[float, float]] = []
    for name, x, y, color in sorted(named, key=lambda one: -one[2]):
        at, height = across(x), up(y)
        shapes.append(
            f'<circle class="dot c{color % COLORS}" cx="{at}" cy="{height}" r="5">'
            f"<title>{escape(name)}</title></circle>"
        )
        text = height + 4
        while any(abs(text - other) < LINE - 2 and abs(at - where) < 130 for where, other in taken):
            text += 2
        taken.append((at, text))
        shapes.append(
            f'<text class="c{color % COLORS}" x="{at + 8}" y="{round(text, 1)}">{escape(_short(name))}</text>'
        )
    return _framed(title, across, up, x_label, y_label, shapes)


def _end_labels(ends: Sequence[tuple[str, float, int]]) -> list[str]:
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
        f'<text class="c{color % COLORS}" x="{x}" y="{round(place, 1)}">{escape(_short(name))}</text>'
        for (name, _, color), place in zip(ordered, places)
    ]


def _short(name: str) -> str:
    return name if len(name) <= 22 else f"{name[:21]}…"


def _framed(title: str, across: Axis, up: Axis, x_label: str, y_label: str, shapes: Sequence[str]) -> str:
    number: Callable[[float], str] = lambda value: f"{value:.6g}"
    grid = []
    for tick in up.ticks:
        grid.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick)}" y2="{up(tick)}"/>')
        grid.append(f'<text class="tick" x="{LEFT - 6}" y="{up(tick) + 4}" text-anchor="end">{number(tick)}</text>')
    for tick in across.ticks:
        at = across(tick)
        grid.append(
            f'<text class="tick" x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{number(tick)}</text>'
        )
    middle, center = (LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2
    grid.append(f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    grid.append(
        f'<text class="label" transform="translate(13 {center}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    )
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(grid)}{''.join(shapes)}</svg>"
    )

"""Spanning trees: nodes on a circle, and lines between them."""

from math import cos, pi, sin

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, straight
from pullback.instruments.drawing._example import Example
from pullback.structures.spanning_tree import SpanningTree


def draw_circle(structure: SpanningTree, example: Example) -> Canvas:
    """Edges between nodes on a circle, wider and darker if more probable."""
    (n,) = example.length
    labels = example.items_for(n, "node")
    radius = max(80.0, 17.0 * n)
    angles = [2 * pi * i / max(n, 1) - pi / 2 for i in range(n)]
    places = [(radius * cos(angle), radius * sin(angle)) for angle in angles]
    halves = [None if half is None else ((half + half.mT) / 2).triu(1) for half in (example.point, example.gold)]
    parts = example.parts(*halves)
    canvas = Canvas()
    texts = []
    for part in parts:
        (i, j) = part.index
        ends = [places[i], places[j]]
        title = f"{labels[i]} – {labels[j]}: {part.p:.3f}"
        canvas.part_line(straight(*ends), ends, part, title)
        near, far = ends if (i + j) % 2 == 0 else reversed(ends)  # away from the center, where many edges meet
        texts.append((_between(near, far, 0.3), part, title))
    for (x, y), part, title in texts:  # no line goes over a text
        canvas.part_text(x, y + 4, part.text, part, title)
    for label, angle, (x, y) in zip(labels, angles, places):
        canvas.dot(x, y, 6, "node")
        side = "middle" if abs(cos(angle)) < 0.3 else "start" if cos(angle) > 0 else "end"
        canvas.text(x + 14 * cos(angle), y + 18 * sin(angle) + 5, _text.shorten(label), anchor=side, title=label)
    if n == 0:
        canvas.text(0, 0, "no nodes", "small")
    return canvas


def _between(start: tuple[float, float], end: tuple[float, float], share: float) -> tuple[float, float]:
    return start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])

"""Paths: the graph in layers from left to right, its edges as strong as they are probable."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._bars import draw_bars
from pullback.instruments.drawing._canvas import Canvas, Point, curve
from pullback.instruments.drawing._example import Example
from pullback.instruments.drawing._layers import Layout
from pullback.structures.path import Path

_MOST_NODES, _MOST_EDGES = 30, 80
_DOWN, _RADIUS = 34.0, 13.0


def draw_graph(structure: Path, example: Example) -> Canvas:
    """All edges that are on some path, thin where they are not probable; of a large graph, bars for those that are."""
    pairs = example.pick(structure.edges, 2).tolist()
    edges = [(i, tail, head) for i, (tail, head) in enumerate(pairs) if bool(example.allowed[i])]
    nodes = {node for _, *ends in edges for node in ends} or {int(example.pick(torch.as_tensor(structure.source)))}
    names = _names(example.items, nodes)
    parts = {part.index[0]: part for part in example.parts()}
    if len(nodes) > _MOST_NODES or len(edges) > _MOST_EDGES:
        texts = [f"{names.get(tail, tail)} → {names.get(head, head)}" for tail, head in pairs]
        return draw_bars(list(parts.values()), texts)

    half = max(_RADIUS, *(_text.width(_text.shorten(name, 12), 12) / 2 + 6 for name in names.values()))
    layout = Layout(edges, nodes)
    places = {place: ((half + 34) * place[2], _DOWN * height) for place, height in layout.heights.items()}
    canvas = Canvas()
    texts_at = []
    for edge in edges:
        points = [places[place] for place in layout.way(edge)]
        part = parts.get(edge[0])
        if part is None or not part.is_shown:
            canvas.line(_smooth(points), points, "ghost")
        if part is not None:
            title = f"{names[edge[1]]} → {names[edge[2]]}: {part.p:.3f}"
            end = points[-1][0] - half - 1, points[-1][1]
            canvas.part_line(_smooth([*points[:-1], end]), points, part, title, tip=(end, (1.0, 0.0)))
            texts_at.append((points[1], part, title))
    for (x, y), part, title in texts_at:  # no line goes over a text
        canvas.part_text(x, y + 4, part.text, part, title)
    for node, name in names.items():
        x, y = places[layout.node(node)]
        canvas.box(x - half, y - _RADIUS, 2 * half, 2 * _RADIUS, "node", rx=_RADIUS, title=name)
        canvas.text(x, y + 4, _text.shorten(name, 12), "small", title=name)
    return canvas


def _names(items: Any, nodes: set[int]) -> dict[int, str]:
    """The name of each node in use."""
    if items is None:
        return {node: str(node) for node in sorted(nodes)}
    if not isinstance(items, (Mapping, Sequence)):
        raise TypeError(f"draw: items are a {type(items).__name__}; expected a list or a dictionary of node names.")
    known = items if isinstance(items, Mapping) else dict(enumerate(items))
    missing = sorted(nodes - set(known))
    if missing:
        raise ValueError(
            f"draw: {len(items)} items were given, and none for node {missing[0]}; expected a list by the numbers of "
            f"nodes, which go up to {max(nodes)} here, or a dictionary."
        )
    return {node: _text.clean(known[node]) for node in sorted(nodes)}


def _smooth(points: list[Point]) -> str:
    """A curve through the points, level at both ends and elsewhere as steep as from the point before to that after."""
    slopes = [0.0]
    for (x1, y1), _, (x2, y2) in zip(points, points[1:], points[2:]):
        slopes.append((y2 - y1) / (x2 - x1))
    slopes.append(0.0)
    handles: list[Point] = []
    for ((x1, y1), s1), ((x2, y2), s2) in itertools.pairwise(zip(points, slopes)):
        third = (x2 - x1) / 3
        handles += [(x1 + third, y1 + s1 * third), (x2 - third, y2 - s2 * third), (x2, y2)]
    return curve(points[0], *handles)

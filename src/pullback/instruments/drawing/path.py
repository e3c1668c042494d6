"""Paths: the graph in layers from left to right, its edges as strong as they are probable."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._bars import draw_bars
from pullback.instruments.drawing._canvas import Canvas, curve
from pullback.instruments.drawing._example import Example
from pullback.structures.path import Path

_MOST_NODES, _MOST_EDGES = 30, 80
_ACROSS, _DOWN, _RADIUS = 50.0, 34.0, 13.0
Edge = tuple[int, int, int]  # its number, tail and head
Place = tuple[str, int, int]  # a node, or a point on an edge in some layer


def draw_graph(structure: Path, example: Example) -> Canvas:
    """All edges that are on some path, thin where they are not probable; of a large graph, bars for those that are."""
    pairs = example.pick(structure.edges, 2).tolist()
    edges = [(i, tail, head) for i, (tail, head) in enumerate(pairs) if bool(example.allowed[i])]
    nodes = {node for _, *ends in edges for node in ends} or {int(example.pick(torch.as_tensor(structure.source)))}
    names = _names(example.labels, nodes)
    parts = {part.index[0]: part for part in example.parts()}
    if len(nodes) > _MOST_NODES or len(edges) > _MOST_EDGES:
        texts = [f"{names.get(tail, tail)} → {names.get(head, head)}" for tail, head in pairs]
        return draw_bars(list(parts.values()), texts)

    layers = _layers(edges, nodes)
    columns = _ordered(edges, layers)
    heights = _heights(columns, _neighbors(edges, layers))
    places = {place: (_ACROSS * x, heights[place]) for x, column in enumerate(columns) for place in column}
    canvas = Canvas()
    for edge in edges:
        points = [places[place] for place in _way(edge, layers)]
        part = parts.get(edge[0])
        if part is None or not part.is_shown:
            canvas.line(_smooth(points), points, "ghost")
        if part is not None:
            title = f"{names[edge[1]]} → {names[edge[2]]}: {part.p:.3f}"
            x2, y2 = points[-1]
            canvas.part_line(_smooth(points), points, part, title, tip=((x2 - _RADIUS - 1, y2), (1.0, 0.0)))
            if part.is_shown and part.p <= 0.995:
                middle = points[1]
                kind = "missed" if part.is_missed else part.css
                canvas.text(middle[0], middle[1] + 4, _text.share(part.p), f"share {kind}", title=title)
    for node, name in names.items():
        x, y = places["node", node, 0]
        half = max(_RADIUS, _text.width(_text.shorten(name, 12), 12) / 2 + 6)
        canvas.box(x - half, y - _RADIUS, 2 * half, 2 * _RADIUS, "node", rx=_RADIUS, title=name)
        canvas.text(x, y + 4, _text.shorten(name, 12), "small", title=name)
    return canvas


def _names(labels: Any, nodes: set[int]) -> dict[int, str]:
    """The name of each node in use."""
    if labels is None:
        return {node: str(node) for node in sorted(nodes)}
    if not isinstance(labels, (Mapping, Sequence)):
        raise TypeError(f"draw: labels are a {type(labels).__name__}; expected a list or a dictionary of node names.")
    known = labels if isinstance(labels, Mapping) else dict(enumerate(labels))
    missing = sorted(nodes - set(known))
    if missing:
        raise ValueError(
            f"draw: {len(labels)} labels were given, and none for node {missing[0]}; expected a list by the numbers of "
            f"nodes, which go up to {max(nodes)} here, or a dictionary."
        )
    return {node: _text.clean(known[node]) for node in sorted(nodes)}


# ---- layers


def _layers(edges: list[Edge], nodes: set[int]) -> dict[int, int]:
    """The column of each node: even numbers, so that each edge has a point of its own between its ends."""
    layers = dict.fromkeys(nodes, 0)
    for _ in nodes:  # the longest path has fewer edges than there are nodes
        for _, tail, head in edges:
            layers[head] = max(layers[head], layers[tail] + 2)
    return layers


def _way(edge: Edge, layers: dict[int, int]) -> list[Place]:
    """The places an edge goes through."""
    number, tail, head = edge
    between = [("edge", number, layer) for layer in range(layers[tail] + 1, layers[head])]
    return [("node", tail, 0), *between, ("node", head, 0)]


def _ordered(edges: list[Edge], layers: dict[int, int]) -> list[list[Place]]:
    """The places of each column, in an order with few crossings: each near the middle of its neighbors."""
    columns: list[list[Place]] = [[] for _ in range(max(layers.values()) + 1)]
    for node in sorted(layers):
        columns[layers[node]].append(("node", node, 0))
    for edge in edges:
        for place in _way(edge, layers)[1:-1]:
            columns[place[2]].append(place)
    neighbors = _neighbors(edges, layers)
    rank = {place: i - (len(column) - 1) / 2 for column in columns for i, place in enumerate(column)}
    for sweep in range(8):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            column.sort(key=lambda place: _mean([rank[other] for other in neighbors.get(place, [place])]))
            rank.update({place: i - (len(column) - 1) / 2 for i, place in enumerate(column)})
    return columns


def _neighbors(edges: list[Edge], layers: dict[int, int]) -> dict[Place, list[Place]]:
    found: dict[Place, list[Place]] = {}
    for edge in edges:
        for one, other in itertools.pairwise(_way(edge, layers)):
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
    return found


def _heights(columns: list[list[Place]], neighbors: dict[Place, list[Place]]) -> dict[Place, float]:
    """How far down each place is: level with its neighbors, as far as the places in its column leave room."""
    found = {place: _DOWN * (i - (len(column) - 1) / 2) for column in columns for i, place in enumerate(column)}
    for sweep in range(20):
        for column in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [_mean([found[other] for other in neighbors.get(place, [place])]) for place in column]
            downwards, upwards = list(wanted), list(wanted)
            for i in range(1, len(column)):
                downwards[i] = max(downwards[i], downwards[i - 1] + _DOWN)
                upwards[-1 - i] = min(upwards[-1 - i], upwards[-i] - _DOWN)
            found.update({place: (a + b) / 2 for place, a, b in zip(column, downwards, upwards)})
    return found


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def _smooth(points: list[tuple[float, float]]) -> str:
    """A curve through the points that is level at each of them."""
    handles = []
    for (x1, y1), (x2, y2) in itertools.pairwise(points):
        middle = (x1 + x2) / 2
        handles += [(middle, y1), (middle, y2), (x2, y2)]
    return curve(points[0], *handles)

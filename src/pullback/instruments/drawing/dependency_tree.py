"""Dependency trees: words in a row, with an arc from each head to its modifier above them."""

from typing import NamedTuple

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, curve, straight
from pullback.instruments.drawing._example import Example, Part
from pullback.instruments.drawing._labels import with_labels
from pullback.structures.dependency_tree import DependencyTree

_PORTS = 8.0  # between two arcs that meet at a word
_HIGHEST = 460.0
_FOOT = -20.0


class Arc(NamedTuple):
    """The arc from a head to a modifier, and the words it connects in the order of the sentence."""

    part: Part
    left: int
    right: int
    text: str
    gold_label: str
    title: str

    @property
    def is_root(self) -> bool:
        """Whether it comes from the root; it then stands above one word."""
        return self.part.index[0] == 0

    @property
    def goes_right(self) -> bool:
        """Whether the head stands to the left of its modifier."""
        return self.part.index[0] < self.part.index[1]

    @property
    def span(self) -> tuple[int, bool]:
        """How far it reaches; of two arcs between the same words, the one to the right goes outside."""
        return self.right - self.left, self.goes_right


def draw_arcs(structure: DependencyTree, example: Example) -> Canvas:
    """Arcs above the words, wider and darker if more probable; the root is an arrow from above.

    A labelled arc is as probable as all its labels together, and the likeliest is written on it.
    """
    (n,) = example.length
    words = example.items_for(n, "word", " (the root is not among them)")
    arcs = _arcs(structure, example, words)
    canvas = Canvas()
    centers = _centers(words, arcs)
    for word, x in zip(words, centers):
        canvas.text(x, 0, _text.shorten(word), title=word)
    if n == 0:
        canvas.text(0, 0, "no words", "small")

    ports = _ports(arcs, centers)
    levels = _levels(arcs, ports)
    highest = max(levels, default=0)
    step = min(22.0, _HIGHEST / max(highest, 1))
    tops = [-34 - step * (highest + 1 if arc.is_root else level) for arc, level in zip(arcs, levels)]
    for arc, ends, top in zip(arcs, ports, tops):
        _draw_line(canvas, arc, ends, top)
    for arc, ends, top in zip(arcs, ports, tops):  # no line goes over a text
        _write(canvas, arc, ends, top)
    return canvas


def _arcs(structure: DependencyTree, example: Example, words: list[str]) -> list[Arc]:
    names = example.choices_for(example.event[2], "label of arcs") if structure.labelled else []
    found = []
    for one in with_labels(example, names):
        head, modifier = one.part.index
        left, right = (modifier, modifier) if head == 0 else sorted((head, modifier))
        title = f"{['root', *words][head]} → {words[modifier - 1]}: {one.part.p:.3f}{one.shares}"
        found.append(Arc(one.part, left - 1, right - 1, one.text, one.gold_label, title))
    return found


def _centers(words: list[str], arcs: list[Arc]) -> list[float]:
    """Where the words stand: far enough apart for themselves, for the arcs that meet there and for their labels."""
    meeting = [0] * len(words)
    wanted = [0.0] * len(words)  # between a word and the one before it
    for arc in arcs:
        meeting[arc.left] += 1
        meeting[arc.right] += 1
        if arc.right == arc.left + 1:
            wanted[arc.right] = max(wanted[arc.right], _text.width(arc.text, 12) + 18)
    half = [max(_text.width(_text.shorten(word)), min(4.0 * count, 60.0)) / 2 for word, count in zip(words, meeting)]
    centers: list[float] = []
    for i in range(len(words)):
        centers.append(centers[-1] + max(half[i - 1] + half[i] + 18, wanted[i]) if centers else 0.0)
    return centers


def _ports(arcs: list[Arc], centers: list[float]) -> list[tuple[float, float]]:
    """Where the two ends of each arc are, left and right.

    At a word, arcs to the left come first, the shortest of them outermost, then the root, then arcs to the right, the
    longest first: so arcs that are nested in each other do not cross.
    """
    ends: list[list[float]] = [[0.0, 0.0] for _ in arcs]
    for word, center in enumerate(centers):
        leftward = sorted((a.span, i) for i, a in enumerate(arcs) if not a.is_root and a.right == word)
        root = [i for i, a in enumerate(arcs) if a.is_root and a.right == word]
        rightward = sorted(((a.span, i) for i, a in enumerate(arcs) if not a.is_root and a.left == word), reverse=True)
        meeting = [*((i, 1) for _, i in leftward), *((i, 1) for i in root), *((i, 0) for _, i in rightward)]
        gap = min(_PORTS, 44 / max(len(meeting), 1))
        for at, (i, end) in enumerate(meeting):
            ends[i][end] = center + gap * (at - (len(meeting) - 1) / 2)
    return [(left, right) for left, right in ends]


def _levels(arcs: list[Arc], ports: list[tuple[float, float]]) -> list[int]:
    """How high each arc goes: above every arc within it."""
    levels = [0] * len(arcs)
    for i in sorted((i for i, arc in enumerate(arcs) if not arc.is_root), key=lambda i: ports[i][1] - ports[i][0]):
        within = [
            levels[j]
            for j, arc in enumerate(arcs)
            if j != i and not arc.is_root and ports[i][0] <= ports[j][0] and ports[j][1] <= ports[i][1]
        ]
        levels[i] = 1 + max(within, default=0)
    return levels


def _draw_line(canvas: Canvas, arc: Arc, ends: tuple[float, float], top: float) -> None:
    left, right = ends
    if arc.is_root:
        path = straight((right, top), (right, -24))
        canvas.part_line(path, [(right, top)], arc.part, arc.title, tip=((right, -17), (0, 1)))
        return
    start, end = (left, right) if arc.goes_right else (right, left)
    handle = _FOOT + (top - _FOOT) * 4 / 3  # a cubic reaches three quarters of the way to its handles
    path = curve((start, _FOOT), (start, handle), (end, handle), (end, _FOOT - 4))
    canvas.part_line(path, [(start, _FOOT), (end, top)], arc.part, arc.title, tip=((end, _FOOT + 3), (0, 1)))


def _write(canvas: Canvas, arc: Arc, ends: tuple[float, float], top: float) -> None:
    """The label and the probability of an arc, and the label that gold has instead."""
    x, y = ((ends[0] + ends[1]) / 2, top - 4) if not arc.is_root else (ends[1], top - 5)
    text = f"root {arc.text}".strip() if arc.is_root and not arc.text.lower().startswith("root") else arc.text
    if arc.gold_label:
        canvas.text(x, y - 14, arc.gold_label, "share missed", title=arc.title)
    canvas.part_text(x, y, text, arc.part, arc.title)

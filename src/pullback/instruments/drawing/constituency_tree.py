"""Constituency trees: a tree above the words, and for a mixture of trees a bar for each span."""

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, Point, on_dark, straight
from pullback.instruments.drawing._example import Example
from pullback.instruments.drawing._labels import Labelled, with_labels
from pullback.instruments.drawing._row import Slot, slots, stacked
from pullback.structures.constituency_tree import ConstituencyTree

_STEP = 44.0
_BAR = 22.0


def draw_spans(structure: ConstituencyTree, example: Example) -> Canvas:
    """The tree itself if the point is one, else a bar for each span, darker if more probable."""
    (n,) = example.length
    words = example.items_for(n, "word")
    names = example.choices_for(example.event[2], "label of spans") if structure.labelled else []
    spans = [one for one in with_labels(example, names) if names or one.part.index[0] != one.part.index[1]]
    longest = max((_text.width(one.text, 12) for one in spans), default=0.0)
    row = slots(words, gap=18, least=longest + 22 if names else 0)
    canvas = Canvas()
    for word, slot in zip(words, row):
        canvas.text(slot.center, 0, _text.shorten(word), title=word)
    if n == 0:
        canvas.text(0, 0, "no words", "small")
    draw = _draw_tree if example.is_vertex else _draw_bars
    draw(canvas, spans, row, words)
    return canvas


def _title(one: Labelled, words: list[str]) -> str:
    first, last = one.part.index
    return f"{' '.join(words[first : last + 1])}: {one.part.p:.3f}{one.shares}"


def _by_width(spans: list[Labelled]) -> list[Labelled]:
    """The shortest first, and among equals the most probable."""
    return sorted(spans, key=lambda one: (one.part.index[1] - one.part.index[0], -one.part.p))


# ---- a tree


def _draw_tree(canvas: Canvas, spans: list[Labelled], row: list[Slot], words: list[str]) -> None:
    """A node above its children; spans that gold alone has are dashed, below the words."""
    canvas.is_of_lines = True
    tops: list[Point] = [(slot.center, -18.0) for slot in row]  # of the highest node above each word so far
    nodes = []
    for one in _by_width([one for one in spans if one.part.is_shown]):
        first, last = one.part.index
        children = list(dict.fromkeys(tops[first : last + 1]))
        step = _STEP if last > first else 0.7 * _STEP
        node = sum(x for x, _ in children) / len(children), min(y for _, y in children) - step
        tops[first : last + 1] = [node] * (last + 1 - first)
        nodes.append((one, node))
        for child in children:
            canvas.line(straight(node, child), [node, child], f"line {one.part.css}", stroke_width=1.6)
    for one, (x, y) in nodes:
        canvas.tell(one.part, _title(one, words))
        _draw_node(canvas, one, x, y, _title(one, words))
    missed = _by_width([one for one in spans if one.part.is_missed])
    levels = stacked([(one.part.index[0], one.part.index[1] + 1) for one in missed])
    for one, level in zip(missed, levels):
        left, right, y = row[one.part.index[0]].left + 6, row[one.part.index[1]].right - 6, 20 + 22.0 * level
        path = straight((left, y - 8), (left, y), (right, y), (right, y - 8))
        canvas.part_line(path, [(left, y - 8), (right, y + 6)], one.part, _title(one, words))
        if one.gold_label:
            canvas.text((left + right) / 2, y + 4, one.gold_label, "share missed")


def _draw_node(canvas: Canvas, one: Labelled, x: float, y: float, title: str) -> None:
    if not one.label:
        canvas.dot(x, y, 5, f"fill part {one.part.css}", title=title)
        return
    half = _text.width(one.label, 12) / 2 + 7
    canvas.box(x - half, y - 10, 2 * half, 20, f"fill part {one.part.css}", title=title, rx=10)
    canvas.text(x, y + 4, one.label, "small on-dark", title=title)
    if one.gold_label:
        canvas.text(x + half + 4, y + 4, one.gold_label, "share missed", anchor="start", title=title)


# ---- a mixture of trees


def _draw_bars(canvas: Canvas, spans: list[Labelled], row: list[Slot], words: list[str]) -> None:
    """Short spans are near the words, and longer ones above those they touch."""
    ordered = _by_width(spans)
    ends = [(row[one.part.index[0]].left, row[one.part.index[1]].right) for one in ordered]
    levels: list[int] = []
    for i, (left, right) in enumerate(ends):
        touched = [levels[j] for j in range(i) if ends[j][0] < right and left < ends[j][1]]
        levels.append(1 + max(touched, default=0))
    for one, (left, right), level in zip(ordered, ends, levels):
        y = -20 - (_BAR + 4) * level
        title = _title(one, words)
        canvas.part_box(left + 2, y, right - left - 4, _BAR, one.part, title)
        text = " ≠ ".join(filter(None, (one.text, one.gold_label)))
        canvas.text((left + right) / 2, y + 15, text, f"small {on_dark(one.part)}", title=title)

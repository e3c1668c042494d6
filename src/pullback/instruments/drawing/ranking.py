"""Rankings: a line from each item to its rank, the largest at the top."""

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, curve
from pullback.instruments.drawing._example import Example, Part
from pullback.structures.ranking import Ranking

_STEP, _WIDE = 30.0, 180.0


def draw_ranks(structure: Ranking, example: Example) -> Canvas:
    """Items on the left, ranks on the right; a soft rank ends between two of them."""
    (n,) = example.length
    labels = example.items_for(n, "item")
    values = [float(i + 1) for i in range(n)]
    if structure.values is not None:
        values = example.pick(structure.values, 1)[:n].double().tolist()
    low, high = min(values, default=0.0), max(values, default=0.0)
    gap = (high - low) / max(n - 1, 1) or 1.0

    def at(value: float) -> float:
        return (high - value) / gap * _STEP

    canvas = Canvas()
    for value in set(values):
        canvas.line(f"M{_text.number(_WIDE)} {_text.number(at(value))}h8", [(_WIDE + 8, at(value))], "ghost")
        canvas.text(_WIDE + 14, at(value) + 5, f"{value:g}", "small", anchor="start")
    for i, label in enumerate(labels):
        canvas.text(-10, i * _STEP + 5, _text.shorten(label), anchor="end", title=label)
        rank = float(example.point[i])
        gold = None if example.gold is None else float(example.gold[i])
        agrees = None if gold is None else abs(gold - rank) <= gap / 2
        _draw_line(canvas, i * _STEP, at(rank), Part((i,), 1.0, agrees), f"{label}: {rank:.2f}")
        if gold is not None and not agrees:
            missed = Part((i,), 0.0, True, is_shown=False)
            _draw_line(canvas, i * _STEP, at(gold), missed, f"{label}: {gold:.2f}")
    if n == 0:
        canvas.text(0, 0, "no items", "small", anchor="start")
    return canvas


def _draw_line(canvas: Canvas, start: float, end: float, part: Part, title: str) -> None:
    path = curve((0, start), (_WIDE / 2, start), (_WIDE / 2, end), (_WIDE, end))
    canvas.part_line(path, [(0, start - 8), (_WIDE, end), (_WIDE, end + 8)], part, title)
    canvas.dot(_WIDE, end, 3.5, f"tip {'missed' if part.is_missed else part.css}", title=title)

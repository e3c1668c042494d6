"""Tables: a cell for each pair of a row and a column, and the path of an alignment through them."""

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas, on_dark, straight
from pullback.instruments.drawing._example import SURE, Example, Part
from pullback.structures._structure import Structure
from pullback.structures.alignment import Alignment

_CELL = 30.0
_MOVES = ("match", "down", "right")
_FROM = ((-1, -1), (-1, 0), (0, -1))


def draw_table(structure: Structure, example: Example) -> Canvas:
    """A cell for each pair, darker if more probable."""
    return _draw_cells(example.parts(), _texts(example))


def draw_alignment(structure: Alignment, example: Example) -> Canvas:
    """The cells of an alignment and the path through them; moves are drawn where they are parts."""
    texts = _texts(example)
    if len(example.event) == 2:
        canvas = _draw_cells(example.parts(), texts, has_path=example.is_vertex)
        if example.is_vertex:
            path = sorted((sum(index), index) for index in (example.point > 0.5).nonzero().tolist())
            centers = [_center(i, j) for _, (i, j) in path]
            if len(centers) > 1:
                canvas.line(straight(*centers), centers, "line through", stroke_width=2.0)
        return canvas
    point, gold = example.point.sum(-1), None if example.gold is None else example.gold.sum(-1)
    cells = example.parts(point, gold)
    used = {cell.index for cell in cells}
    canvas = _draw_cells(cells, texts, has_path=True)
    for part in example.parts():
        i, j, move = part.index
        end = _center(i, j)
        down, right = _FROM[move]
        reach = _CELL if (i + down, j + right) in used else _CELL / 2  # a path begins at the edge of its first cell
        start = end[0] + right * reach, end[1] + down * reach
        title = f"{_MOVES[move]} into {texts[0][i]}, {texts[1][j]}: {part.p:.3f}"
        canvas.part_line(straight(start, end), [start, end], part, title)
    return canvas


def _texts(example: Example) -> tuple[list[str], list[str]]:
    rows, columns = example.length
    return example.items_for(rows, "row", " (`choices` are the columns)"), example.choices_for(columns, "column")


def _center(i: int, j: int) -> tuple[float, float]:
    return (j + 0.5) * _CELL, (i + 0.5) * _CELL


def _draw_cells(parts: list[Part], texts: tuple[list[str], list[str]], has_path: bool = False) -> Canvas:
    """The cells; pale ones if a path is to be seen on them."""
    rows, columns = texts
    canvas = Canvas()
    for i, text in enumerate(rows):
        canvas.text(-8, (i + 0.5) * _CELL + 5, _text.shorten(text), anchor="end", title=text)
        for j in range(len(columns)):
            canvas.box(j * _CELL + 1, i * _CELL + 1, _CELL - 2, _CELL - 2, "track")
    lean = any(_text.width(text) > _CELL - 4 for text in columns)
    for j, text in enumerate(columns):
        x = (j + 0.5) * _CELL
        if lean:
            canvas.text(x + 4, -7, _text.shorten(text), anchor="start", turn=-45, title=text)
        else:
            canvas.text(x, -8, text)
    if not rows or not columns:
        canvas.text(0, 16, "an empty table", "small", anchor="start")
    for part in parts:
        i, j = part.index
        title = f"{rows[i]}, {columns[j]}: {part.p:.3f}"
        canvas.part_box(
            j * _CELL + 1, i * _CELL + 1, _CELL - 2, _CELL - 2, part, title, "cell", 0.35 if has_path else 0.9
        )
        if part.is_shown and part.p <= SURE and not has_path:
            css = f"small {on_dark(part)}"
            canvas.text((j + 0.5) * _CELL, (i + 0.5) * _CELL + 4, _text.share(part.p), css, title=title)
    return canvas

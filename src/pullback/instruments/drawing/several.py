"""Several variables in one example: a picture of each."""

from itertools import islice, product

from pullback.instruments.drawing import _text
from pullback.instruments.drawing._canvas import Canvas
from pullback.instruments.drawing._example import Example
from pullback.instruments.drawing._picture import picture
from pullback.instruments.drawing._row import LINE
from pullback.structures.independent import Independent
from pullback.structures.product import Product

_MOST = 24


def draw_copies(structure: Independent, example: Example) -> Canvas:
    """A picture of each copy, under its number; the same items for all, or a list of them for each."""
    sizes = example.event[: structure.dims]
    copies = list(islice(product(*(range(size) for size in sizes)), _MOST))
    items = example.items
    is_list = isinstance(items, (list, tuple)) and bool(items) and isinstance(items[0], (list, tuple))
    if is_list and len(items) != sizes[0]:
        raise ValueError(f"draw: {len(items)} lists of items were given; expected one for each of {sizes[0]} copies.")
    pictures = []
    for copy in copies:
        own = items[copy[0]] if is_list else items
        one = example.inner(
            structure.structure, example.points, example.golds, index=(*example.index, *copy), items=own
        )
        pictures.append((_text.listed(copy), picture(structure.structure, one)))
    return _side_by_side(pictures, sizes.numel() - len(copies))


def draw_blocks(structure: Product, example: Example) -> Canvas:
    """A picture of each block, under its name."""
    count = len(structure.structures)
    given = {}
    for argument, each in (("items", example.items), ("choices", example.choices)):
        if each is not None and (isinstance(each, str) or len(each) != count):
            raise ValueError(f"draw: {argument} of a product are a list with one entry for each of {count} blocks.")
        given[argument] = each or [None] * count
    golds = [None] * count if example.golds is None else structure.unpack(example.golds)
    pictures = []
    for i, (block, point) in enumerate(zip(structure.structures, structure.unpack(example.points))):
        one = example.inner(block, point, golds[i], items=given["items"][i], choices=given["choices"][i])
        pictures.append((one.kind, picture(block, one)))
    return _side_by_side(pictures)


def _side_by_side(pictures: list[tuple[str, Canvas]], left_out: int = 0) -> Canvas:
    """Pictures in rows that are not too long, each with a heading."""
    canvas = Canvas()
    x = y = 0.0
    for heading, one in pictures:
        left, _, right, _ = one.bounds
        if x > 0 and x + right - left > LINE:
            x, y = 0.0, canvas.bounds[3] + 26
        canvas.text(x, y, heading, "small heading", anchor="start")
        canvas.place(one, x, y + 12)
        x += max(right - left, _text.width(heading, 13)) + 36
    if left_out:
        canvas.text(0, canvas.bounds[3] + 26, f"and {left_out} more", "small", anchor="start")
    return canvas

"""Drawings of structures."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pullback.instruments.drawing import Canvas, Drawing, Example, framed, picture
from pullback.instruments.drawing.constituency_tree import draw_spans
from pullback.instruments.drawing.dependency_tree import draw_arcs
from pullback.instruments.drawing.items import draw_choice, draw_highlights
from pullback.instruments.drawing.path import draw_graph
from pullback.instruments.drawing.ranking import draw_ranks
from pullback.instruments.drawing.segmentation import draw_segments
from pullback.instruments.drawing.several import draw_blocks, draw_copies
from pullback.instruments.drawing.spanning_tree import draw_circle
from pullback.instruments.drawing.table import draw_alignment, draw_table
from pullback.instruments.drawing.tags import draw_pairs, draw_tags
from pullback.structures._structure import Structure
from pullback.structures.alignment import Alignment
from pullback.structures.binary import Binary
from pullback.structures.categorical import Categorical
from pullback.structures.chain import Chain
from pullback.structures.constituency_tree import ConstituencyTree
from pullback.structures.dependency_tree import DependencyTree
from pullback.structures.independent import Independent
from pullback.structures.matching import Matching
from pullback.structures.path import Path
from pullback.structures.product import Product
from pullback.structures.ranking import Ranking
from pullback.structures.segmentation import Segmentation
from pullback.structures.spanning_tree import SpanningTree
from pullback.structures.subset import Subset
from pullback.structures.tagging import Tagging

PICTURES: dict[type[Structure], Callable[[Any, Example], Canvas]] = {
    Categorical: draw_choice,
    Binary: draw_highlights,
    Subset: draw_highlights,
    Ranking: draw_ranks,
    Chain: draw_pairs,
    Tagging: draw_tags,
    Path: draw_graph,
    Segmentation: draw_segments,
    Alignment: draw_alignment,
    DependencyTree: draw_arcs,
    ConstituencyTree: draw_spans,
    SpanningTree: draw_circle,
    Matching: draw_table,
    Independent: draw_copies,
    Product: draw_blocks,
}
for _structure, _function in PICTURES.items():
    picture.register(_structure)(_function)


def draw(
    structure: Structure,
    point: Tensor,
    items: Any = None,
    *,
    gold: Tensor | None = None,
    choices: Any = None,
    index: int | tuple[int, ...] | None = None,
    threshold: float = 0.01,
    title: str | None = None,
) -> Drawing:
    """A picture of one point of a structure: of its best vertex, its marginals, a SparseMAP solution.

    point: probabilities (*event) of the parts, or a batch (*batch, *event) of which `index` says what to draw.
    items: what is drawn in a row: words without the root, items, nodes; for tables, the rows.  Their numbers, if not
    given.  Of a `product`, a list with the items of each block.
    gold: a vertex shaped like `point`, to compare with.  What both have is green and solid, what only gold has is
    orange and dashed, what gold does not have is dotted, or has no outline.
    choices: what each item, arc, span or segment has one of: tags, labels; for tables, the columns.  Their numbers, if
    not given.
    threshold: parts that are less probable are not drawn, and padding never is.
    title: what the drawing is called, for readers who cannot see it.

    >>> import torch
    >>> from pullback import DependencyTree
    >>> heads = torch.tensor([2, 0, 2])
    >>> draw(DependencyTree(), DependencyTree.arcs(heads), ["she", "reads", "books"])
    <Drawing: DependencyTree over she reads books>
    """
    batch = _check(structure, point, gold, threshold)
    chosen = _index(index, batch, point)
    example = Example(structure, point, chosen, gold, items, choices, threshold)
    canvas = picture(structure, example)
    return framed(canvas, title or _title(example), has_gold=gold is not None)


def _check(structure: Structure, point: Tensor, gold: Tensor | None, threshold: float) -> torch.Size:
    """The shape of the batch."""
    if not isinstance(structure, Structure):
        raise TypeError(f"draw: a {type(structure).__name__} was given; expected a structure and one of its points.")
    name = type(structure).__name__
    for what, given in (("point", point), ("gold", gold)):
        if given is not None and not isinstance(given, Tensor):
            raise TypeError(f"draw: the {what} is a {type(given).__name__}; expected a tensor.")
    if point.dim() < structure.event_dims or 0 in point.shape[point.dim() - structure.event_dims :]:
        raise ValueError(
            f"draw: the point has shape {tuple(point.shape)}; the parts of {name} have {structure.event_dims} "
            "dimension(s), expected at least one part."
        )
    if gold is not None and gold.shape != point.shape:
        raise ValueError(f"draw: gold has shape {tuple(gold.shape)}; expected that of the point, {tuple(point.shape)}.")
    if not 0 < threshold <= 1:
        raise ValueError(f"draw: threshold is {threshold}; expected a probability above 0.")
    structure.restrict(torch.zeros(point.shape))  # shapes, lengths and masks, in the structure's own words
    return structure.batch_shape(point)


def _index(index: int | tuple[int, ...] | None, batch: torch.Size, point: Tensor) -> tuple[int, ...]:
    """A number for each dimension of the batch."""
    if index is None:
        if batch.numel() == 1:
            return (0,) * len(batch)
        raise ValueError(
            f"draw: the point has shape {tuple(point.shape)}, a batch of shape {tuple(batch)}; expected one example, "
            "or index= to say which."
        )
    numbers = tuple(int(number) for number in (index if isinstance(index, (tuple, list)) else (index,)))
    if len(numbers) != len(batch) or not all(-size <= number < size for number, size in zip(numbers, batch)):
        raise IndexError(f"draw: index is {index!r} for a batch of shape {tuple(batch)}; expected one of its examples.")
    return numbers


def _title(example: Example) -> str:
    """What the drawing shows: the structure, and the items if they are a list of texts."""
    items = [example.items] if isinstance(example.items, str) else example.items
    if not isinstance(items, (list, tuple)) or not items or not all(isinstance(item, str) for item in items):
        return example.kind
    return f"{example.kind} over {' '.join(items)}"

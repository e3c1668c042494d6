"""Vertices as lists of the parts they use, and back."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Index = tuple[int, ...]


def list_parts(vertices: Tensor, event_dims: int, read: Callable[[Tensor], list[Any]]) -> list[Any]:
    """What `read` makes of one vertex (*event); of a batch, lists of that, as deep as it has dimensions."""
    if vertices.dim() > event_dims:
        return [list_parts(each, event_dims, read) for each in vertices]
    return read(vertices)


def write_parts(
    who: str,
    listed: Sequence[Any] | Tensor,
    event: Sequence[int],
    index_of: Callable[[Sequence[Any]], Index],
    check: Callable[[Sequence[Any]], None] = lambda items: None,
) -> Tensor:
    """Zeros (*event) with a one at `index_of(item)` for each item, a sequence of numbers; a batch from lists of lists.

    An item that does not fit is refused by `index_of`, items that do not fit together by `check`, and one that is given
    twice in the name of `who`.  Without items there is no vertex, and zeros are left.
    """
    items: Sequence[Any] = as_lists(listed)
    if any(isinstance(each, Sequence) and (not each or isinstance(each[0], Sequence)) for each in items):
        return torch.stack([write_parts(who, each, event, index_of, check) for each in items])
    vertex = torch.zeros(*event)
    for item in items:
        index = index_of(item)
        if vertex[index] == 1:
            raise ValueError(f"{who}: {item[0] if len(item) == 1 else item} is given twice; expected every part once.")
        vertex[index] = 1
    if items:
        check(items)
    return vertex


def as_lists(listed: Any) -> Any:
    """Numbers and lists as they are; tensors, also those inside lists, as lists of numbers."""
    if isinstance(listed, Tensor):
        return listed.tolist()
    if isinstance(listed, list | tuple) and any(isinstance(each, list | tuple | Tensor) for each in listed):
        return type(listed)(as_lists(each) for each in listed)
    return listed


def are_indices(numbers: Any, sizes: Sequence[int]) -> bool:
    """Whether these are whole numbers, each from 0 to one less than the size beside it."""
    if not isinstance(numbers, Sequence) or len(numbers) != len(sizes):
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return whole and all(0 <= number < size for number, size in zip(numbers, sizes))

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


def write_parts(listed: Sequence[Any], event: Sequence[int], index_of: Callable[[Sequence[Any]], Index]) -> Tensor:
    """Zeros (*event) with a one at `index_of(item)` for each item, a sequence of numbers; a batch from lists of lists.

    An item that does not fit is refused by `index_of`.
    """
    if any(isinstance(each, Sequence) and (not each or isinstance(each[0], Sequence)) for each in listed):
        return torch.stack([write_parts(each, event, index_of) for each in listed])
    vertex = torch.zeros(*event)
    for item in listed:
        vertex[index_of(item)] = 1
    return vertex


def are_indices(numbers: Any, sizes: Sequence[int]) -> bool:
    """Whether these are whole numbers, each from 0 to one less than the size beside it."""
    if not isinstance(numbers, Sequence) or len(numbers) != len(sizes):
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    return whole and all(0 <= number < size for number, size in zip(numbers, sizes))

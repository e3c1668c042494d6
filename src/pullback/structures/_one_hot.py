"""Choices given as indices, turned into zeros and ones, and back."""

import torch
from torch import Tensor

from pullback.operators._check import check
from pullback.operators._register import is_plain_eager


def one_hot(who: str, name: str, indices: Tensor, count: int) -> Tensor:
    """A one at each index, among `count` places: (..., count); zeros alone for −1, which is no choice.

    Raises in the name of `who` unless `indices`, the argument `name`, are whole numbers from −1 to count − 1.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{who}: there are {count!r} places for {name}; expected an integer ≥ 1.")
    if not isinstance(indices, Tensor):
        raise TypeError(f"{who}: {name} are a {type(indices).__name__}; expected a tensor of integers.")
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == torch.bool:
        raise TypeError(f"{who}: {name} have dtype {indices.dtype}; expected integers.")
    inside = (indices >= -1) & (indices < count)
    expected = f"expected between -1 and {count - 1}, where -1 is none"
    if not is_plain_eager():
        check(inside, f"{who}: {name}{{example}} is out of range; {expected}.")
    elif not inside.all():
        place = (~inside).nonzero()[0].tolist()
        raise ValueError(f"{who}: {name}{place or ''} is {indices[tuple(place)].item()}; {expected}.")
    places = torch.arange(count, device=indices.device)
    return (indices.unsqueeze(-1) == places).to(torch.get_default_dtype())


def chosen_index(parts: Tensor, dim: int = -1) -> Tensor:
    """The index along `dim` of the first of `parts` that is not 0; −1 where all are."""
    found = parts != 0
    return torch.where(found.any(dim), found.to(torch.uint8).argmax(dim), -1)

"""Tensors that depend on sizes alone."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from pullback.operators._register import is_plain_eager

Make = Callable[[int, torch.device | None], tuple[Tensor, ...]]


def constant(make: Make) -> Make:
    """`make(size, device)`, whose answers are kept for the next call; nobody may write into them.

    A compiler or a mode that watches gets new ones: what they make is good for them alone.
    """

    @functools.lru_cache(64)
    def kept(size: int, device: torch.device | None) -> tuple[Tensor, ...]:
        with torch.inference_mode(False):
            return make(size, device)

    return lambda size, device: (kept if is_plain_eager() else make)(size, device)

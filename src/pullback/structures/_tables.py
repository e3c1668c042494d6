"""Tables of scores that belong to a structure, such as those of transitions: checks, shapes, expectations."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pullback.structures._checks import broadcasts


def check_table(structure: str, name: str, given: Any, dims: int) -> None:
    """Raises where a table is not a floating tensor (..., t), or (..., t, t) if it has two `dims`."""
    if not isinstance(given, Tensor) or not given.is_floating_point():
        found = f"of dtype {given.dtype}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise TypeError(f"{structure}: {name} is {found}; expected a floating tensor.")
    if given.dim() < dims or (dims == 2 and given.shape[-1] != given.shape[-2]):
        expected = "(..., t, t)" if dims == 2 else "(..., t)"
        raise ValueError(f"{structure}: {name} has shape {tuple(given.shape)}; expected {expected}.")


def fit_table(structure: str, name: str, given: Tensor, scores: Tensor, shape: Sequence[int]) -> Tensor:
    """The table on the device and in the precision of the scores, half precision kept in single.

    Raises where it does not broadcast to `shape`.
    """
    if given.shape[-1] != shape[-1] or not broadcasts(given.shape, torch.Size(shape)):
        raise ValueError(
            f"{structure}: {name} has shape {tuple(given.shape)} for scores of shape {tuple(scores.shape)}; "
            f"expected one that broadcasts to {tuple(shape)}."
        )
    return given.to(scores.device, torch.promote_types(scores.dtype, torch.float32))


def expected(scores: Tensor, share: Tensor) -> Tensor:
    """Σ scores · share over the last dimension; where the share is 0, the score may be −∞."""
    return (scores.masked_fill(share == 0, 0) * share).sum(-1)

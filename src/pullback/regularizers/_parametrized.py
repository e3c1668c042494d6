"""Regularizers with a number of their own that may be trained."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pullback.regularizers._options import Number, now
from pullback.regularizers._regularizer import MirrorMap
from pullback.structures._structure import Structure


class Parametrized(MirrorMap, nn.Module):
    """A regularizer with one number, or a tensor that broadcasts to the batch: the attribute that `parameter` names."""

    parameter: ClassVar[str]

    @property
    def _given(self) -> Number:
        given: Number = getattr(self, self.parameter)
        return given

    @property
    def _now(self) -> float | Tensor:
        return now(f"{type(self).__name__}: {self.parameter}", self._given)

    @property
    def _limits(self) -> tuple[Any, ...]:
        """What else has to agree for two of them to predict the same."""
        return ()

    def _per_example(self, structure: Structure, like: Tensor) -> Tensor:
        """The number of each example, ready to meet points."""
        number = torch.as_tensor(self._now, dtype=like.dtype, device=like.device)
        return number if number.dim() == 0 else structure.widen(number)

    def extra_repr(self) -> str:
        given = self._given
        return f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"{given}"

    def __eq__(self, other: object) -> bool:
        """Of the same number, or of the same tensor: two tensors may change apart."""
        if not isinstance(other, Parametrized) or type(self) is not type(other):
            return NotImplemented
        mine, theirs = self._given, other._given
        numbers = not (isinstance(mine, Tensor) or isinstance(theirs, Tensor))
        return self._limits == other._limits and (mine is theirs or (numbers and bool(mine == theirs)))

    def __hash__(self) -> int:
        return hash(type(self))

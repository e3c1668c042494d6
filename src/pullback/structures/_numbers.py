"""Numbers of parts, made ready to compute with."""

from torch import Tensor

from pullback.operators._register import HALF


def without_mean(numbers: Tensor, usable: Tensor | None, dims: tuple[int, ...]) -> Tensor:
    """`numbers` less their mean over `dims`, of parts that are usable; the others are 0, before and after."""
    if usable is None:
        return numbers - numbers.mean(dims, keepdim=True)
    usable = usable.expand(numbers.shape)
    count = usable.sum(dims, keepdim=True).clamp_min(1)
    return (numbers - numbers.sum(dims, keepdim=True) / count).masked_fill(~usable, 0)


def in_single(scores: Tensor) -> Tensor:
    """`scores`, those of half precision in float32."""
    return scores.float() if scores.dtype in HALF else scores

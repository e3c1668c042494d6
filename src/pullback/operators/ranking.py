"""The operators of rankings: scores and values (*batch, n), of which an example has the first `lengths`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.operators._kernel_operator import EXAMPLES, kernel_operator


def _refusal(example: str, scores: Any, values: Any, lengths: Any, *_: Any) -> str:
    if not np.isfinite(scores[:lengths]).all():
        return (
            f"Ranking: the scores of {example} contain NaN or an infinity; expected numbers: every item has a rank, "
            "and padding is what `lengths` are for."
        )
    return f"Ranking: the values of {example} contain NaN or an infinity; expected numbers."


_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "Ranking", "moves": 2}


def _sorting(scores: Any, *_: Any) -> float:
    return float(30 * scores.shape[-1])


argmax = kernel_operator(
    "ranking_argmax(scores[n], values[n]: float64, lengths[] <= n) -> vertex[n]",
    kernels.ranking.argmax,
    work=_sorting,
    **_OPTIONS,
)


# ---- projections


def _project(scores: Any, values: Any, lengths: Any, entropic: bool, *rest: Any) -> int:
    kernel = kernels.ranking.project_entropic if entropic else kernels.ranking.project
    return kernel(scores, values, lengths, *rest)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, lengths, ctx.entropic = inputs
    point, *order = output
    ctx.save_for_backward(point, lengths, *order)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return None, None, None, None
    differentiate: Callable[..., Any] = _gradients if torch.is_grad_enabled() else _backward
    of_scores, of_values = differentiate(gradient, *ctx.saved_tensors, ctx.entropic)
    return of_scores, of_values, None, None


def _gradients(
    gradient: Tensor,
    point: Tensor,
    lengths: Tensor | None,
    order: Tensor,
    places: Tensor,
    blocks: Tensor,
    entropic: bool,
) -> tuple[Tensor, Tensor]:
    """What `project_backward` computes, in operations that can be differentiated again; the formulas are there."""
    order, places, is_fixed = order.long(), places.long(), blocks < 0
    blocks = torch.where(is_fixed, ~blocks, blocks).long()
    inside = _inside(point, lengths)
    weight = (point.gather(-1, order) if entropic else torch.ones_like(point)).double() * inside
    given = gradient.gather(-1, order).double().masked_fill(~inside, 0)
    zeros = torch.zeros_like(weight)
    weights = zeros.scatter_add(-1, blocks, weight).gather(-1, blocks)
    total = zeros.scatter_add(-1, blocks, weight * given).gather(-1, blocks)
    mean = total / weights.masked_fill(weights == 0, 1)
    of_scores = zeros.scatter(-1, order, (weight * (given - mean)).masked_fill(is_fixed, 0)).to(gradient.dtype)
    return of_scores, zeros.scatter(-1, places, mean)


def _inside(point: Tensor, lengths: Tensor | None) -> Tensor:
    positions = torch.arange(point.shape[-1], device=point.device)
    return positions < (point.shape[-1] if lengths is None else lengths.unsqueeze(-1))


_backward = kernel_operator(
    "ranking_backward(gradient[n], point[n], lengths[] <= n, order[n]: int32, places[n]: int32, blocks[n]: int32, "
    "bool entropic) -> of_scores[n], of_values[n]: float64",
    kernels.ranking.project_backward,
    work=lambda gradient, *_: 5.0 * gradient.shape[-1],
)

project = kernel_operator(
    "ranking_project(scores[n], values[n]: float64, lengths[] <= n, bool entropic) "
    "-> point[n], order[n]: int32, places[n]: int32, blocks[n]: int32",
    _project,
    work=lambda scores, *_: 40.0 * scores.shape[-1],
    save=_save,
    backward=_differentiate,
    **_OPTIONS,
)
"""The projection onto the permutahedron of the values: the nearest point, or where `entropic`, that of least entropy.

Differentiable in scores and values.  It gives the point; the order of the scores, the places of the values in order,
and where the block of each begins, the complement of it if the block is fixed.
"""


def _save_logarithms(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs, *output[1:])
    ctx.set_materialize_grads(False)


def _differentiate_logarithms(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    """g − softmax(s) Σ g over the block for its scores, softmax(w) Σ g for its values."""
    if gradient is None:
        return None, None, None
    scores, values, lengths, order, places, blocks = ctx.saved_tensors
    order, places, is_fixed = order.long(), places.long(), blocks < 0
    blocks = torch.where(is_fixed, ~blocks, blocks).long()
    inside = _inside(scores, lengths)
    given = gradient.gather(-1, order).double().masked_fill(~inside, 0)
    zeros = torch.zeros_like(given)
    total = zeros.scatter_add(-1, blocks, given).gather(-1, blocks)
    of_scores = (given - total * _softmax_of_blocks(scores.gather(-1, order), blocks, inside)).masked_fill(is_fixed, 0)
    of_values = total * _softmax_of_blocks(values.gather(-1, places), blocks, inside)
    return zeros.scatter(-1, order, of_scores).to(scores.dtype), zeros.scatter(-1, places, of_values), None


def _softmax_of_blocks(numbers: Tensor, blocks: Tensor, inside: Tensor) -> Tensor:
    numbers = numbers.double().masked_fill(~inside, 0)
    zeros = torch.zeros_like(numbers)
    top = zeros.scatter_reduce(-1, blocks, numbers.detach(), "amax", include_self=False).gather(-1, blocks)
    powers = (numbers - top).exp()
    return powers / zeros.scatter_add(-1, blocks, powers).gather(-1, blocks)


project_logarithms = kernel_operator(
    "ranking_project_logarithms(scores[n], values[n]: float64, lengths[] <= n) "
    "-> point[n], order[n]: int32, places[n]: int32, blocks[n]: int32",
    kernels.ranking.project_logarithms,
    work=lambda scores, *_: 60.0 * scores.shape[-1],
    save=_save_logarithms,
    backward=_differentiate_logarithms,
    **_OPTIONS,
)
"""The logarithm of `project` where it is entropic and the values are the exponentials of those given, of any size."""


def _example_of_backward() -> tuple[Any, ...]:
    scores = torch.linspace(1, -1, 8, dtype=torch.float64).reshape(2, 4)
    lengths = torch.tensor([4, 2])
    point, *order = project(scores, scores.square(), lengths, False)
    return scores, point, lengths, *order, False


EXAMPLES["ranking_backward"] = _example_of_backward

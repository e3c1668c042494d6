"""The operators of the simplex: sparsemax, 1.5-entmax and α-entmax of rows."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._kernel_operator import EXAMPLES, kernel_operator

NOT_NUMBERS = "Categorical: the scores of {example} contain NaN or +inf; expected numbers or -inf."
NO_CHOICE = (
    "Categorical: {example} has no category to choose from within its length and mask; expected at least one score "
    "above -inf."
)


def _refusal(example: str, scores: Any, *_: Any) -> str:
    return (NO_CHOICE if (scores < np.inf).all() else NOT_NUMBERS).format(example=example)


def _work(rows: Any, *_: Any) -> float:
    return float(rows.shape[-1])


sparsemax = projection_operator(
    "sparsemax(scores[n]) -> point[n]",
    kernels.simplex.sparsemax,
    jacobian=kernels.simplex.sparsemax_backward,
    most=None,
    keeps="point",
    work=_work,
    refusal=_refusal,
)


# ---- entmax: the Jacobian depends on the point, and has derivatives of its own


def _differentiate_entmax15_backward(ctx: Any, of_output: Tensor) -> tuple[Tensor, Tensor]:
    """The backward is r (g − ⟨r, g⟩ / Σr) with r = √point: linear in g, and a function of the point through r."""
    point, gradient = ctx.saved_tensors
    root = point.sqrt()
    total = root.sum(-1, keepdim=True)
    above = gradient - (root * gradient).sum(-1, keepdim=True) / total
    of_root = above * (of_output - (root * of_output).sum(-1, keepdim=True) / total)
    return torch.where(point > 0, of_root / (2 * root), 0), _entmax15_backward(point, of_output)


_entmax15_backward = kernel_operator(
    "entmax15_backward(point[n], gradient[n]) -> product[n]",
    kernels.simplex.entmax15_backward,
    work=_work,
    save=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    backward=_differentiate_entmax15_backward,
)

entmax15 = kernel_operator(
    "entmax15(scores[n]) -> point[n]",
    kernels.simplex.entmax15,
    work=_work,
    refusal=_refusal,
    save=lambda ctx, inputs, output: ctx.save_for_backward(output),
    backward=lambda ctx, gradient: _entmax15_backward(*ctx.saved_tensors, gradient),
)


def _entmax_gradients(point: Tensor, alpha: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """What `entmax_backward` computes, in operations that can be differentiated again; the formulas are there."""
    kept = point > 0
    p = point.double().where(kept, 1)
    rate = -p.log()
    t = (alpha - 1).unsqueeze(-1) * rate
    weight = (t - rate).exp().where(kept, 0)
    above = gradient - (weight * gradient).sum(-1, keepdim=True) / weight.sum(-1, keepdim=True)
    large = t.where(t >= 0.1, 1)
    series = sum(t**k / math.factorial(k + 2) for k in range(9))
    phi = torch.where(t < 0.1, series, (large.expm1() - large) / large**2)
    return (weight * above).to(point.dtype), -(p * rate**2 * phi * above).where(kept, 0).sum(-1)


def _differentiate_entmax(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    point, alpha = ctx.saved_tensors
    differentiate = _entmax_gradients if torch.is_grad_enabled() else _entmax_backward
    of_scores, of_alpha = differentiate(point, alpha, gradient)
    return of_scores, of_alpha


_entmax_backward = kernel_operator(
    "entmax_backward(point[n], alpha[]: float64, gradient[n]) -> of_scores[n], of_alpha[]: float64",
    kernels.simplex.entmax_backward,
    work=lambda point, *_: 20.0 * point.shape[-1],
)

entmax = kernel_operator(
    "entmax(scores[n], alpha[]: float64) -> point[n]",
    kernels.simplex.entmax,
    work=lambda scores, *_: 50.0 * scores.shape[-1],
    refusal=_refusal,
    save=lambda ctx, inputs, output: ctx.save_for_backward(output, inputs[1]),
    backward=_differentiate_entmax,
)
"""α-entmax with one α ≥ 1 for each example, differentiable in both."""


def _rows() -> Tensor:
    return torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(2, 4)


_ORDERS = torch.tensor([1.2, 1.7], dtype=torch.float64)
EXAMPLES["entmax"] = lambda: (_rows().requires_grad_(), _ORDERS.clone().requires_grad_())
EXAMPLES["entmax_backward"] = lambda: (_rows().softmax(-1), _ORDERS, _rows())
EXAMPLES["entmax15_backward"] = lambda: (_rows().softmax(-1), _rows().requires_grad_())

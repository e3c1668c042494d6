"""The operators of the simplex: sparsemax, 1.5-entmax and α-entmax of rows (*batch, n)."""

import math
from typing import Any

import torch
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import Kernel, instances, name_example, operator, over_batch


def _run(kernel: Kernel, first: Tensor, *rest: Tensor, work: float) -> None:
    """A kernel over rows, with `work` nanoseconds for each entry, or an error naming the example it failed at."""
    rank = first.dim()
    arrays = [instances(tensor, 1 if tensor.dim() == rank else 0) for tensor in (first, *rest)]
    failed = over_batch(kernel, *arrays, batch=len(arrays[0]), work=work * first.numel())
    if failed >= 0:
        example = name_example(failed, first.shape[:-1])
        raise ValueError(
            f"Categorical: the scores of {example} contain NaN or +inf, or all are -inf; expected one finite score."
        )


def _like_first(first: Tensor, *_: Any) -> Tensor:
    return first.new_empty(first.shape)


def _save_output(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


# ---- sparsemax


def _sparsemax(scores: Tensor) -> Tensor:
    point = torch.empty_like(scores)
    _run(kernels.simplex.sparsemax, scores, point, work=1)
    return point


def _differentiate_sparsemax(ctx: Any, gradient: Tensor) -> Tensor:
    (point,) = ctx.saved_tensors
    return center(point, gradient)


sparsemax = operator(
    "sparsemax(Tensor scores) -> Tensor", _sparsemax, _like_first, save=_save_output, backward=_differentiate_sparsemax
)


def _center(point: Tensor, gradient: Tensor) -> Tensor:
    out = torch.empty_like(point)
    _run(kernels.simplex.sparsemax_backward, point, gradient, out, work=1)
    return out


def _save_point(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _differentiate_center(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
    """The Jacobian of sparsemax is symmetric, and constant wherever it exists."""
    (point,) = ctx.saved_tensors
    return None, center(point, gradient)


center = operator(
    "sparsemax_backward(Tensor point, Tensor gradient) -> Tensor",
    _center,
    _like_first,
    save=_save_point,
    backward=_differentiate_center,
)
"""The gradient minus its mean on the support of the point."""


# ---- 1.5-entmax


def _entmax15(scores: Tensor) -> Tensor:
    point = torch.empty_like(scores)
    _run(kernels.simplex.entmax15, scores, point, work=1)
    return point


def _differentiate_entmax15(ctx: Any, gradient: Tensor) -> Tensor:
    (point,) = ctx.saved_tensors
    return entmax15_backward(point, gradient)


entmax15 = operator(
    "entmax15(Tensor scores) -> Tensor", _entmax15, _like_first, save=_save_output, backward=_differentiate_entmax15
)


def _entmax15_backward(point: Tensor, gradient: Tensor) -> Tensor:
    out = torch.empty_like(point)
    _run(kernels.simplex.entmax15_backward, point, gradient, out, work=1)
    return out


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_entmax15_backward(ctx: Any, of_output: Tensor) -> tuple[Tensor, Tensor]:
    """The backward is r (g − ⟨r, g⟩ / Σr) with r = √point: linear in g, and a function of the point through r."""
    point, gradient = ctx.saved_tensors
    root = point.sqrt()
    total = root.sum(-1, keepdim=True)
    above = gradient - (root * gradient).sum(-1, keepdim=True) / total
    of_root = above * (of_output - (root * of_output).sum(-1, keepdim=True) / total)
    return torch.where(point > 0, of_root / (2 * root), 0), entmax15_backward(point, of_output)


entmax15_backward = operator(
    "entmax15_backward(Tensor point, Tensor gradient) -> Tensor",
    _entmax15_backward,
    _like_first,
    save=_save_inputs,
    backward=_differentiate_entmax15_backward,
)


# ---- α-entmax


def _entmax(scores: Tensor, alpha: Tensor) -> Tensor:
    point = torch.empty_like(scores)
    _run(kernels.simplex.entmax, scores, alpha, point, work=50)
    return point


def _save_entmax(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def _differentiate_entmax(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
    point, alpha = ctx.saved_tensors
    differentiate = _entmax_gradients if torch.is_grad_enabled() else entmax_backward
    of_scores, of_alpha = differentiate(point, alpha, gradient)
    return of_scores, of_alpha


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


entmax = operator(
    "entmax(Tensor scores, Tensor alpha) -> Tensor",
    _entmax,
    _like_first,
    save=_save_entmax,
    backward=_differentiate_entmax,
)
"""α-entmax with one float64 α ≥ 1 for each example, differentiable in both."""


def _entmax_backward(point: Tensor, alpha: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    of_scores, of_alpha = torch.empty_like(point), torch.empty_like(alpha)
    _run(kernels.simplex.entmax_backward, point, alpha, gradient, of_scores, of_alpha, work=20)
    return of_scores, of_alpha


entmax_backward = operator(
    "entmax_backward(Tensor point, Tensor alpha, Tensor gradient) -> (Tensor, Tensor)",
    _entmax_backward,
    lambda point, alpha, gradient: (point.new_empty(point.shape), alpha.new_empty(alpha.shape)),
)

"""The operators of subsets.

Scores are (*batch, n), with −∞ at items that may not be chosen; low and high (*batch) bound the number that are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import Kernel, instances, name_example, no_derivative, operator, over_batch

BATCH = "Tensor scores, Tensor low, Tensor high"


def _run(kernel: Kernel, scores: Tensor, low: Tensor, high: Tensor, *rest: Any, work: float) -> None:
    """A kernel over a batch, with `work` nanoseconds for each, or an error naming the example it failed at."""
    batch = low.numel()
    arrays = (instances(scores, 1), instances(low, 0), instances(high, 0), *rest)
    failed = over_batch(kernel, *arrays, batch=batch, work=work * batch)
    if failed >= 0:
        example, row, least = name_example(failed, low.shape), arrays[0][failed], int(arrays[1][failed])
        if not (row < np.inf).all():
            raise ValueError(f"Subset: the scores of {example} contain NaN or +inf; expected numbers or -inf.")
        allowed = int((row > -np.inf).sum())
        raise ValueError(f"Subset: {example} has {allowed} item(s) to choose from; expected at least {least}.")


def _table_size(scores: Tensor, low: Tensor, high: Tensor) -> float:
    """The entries of an example's table in the sums: items × counts."""
    n = scores.shape[-1]
    return n * float(torch.minimum(high, n - low).max()) if low.numel() else 0.0


def _like_scores(scores: Tensor, *_: Any) -> Tensor:
    return scores.new_empty(scores.shape)


# ---- argmax and projection


def _argmax(scores: Tensor, low: Tensor, high: Tensor) -> Tensor:
    best = torch.empty_like(scores)
    _run(kernels.subset.argmax, scores, low, high, instances(best, 1), work=10 * scores.shape[-1])
    return best


argmax: Callable[..., Tensor] = operator(f"subset_argmax({BATCH}) -> Tensor", _argmax, _like_scores)


def _project(scores: Tensor, low: Tensor, high: Tensor) -> Tensor:
    point = torch.empty_like(scores)
    _run(kernels.subset.project, scores, low, high, instances(point, 1), work=4 * scores.shape[-1])
    return point


def _save_projection(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _differentiate_projection(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    return project_backward(*ctx.saved_tensors, gradient), None, None


project: Callable[..., Tensor] = operator(
    f"subset_project({BATCH}) -> Tensor",
    _project,
    _like_scores,
    save=_save_projection,
    backward=_differentiate_projection,
)


def _project_backward(scores: Tensor, low: Tensor, high: Tensor, point: Tensor, gradient: Tensor) -> Tensor:
    out = torch.empty_like(scores)
    rest = (instances(point, 1), instances(gradient, 1), instances(out, 1))
    _run(kernels.subset.project_backward, scores, low, high, *rest, work=2 * scores.shape[-1])
    return out


def _save_face(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def _differentiate_face(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The Jacobian is symmetric, and constant wherever it exists."""
    return None, None, None, None, project_backward(*ctx.saved_tensors, gradient)


project_backward: Callable[..., Tensor] = operator(
    f"subset_project_backward({BATCH}, Tensor point, Tensor gradient) -> Tensor",
    _project_backward,
    _like_scores,
    save=_save_face,
    backward=_differentiate_face,
)


# ---- sums over all subsets


def _partition_and_marginals(scores: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    value, marginals = scores.new_empty(low.shape), torch.empty_like(scores)
    rest = (instances(value, 0), instances(marginals, 1))
    work = 2 * _table_size(scores, low, high)
    _run(kernels.subset.log_partition, scores, low, high, *rest, work=work)
    return value, marginals


def _save_partition(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.set_materialize_grads(False)


def _differentiate_partition(ctx: Any, of_value: Tensor | None, of_marginals: Tensor | None) -> tuple[Any, ...]:
    """The value's gradient is the marginals; that of the marginals is the Hessian of the value."""
    scores, low, high, marginals = ctx.saved_tensors
    gradient = None
    if of_value is not None:
        gradient = of_value.unsqueeze(-1) * marginals
    if of_marginals is not None:
        curvature = hessian_product(scores, low, high, of_marginals)
        gradient = curvature if gradient is None else gradient + curvature
    return gradient, None, None


partition_and_marginals: Callable[..., tuple[Tensor, Tensor]] = operator(
    f"subset_partition_and_marginals({BATCH}) -> (Tensor, Tensor)",
    _partition_and_marginals,
    lambda scores, low, high: (scores.new_empty(low.shape), scores.new_empty(scores.shape)),
    save=_save_partition,
    backward=_differentiate_partition,
)


def _hessian_product(scores: Tensor, low: Tensor, high: Tensor, direction: Tensor) -> Tensor:
    product = torch.empty_like(scores)
    rest = (instances(direction, 1), instances(product, 1))
    work = 5 * _table_size(scores, low, high)
    _run(kernels.subset.hessian_product, scores, low, high, *rest, work=work)
    return product


hessian_product: Callable[..., Tensor] = operator(
    f"subset_hessian_product({BATCH}, Tensor direction) -> Tensor",
    _hessian_product,
    _like_scores,
    backward=no_derivative,
)


def _sample(scores: Tensor, low: Tensor, high: Tensor, uniforms: Tensor) -> Tensor:
    drawn = scores.new_empty(uniforms.shape)
    work = _table_size(scores, low, high) + 5 * uniforms.numel() / max(1, low.numel())
    rest = (instances(uniforms, 2), instances(drawn, 2))
    _run(kernels.subset.sample, scores, low, high, *rest, work=work)
    return drawn


sample: Callable[..., Tensor] = operator(
    f"subset_sample({BATCH}, Tensor uniforms) -> Tensor",
    _sample,
    lambda scores, low, high, uniforms: scores.new_empty(uniforms.shape),
)
"""Draws (*batch, draws, n), one for each row of uniforms in [0, 1)."""

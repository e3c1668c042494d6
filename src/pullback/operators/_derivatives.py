"""Operators with derivatives: a partition function with its gradient and Hessian, a projection with its Jacobian."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback.operators._kernel_operator import EXAMPLES, Work, kernel_operator
from pullback.operators._signature import Signature, parse
from pullback.operators._threads import Kernel

_ROUNDING = 1e-6  # of a point, in single precision
_LOST = 1e-3  # part of a probability by which it may exceed 1 before it counts as wrong
_TOO_LARGE = (
    "the scores of {example} are so large that their sums have no digits left; expected smaller numbers, and -inf for "
    "parts that are forbidden."
)


def partition_operator(
    signature: str,
    kernel: Kernel,
    *,
    hessian: Kernel,
    keeps: str | None = None,
    work: Work,
    moves: int = 1,
    most: float | None = 1.0,
    **options: Any,
) -> Callable[..., tuple[Tensor, ...]]:
    """A log-partition function with its marginals: `name(scores[…], …) -> value[], marginals[…], …`.

    The gradient of the value is the marginals, that of the marginals the Hessian of the value times a direction:
    hessian(*kept, direction, product, lo, hi), where `keeps` names the inputs and outputs it is given, all the inputs
    by default.  It takes about twice the `work`.  Where the first `moves` inputs have gradients, not the scores alone,
    so many outputs follow the value, and the Hessian is given so many directions and writes so many products.  No
    marginal is above `most`; None where the kernel sees to that itself.
    """
    forward = parse(signature)
    moving = forward.inputs[:moves]
    ranks = {argument.rank for argument in moving}
    kept = keeps.split() if keeps else [argument.name for argument in forward.inputs]
    inputs = (*(forward[name] for name in kept), *(replace(a, name=f"direction_of_{a.name}") for a in moving))
    second = Signature(f"{forward.name}_hessian", inputs, tuple(replace(a, name=f"product_{a.name}") for a in moving))
    keep, recall = _memory(forward, kept)

    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        keep(ctx, inputs, output, *output[1 : 1 + moves])

    def differentiate(ctx: Any, of_value: Tensor | None, *of_outputs: Tensor | None) -> tuple[Any, ...]:
        marginals, of_marginals = ctx.saved_tensors[-moves:], of_outputs[:moves]
        gradients: list[Tensor | None] = [None] * moves
        if of_value is not None:
            wide = {rank: of_value[(...,) + (None,) * rank] for rank in ranks}
            gradients = [wide[a.rank] * m for a, m in zip(moving, marginals)]
        if any(of is not None for of in of_marginals):
            directions = [
                torch.zeros_like(m) if of is None else of.to(m.dtype) for of, m in zip(of_marginals, marginals)
            ]
            products = hessian_product(*recall(ctx), *directions)
            products = (products,) if moves == 1 else products
            gradients = [p if g is None else g + p for g, p in zip(gradients, products)]
        return *gradients, *(None,) * (len(forward.inputs) - moves)

    sums = kernel if most is None else _with_limit(kernel, len(forward.inputs) + 1, most)
    options = {"unsolved": _TOO_LARGE, **options}
    operator = kernel_operator(forward, sums, work=work, save=save, backward=differentiate, moves=moves, **options)
    EXAMPLES[second.name] = _example_of_derivative(forward, second, operator, "direction_of_", again=False)
    hessian_product = kernel_operator(
        second, hessian, work=lambda *arrays: 2 * work(*arrays), backward=_no_derivative, **options
    )
    return operator


def _with_limit(kernel: Kernel, place: int, most: float) -> Kernel:
    """The kernel, where no number of the output at `place` is above `most`, as rounded sums of probabilities may be.

    Numbers above it by more are those of scores so large that sums of them have no digits left.
    """

    def run(*arguments: Any) -> int:
        report = kernel(*arguments)
        *_, lo, hi = arguments
        limited = arguments[place][lo:hi]
        largest = limited.max(initial=0.0)
        if report == -1 and largest > (1 + _LOST) * most:
            return -2 - int(lo + limited.reshape(len(limited), -1).max(1).argmax())
        if largest > most:
            np.minimum(limited, most, out=limited)
        return report

    return run


def _no_derivative(ctx: Any, *gradients: Any) -> Any:
    """The backward of an operator that is a derivative itself, of the highest order there is."""
    raise RuntimeError("pullback has no derivative of this order for this operation.")


def projection_operator(
    signature: str,
    kernel: Kernel,
    *,
    jacobian: Kernel,
    keeps: str | None = None,
    curved: bool = False,
    also: str | None = None,
    most: float | None = 1.0,
    work: Work,
    **options: Any,
) -> Callable[..., Any]:
    """The nearest point of a polytope: `name(scores[…], …) -> point[…], …`.

    Its Jacobian is symmetric, and constant wherever it exists: jacobian(*kept, gradient, product, lo, hi), where
    `keeps` names the inputs and outputs it is given, all of them by default.  It takes about half the `work`.
    curved: the Jacobian is not constant, because distance is not Euclidean; then there is no second derivative.
    also: an input that has a gradient beside the scores, for which the Jacobian writes one more product; that one has
    no derivative.
    most: no number of the point is above it; None where the kernel sees to that itself.
    """
    forward = parse(signature)
    point = forward.outputs[0]
    moving = [0] if also is None else [0, [argument.name for argument in forward.inputs].index(also)]
    kept = keeps.split() if keeps else [argument.name for argument in (*forward.inputs, *forward.outputs)]
    inputs = (replace(point, name="gradient"), *(forward[name] for name in kept))
    products = (replace(point, name="product"), *(replace(forward.inputs[i], name="own_product") for i in moving[1:]))
    second = Signature(f"{forward.name}_backward", inputs, products)
    keep, recall = _memory(forward, kept)
    keep_again, _ = _memory(second, kept)

    def gradient_last(gradient: Any, *rest: Any) -> int:
        return jacobian(*rest[: len(kept)], gradient, *rest[len(kept) :])

    def apply(ctx: Any, gradient: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return (None,) * len(moving)
        found = backward(gradient, *recall(ctx))
        return (found,) if also is None else found

    def differentiate(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
        gradients: list[Tensor | None] = [None] * len(forward.inputs)
        for i, product in zip(moving, apply(ctx, gradient)):
            gradients[i] = product
        return tuple(gradients)

    def differentiate_again(ctx: Any, gradient: Tensor | None, *of_own: Tensor | None) -> tuple[Any, ...]:
        if any(of is not None for of in of_own):
            _no_derivative(ctx)
        return apply(ctx, gradient)[0], *(None,) * len(kept)

    nearest = kernel if most is None else _inside(kernel, len(forward.inputs), most)
    operator = kernel_operator(forward, nearest, work=work, save=keep, backward=differentiate, **options)
    again = also is None and not curved
    EXAMPLES[second.name] = _example_of_derivative(forward, second, operator, "gradient", again)
    backward = kernel_operator(
        second,
        gradient_last,
        work=lambda *arrays: 0.5 * work(*arrays),
        save=keep_again,
        backward=_no_derivative if curved else differentiate_again,
    )
    return operator


def _inside(kernel: Kernel, place: int, most: float) -> Kernel:
    """The kernel, where no number of the point at `place` is above `most` by rounding.

    Numbers above it by more are those of scores so far apart that rounding decides: the search did not converge.
    """

    def run(*arguments: Any) -> int:
        report = kernel(*arguments)
        *_, lo, hi = arguments
        point = arguments[place][lo:hi]
        if report == -1 and not point.max(initial=0.0) <= most:
            largest = point.reshape(len(point), -1).max(1)
            outside = np.flatnonzero(~(largest <= most + _ROUNDING))
            if len(outside):
                return -2 - int(lo + outside[0])
            np.minimum(point, most, out=point)
        return report

    return run


def _memory(signature: Signature, kept: Sequence[str]) -> tuple[Callable[..., None], Callable[[Any], list[Any]]]:
    """What keeps the named inputs and outputs of a call for its derivative, and what gives them back in this order."""
    names = [argument.name for argument in (*signature.inputs, *signature.outputs)]
    places = [names.index(name) for name in kept]
    are_tensors = [signature[name].is_tensor for name in kept]

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any, *more: Tensor) -> None:
        every = (*inputs, *(output if isinstance(output, tuple) else (output,)))
        ctx.save_for_backward(*(every[i] for i, is_tensor in zip(places, are_tensors) if is_tensor), *more)
        ctx.numbers = [every[i] for i, is_tensor in zip(places, are_tensors) if not is_tensor]
        ctx.set_materialize_grads(False)

    def recall(ctx: Any) -> list[Any]:
        tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
        return [next(tensors if is_tensor else numbers) for is_tensor in are_tensors]

    return keep, recall


def _example_of_derivative(
    forward: Signature, second: Signature, operator: Callable[..., Any], moving: str, again: bool
) -> Callable[[], tuple[Any, ...]]:
    """The example of the function itself, what it gives, and directions or a gradient, whose names begin with `moving`.

    again: whether the derivative has one in its turn.
    """

    def example() -> tuple[Any, ...]:
        inputs = tuple(a.detach() if isinstance(a, Tensor) else a for a in EXAMPLES[forward.name]())
        outputs = operator(*inputs)
        every = (*inputs, *(outputs if isinstance(outputs, tuple) else (outputs,)))
        values = dict(zip([argument.name for argument in (*forward.inputs, *forward.outputs)], every))
        for argument in second.inputs:
            if argument.name.startswith(moving):
                like = values[argument.name.removeprefix(moving) or forward.outputs[0].name]
                line = torch.linspace(-1, 1, like.numel(), dtype=like.dtype).reshape(like.shape)
                values[argument.name] = line.requires_grad_(again)
        return tuple(values[argument.name] for argument in second.inputs)

    return example

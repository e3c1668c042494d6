"""Operators made from kernels: any kernel, a partition function with its derivatives, a projection with its Jacobian.

A kernel's arguments are those of the operator's signature: inputs, then outputs, as arrays whose first axis counts the
instances of the batch, then the range of instances to work on.  It returns the first instance it could not solve, −1
if there is none, or −2 − b where the search of instance b did not converge.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback.operators._convergence import ConvergenceError
from pullback.operators._register import register
from pullback.operators._signature import Signature, parse
from pullback.operators._threads import Kernel, over_batch

Work = Callable[..., float]
"""Nanoseconds that an instance takes, from the arrays that the kernel is given."""

Refusal = Callable[..., str]
"""What is wrong with an instance that a kernel could not solve: refusal(its name, *its arrays)."""

_ROUNDING = 1e-6  # of a point, in single precision
_LOST = 1e-3  # part of a probability by which it may exceed 1 before it counts as wrong

_UNSOLVED = "SparseMAP of {example} did not converge; please report its scores."
_TOO_LARGE = (
    "the scores of {example} are so large that their sums have no digits left; expected smaller numbers, and -inf for "
    "parts that are forbidden."
)

EXAMPLES: dict[str, Callable[[], tuple[Any, ...]]] = {}
"""Inputs to try every operator with, by its name."""


def kernel_operator(
    signature: str | Signature,
    kernel: Kernel,
    *,
    work: Work = lambda *arrays: 0.0,
    refusal: Refusal = lambda example, *arrays: f"the kernel refused {example}.",
    unsolved: str = _UNSOLVED,
    structure: str = "",
    out_of_range: str = "",
    example: dict[str, Any] | None = None,
    moves: int = 1,
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The operator of a signature, computed by `kernel`.

    `refusal` says what is wrong with an instance that the kernel refused, and `unsolved` what it could not do with one;
    where a bounded input is out of range, `structure` says whose input it is, and `out_of_range` what to do.  `example`
    fills the inputs of the operator's example that 1 does not suit; the first `moves` of them are scores.  `save` and
    `backward` are those of `torch.library.register_autograd`.
    """
    signature = parse(signature) if isinstance(signature, str) else signature
    compute = _computation(signature, kernel, work, refusal, unsolved, structure or signature.name, out_of_range)
    single = len(signature.outputs) == 1

    def one_example() -> tuple[Any, ...]:
        inputs = signature.example(moves, **(example or {}))
        return (*(given.requires_grad_(backward is not None) for given in inputs[:moves]), *inputs[moves:])

    EXAMPLES.setdefault(signature.name, one_example)
    return register(
        signature.schema,
        compute,
        lambda *arguments: signature.allocate(*arguments)[0] if single else signature.allocate(*arguments),
        save=save,
        backward=backward,
    )


def _computation(
    signature: Signature,
    kernel: Kernel,
    work: Work,
    refusal: Refusal,
    unsolved: str,
    structure: str,
    out_of_range: str,
) -> Callable[..., Any]:
    """What runs at every call; what follows from the signature is worked out at the first one."""
    inputs = signature.inputs
    lead = inputs[0].rank
    ranks = [argument.rank for argument in (*inputs, *signature.outputs)]
    single = len(signature.outputs) == 1

    def compute(*arguments: Any) -> Any:
        outputs = signature.allocate(*arguments)
        arrays = [given.numpy() if isinstance(given, Tensor) else given for given in arguments + outputs]
        batch_shape = arrays[0].shape[: arrays[0].ndim - lead]
        if len(batch_shape) == 1:
            (batch,) = batch_shape
        else:  # the first axis shall count the instances
            batch = math.prod(batch_shape)
            for i, (array, rank) in enumerate(zip(arrays, ranks)):
                if isinstance(array, np.ndarray):
                    arrays[i] = array.reshape(batch, *array.shape[array.ndim - rank :])
        for i, bound in signature.bounds:
            if arrays[i] is None:
                arrays[i] = _throughout(bound(*arguments), batch)
            else:
                refuse_out_of_range(structure, inputs[i].name, arrays[i], bound(*arguments), batch_shape, out_of_range)
        report = over_batch(kernel, arrays, batch=batch, work=batch * work(*arrays)) if batch else -1
        if report != -1:
            _fail(report, refusal, unsolved, structure, arrays, batch_shape)
        return outputs[0] if single else outputs

    return compute


@functools.lru_cache(64)
def _throughout(numbers: int | tuple[int, ...], batch: int) -> NDArray[np.int64]:
    """The same number or numbers for each instance; kernels only read them."""
    return np.full((batch, *np.shape(numbers)), numbers)


def refuse_out_of_range(
    structure: str,
    name: str,
    given: NDArray[Any],
    most: int | tuple[int, ...],
    batch_shape: Sequence[int],
    advice: str,
) -> None:
    """Raises unless the whole numbers that a structure was given for each instance are between 0 and `most`."""
    limits = (most,) if isinstance(most, int) else most
    for axis, limit in enumerate(limits):
        numbers = (given if isinstance(most, int) else given[:, axis]).tolist()  # quicker than NumPy for few of them
        if numbers and (max(numbers) > limit or min(numbers) < 0):
            index = next(i for i, number in enumerate(numbers) if not 0 <= number <= limit)
            place = [int(i) for i in np.unravel_index(index, tuple(batch_shape))] if batch_shape else []
            place = [*place, axis] if len(limits) > 1 else place
            found = f"{structure}: {name}{place or ''} is {numbers[index]}"
            raise ValueError(f"{found}; expected between 0 and {limit}.  {advice}".rstrip())


def _fail(
    report: int, refusal: Refusal, unsolved: str, structure: str, arrays: list[Any], batch_shape: Sequence[int]
) -> None:
    index = report if report >= 0 else -2 - report
    example = name_example(index, batch_shape)
    if report < -1:
        raise ConvergenceError(f"{structure}: {unsolved.format(example=example)}")
    raise ValueError(refusal(example, *(a[index] if isinstance(a, np.ndarray) else a for a in arrays)))


def name_example(index: int, batch_shape: Sequence[int]) -> str:
    """How an error names one instance of a batch: `example [2, 0]`."""
    return f"example {[int(i) for i in np.unravel_index(index, tuple(batch_shape))]}" if batch_shape else "the instance"


# ---- with derivatives


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

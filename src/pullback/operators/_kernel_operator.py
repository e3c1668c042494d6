"""Operators made from kernels.

A kernel's arguments are those of the operator's signature: inputs, then outputs, as arrays whose first axis counts the
instances of the batch, then the range of instances to work on.  It returns the first instance it could not solve, −1
if there is none, or −2 − b where the search of instance b did not converge.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
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

_UNSOLVED = "SparseMAP of {example} did not converge; please report its scores."
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

"""The one place where tensors become arrays and kernels become PyTorch operators.

`operator` registers a function over tensors in host memory as `torch.ops.pullback.NAME`: torch.compile keeps it in its
graph, vmap batches it, and it accepts tensors on any device and in any floating dtype (half precision is computed in
float32).  In plain eager mode the function is called without a detour through the dispatcher.  `over_batch` runs a
kernel over the instances of a batch, in as many threads as torch uses.
"""

import itertools
import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.fx.node
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

Kernel = Callable[..., int]

_library = torch.library.Library("pullback", "DEF")
_HALF = (torch.float16, torch.bfloat16)
_PLAIN = frozenset({Tensor, torch.nn.Parameter, bool, int, float, str})


def operator(
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Registers `compute` under `schema` and returns the operator.

    `compute` sees contiguous tensors in host memory, in float32 or float64; its outputs go back to the device and the
    dtype of the inputs.  `fake` gives empty outputs of the right shape.  `backward(ctx, *gradients)` and `save(ctx,
    inputs, output)` are those of `torch.library.register_autograd`; without them no input may require grad.
    """
    name = schema.split("(")[0]
    on_host = _on_host(compute)
    _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _library.impl(name, on_host, "CompositeExplicitAutograd")
    torch.library.register_fake(f"pullback::{name}", fake, lib=_library)
    if backward is not None:
        torch.library.register_autograd(f"pullback::{name}", backward, setup_context=save, lib=_library)
    operation: Callable[..., Any] = getattr(torch.ops.pullback, name).default
    torch.library.register_vmap(f"pullback::{name}", _vmap_rule(operation), lib=_library)
    recorded = operation if backward is None else _recorded(on_host, save, backward)

    def call(*arguments: Any) -> Any:
        if _nobody_watches() and _PLAIN.issuperset(map(type, arguments)) and not arguments[0].is_meta:
            records = torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in arguments)
            return recorded(*arguments) if records else on_host(*arguments)
        if forward_ad._current_level >= 0 and any(_has_tangent(a) for a in arguments):
            raise RuntimeError(f"pullback::{name} has no forward-mode derivative; use reverse mode (torch.autograd).")
        try:
            return operation(*arguments)
        except RuntimeError as error:
            if "setup_context" not in str(error):  # what torch.func's derivatives ask of an operator, in torch's words
                raise
            raise RuntimeError(
                f"pullback::{name} works under torch.func.vmap, not under torch.func.grad; use torch.autograd.grad."
            ) from error

    return call


def _nobody_watches() -> bool:
    """Whether no compiler, tracer, profiler, function transform or mode wants to see the operators that run.

    Then the kernel can be called without the dispatcher, which takes half the time.
    """
    return not (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or _tracing()
        or _transforms()
        or _dispatch_modes()
        or _function_modes()
        or _profiling()
    )


# Not in torch's public interface: where one of these cannot be asked, somebody may be watching.
_tracing: Callable[[], Any] = getattr(torch._C, "_get_tracing_state", lambda: True)
_transforms: Callable[[], Any] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_dispatch_modes: Callable[[], Any] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: True)
_function_modes: Callable[[], Any] = getattr(torch._C, "_len_torch_function_stack", lambda: True)
_profiling: Callable[[], Any] = getattr(torch.autograd, "_profiler_enabled", lambda: True)


def _recorded(
    compute: Callable[..., Any], save: Callable[..., None] | None, backward: Callable[..., Any]
) -> Callable[..., Any]:
    """`compute` as autograd records it when it is called without the dispatcher."""

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            outputs = compute(*arguments)
            if save is not None:
                save(ctx, arguments, outputs)
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    record: Callable[..., Any] = Recorded.apply
    return record


def _has_tangent(argument: Any) -> bool:
    return isinstance(argument, Tensor) and forward_ad.unpack_dual(argument).tangent is not None


def no_derivative(ctx: Any, *gradients: Any) -> Any:
    """The backward of an operator that is a derivative itself, of the highest order there is."""
    raise RuntimeError("pullback has no derivative of this order: second derivatives are the highest.")


def _on_host(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` for tensors anywhere, of any floating dtype."""

    def anywhere(*arguments: Any) -> Any:
        first = arguments[0]  # every operator begins with the tensor that says where and in what its outputs are
        dtype = first.dtype
        if first.is_cpu and dtype not in _HALF:
            return compute(*[a.resolve_neg().contiguous() if isinstance(a, Tensor) else a for a in arguments])

        def home(a: Any) -> Any:
            if not isinstance(a, Tensor):
                return a
            return a.to("cpu", torch.float32 if a.dtype in _HALF else a.dtype).resolve_neg().contiguous()

        def away(a: Tensor) -> Tensor:
            return a.to(first.device, dtype if dtype in _HALF and a.dtype == torch.float32 else a.dtype)

        outputs = compute(*map(home, arguments))
        return away(outputs) if isinstance(outputs, Tensor) else tuple(map(away, outputs))

    return anywhere


def _vmap_rule(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Every operator takes any number of leading batch dimensions, so vmap is one more of them."""

    def rule(info: Any, in_dims: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        def lead(a: Any, dim: int | None) -> Any:
            if not isinstance(a, Tensor):
                return a
            return a.expand(info.batch_size, *a.shape) if dim is None else a.movedim(dim, 0)

        outputs = operation(*map(lead, arguments, in_dims))
        return outputs, 0 if isinstance(outputs, Tensor) else (0,) * len(outputs)

    return rule


def instances(tensor: Tensor, event_dims: int) -> NDArray[Any]:
    """The memory of a contiguous tensor as an array whose first axis counts the instances of the batch."""
    array: NDArray[Any] = tensor.numpy()
    batch_dims = array.ndim - event_dims
    if batch_dims == 1:
        return array
    return array.reshape(math.prod(array.shape[:batch_dims]), *array.shape[batch_dims:])


def over_batch(kernel: Kernel, *arguments: Any, batch: int, work: float) -> int:
    """What `kernel(*arguments, lo, hi)` reports over `range(batch)`: the first instance it could not solve, or −1.

    `work` estimates the nanoseconds in all: below 0.3 ms a second thread costs more than it brings; from 2 ms on the
    batch is cut into pieces, of which each thread takes one after the other.  Each instance is computed by one thread,
    so the answer does not depend on how many there are.
    """
    threads = min(torch.get_num_threads(), batch) if work >= 300_000 else 1
    if threads == 1:
        return int(kernel(*arguments, 0, batch))
    pieces = min(threads * (4 if work >= 2_000_000 else 1), batch)
    left = iter(range(pieces))  # several threads may draw from it

    def work_off() -> list[tuple[int, int]]:
        return [(i, int(kernel(*arguments, batch * i // pieces, batch * (i + 1) // pieces))) for i in left]

    jobs = [_pool().submit(work_off) for _ in range(threads - 1)]
    reports = sorted(itertools.chain(work_off(), *(job.result() for job in jobs)))
    return next((report for _, report in reports if report != -1), -1)


_threads: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "pullback")
        return _threads


def _forget_pool() -> None:
    """A forked child has none of its parent's threads, and may inherit the lock in a locked state."""
    global _threads, _lock
    _threads, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def _check(ok: Tensor, message: str) -> Tensor:
    if not ok.all():
        example = tuple(int(i) for i in np.argwhere(~ok.numpy())[0])
        raise ValueError(message.format(example=list(example)))
    return ok.clone()


check = operator("check(Tensor ok, str message) -> Tensor", _check, lambda ok, message: torch.empty_like(ok))
"""Raises `message` unless every entry of `ok` is true; `{example}` in it becomes the index of the first that is not."""

# Nobody reads what `check` returns, and it has to stay in compiled graphs all the same.
torch.fx.node.has_side_effect(torch.ops.pullback.check.default)


def name_example(index: int, batch_shape: Sequence[int]) -> str:
    """How an error names one instance of a batch: `example [2, 0]`."""
    return f"example {[int(i) for i in np.unravel_index(index, tuple(batch_shape))]}" if batch_shape else "the instance"

"""How a function over tensors becomes an operator of PyTorch.

`register` gives it the name `torch.ops.pullback.NAME`: torch.compile keeps it in its graph, vmap batches it, and it
accepts tensors on any device and in any floating dtype (half precision is computed in float32).  In plain eager mode
the function is called without a detour through the dispatcher.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

library = torch.library.Library("pullback", "DEF")
HALF = (torch.float16, torch.bfloat16)  # computed in float32
_PLAIN = frozenset({Tensor, torch.nn.Parameter, bool, int, float, str, list, type(None)})


def register(
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
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(name, on_host, "CompositeExplicitAutograd")
    operation: Callable[..., Any] = getattr(torch.ops.pullback, name).default

    def complete() -> None:
        torch.library.register_fake(f"pullback::{name}", fake, lib=library)
        torch.library.register_vmap(f"pullback::{name}", _vmap_rule(operation), lib=library)
        if backward is not None:
            torch.library.register_autograd(f"pullback::{name}", backward, setup_context=save, lib=library)

    _incomplete.append(complete)
    recorded = operation if backward is None else _recorded(on_host, save, backward)

    def call(*arguments: Any) -> Any:
        if are_plain(*arguments):
            if torch.is_grad_enabled():
                for given in arguments:
                    if isinstance(given, Tensor) and given.requires_grad:
                        return recorded(*arguments)
            return on_host(*arguments)
        complete_registration()
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


_incomplete: list[Callable[[], None]] = []


def complete_registration() -> None:
    """Tells PyTorch the fakes, derivatives and vmap rules of all operators.

    That takes a millisecond for each, and is not needed where the dispatcher is not.
    """
    while _incomplete:
        _incomplete.pop()()


# What `torch.compiler.assume_constant_result` sets, so that compilers run this instead of reading it; calling it would
# load the whole compiler.
complete_registration._dynamo_marked_constant = True  # type: ignore[attr-defined]


def is_plain_eager() -> bool:
    """Whether no compiler, tracer, profiler, function transform or mode has to see the operators that run.

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


def are_plain(*arguments: Any) -> bool:
    """Whether an operator can be called with these arguments without the dispatcher; the first one is a tensor."""
    return is_plain_eager() and _PLAIN.issuperset(map(type, arguments)) and not arguments[0].is_meta


def is_under_vmap(tensor: Tensor) -> bool:
    """Whether `tensor` stands for a batch that `torch.func.vmap` hides."""
    return bool(_transforms()) and bool(_is_batched(tensor))


def hides_grad() -> bool:
    """Whether tensors may not tell that they require grad, as under a transform of `torch.func` or a compiler."""
    return torch.compiler.is_compiling() or bool(_transforms())


def may_need_grad(*given: Any) -> bool:
    """Whether a derivative may be asked of what is computed from `given`, tensors among other things."""
    if not torch.is_grad_enabled():
        return False
    tensors = [x for x in given if isinstance(x, Tensor)]
    hidden = not torch.compiler.is_compiling() and any(map(is_under_vmap, tensors))
    return hidden or any(x.requires_grad for x in tensors)


# Not in torch's public interface: where one of these cannot be asked, the dispatcher is used.
_tracing: Callable[[], Any] = getattr(torch._C, "_get_tracing_state", lambda: True)
_transforms: Callable[[], Any] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
_is_batched: Callable[[Tensor], Any] = getattr(torch._C._functorch, "is_batchedtensor", lambda tensor: False)
_dispatch_modes: Callable[[], Any] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: True)
_function_modes: Callable[[], Any] = getattr(torch._C, "_len_torch_function_stack", lambda: True)
_profiling: Callable[[], Any] = getattr(torch.autograd, "_profiler_enabled", lambda: True)
holds_several: Callable[[Tensor], Any] = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda given: True)
"""Whether a gradient is one of many that `is_grads_batched` computes at once."""


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


def _on_host(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` for tensors anywhere, of any floating dtype."""

    def anywhere(*arguments: Any) -> Any:
        first = arguments[0]  # every operator begins with the tensor that says where and in what its outputs are
        dtype = first.dtype
        if first.is_cpu and dtype not in HALF:
            return compute(*[a.resolve_neg().contiguous() if isinstance(a, Tensor) else a for a in arguments])

        def home(a: Any) -> Any:
            if isinstance(a, list):
                return list(map(home, a))
            if not isinstance(a, Tensor):
                return a
            return a.to("cpu", torch.float32 if a.dtype in HALF else a.dtype).resolve_neg().contiguous()

        def away(a: Tensor) -> Tensor:
            return a.to(first.device, dtype if dtype in HALF and a.dtype == torch.float32 else a.dtype)

        outputs = compute(*map(home, arguments))
        return away(outputs) if isinstance(outputs, Tensor) else tuple(map(away, outputs))

    return anywhere


def _vmap_rule(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Every operator takes any number of leading batch dimensions, so vmap is one more of them."""

    def rule(info: Any, in_dims: Sequence[Any], *arguments: Any) -> tuple[Any, Any]:
        def lead(a: Any, dim: Any) -> Any:
            if isinstance(a, (list, tuple)):  # facts of a structure, which broadcast to any batch
                return [item if at is None else item.movedim(at, 0) for item, at in zip(a, dim or [None] * len(a))]
            if not isinstance(a, Tensor):
                return a
            return a.expand(info.batch_size, *a.shape) if dim is None else a.movedim(dim, 0)

        outputs = operation(*map(lead, arguments, in_dims))
        return outputs, 0 if isinstance(outputs, Tensor) else (0,) * len(outputs)

    return rule

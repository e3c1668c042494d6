"""The operators of taggings: scores (*batch, n, t), a table (*batch, t + 2, t), lengths.

The table holds the transitions by [tag before, tag], then the scores of a first tag, then those of a last one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.operators._family import Family, choices
from pullback.operators._kernel_operator import kernel_operator, partition_operator
from pullback.operators._register import are_plain

_INPUTS = "scores[n, t], table[t + 2, t], lengths[] <= n"


def _refusal(example: str, scores: Any, table: Any, lengths: Any, *_: Any) -> str:
    given_by_name = {"scores": scores[:lengths], "transitions": table[:-2], "start": table[-2], "end": table[-1]}
    for name, given in given_by_name.items():
        if np.isnan(given).any() or (given == np.inf).any():
            return f"Tagging: the {name} of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Tagging: {example} has no sequence of tags that its scores, transitions and mask allow."


def _work(scores: Any, *_: Any) -> float:
    return 0.5 * float(scores.shape[1]) * float(scores.shape[2]) ** 2


_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "Tagging", "moves": 2}


class _WithOptions:
    """The kernels of taggings, where those of the active set take the table as an option, behind the lengths."""

    argmax, topk = kernels.tagging.argmax, kernels.tagging.topk

    @staticmethod
    def mixture(scores: Any, table: Any, numbers: tuple[Any, ...], *rest: Any) -> int:
        return kernels.tagging.mixture(scores, numbers[0], (table,), *rest)

    @staticmethod
    def mixture_backward(scores: Any, table: Any, numbers: tuple[Any, ...], *rest: Any) -> int:
        return kernels.tagging.mixture_backward(scores, numbers[0], (table,), *rest)

    @staticmethod
    def spread(share: float, parts: Any, product: Any) -> None:
        tags = parts % product.shape[1]
        np.add.at(product, (tags[:-1], tags[1:]), share)
        product[-2, tags[:1]] += share
        product[-1, tags[-1:]] += share


sequences = Family(
    **vars(
        choices(
            "tagging",
            _INPUTS,
            "n, t",
            _WithOptions,
            capacity="(n * (t - 1) if t < 9 else 8 * n) + 1",
            also="table",
            work=_work,
            **_OPTIONS,
        )
    ),
    log_partition=kernel_operator(
        f"tagging_log_partition({_INPUTS}) -> value[]",
        kernels.tagging.log_partition,
        work=_work,
        **_OPTIONS,
    ),
    partition=partition_operator(
        f"tagging_partition({_INPUTS}) -> value[], marginals[n, t], uses[t + 2, t]",
        kernels.tagging.partition,
        hessian=kernels.tagging.hessian_product,
        work=lambda *arrays: 2 * _work(*arrays),
        **_OPTIONS,
    ),
    sample=kernel_operator(
        f"tagging_sample({_INPUTS}, seeds[], int count) -> vertices[count, n, t]",
        kernels.tagging.sample,
        work=lambda *arrays: 4 * _work(*arrays) + 2.0 * arrays[-1][:1].size,
        **_OPTIONS,
    ),
)


# ---- tables that all examples share


def pack(transitions: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
    """The table (t + 2, t) of transitions (t, t), and of start and end (t,), 0 if not given."""
    first, last = (transitions.new_zeros(transitions.shape[-1]) if given is None else given for given in (start, end))
    return torch.vstack((transitions, first, last))


class _Shared(torch.autograd.Function):
    """The log-partition with a packed table for all examples, in one step of autograd instead of ten."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, transitions: Tensor, start: Any, end: Any, lengths: Any) -> Tensor:
        table = pack(transitions, start, end)
        value, marginals, uses = sequences.partition(scores, _for_each(table, scores), lengths)
        ctx.save_for_backward(scores, transitions, start, end, lengths, marginals, uses)
        return value

    @staticmethod
    def backward(ctx: Any, of_value: Tensor) -> tuple[Tensor | None, ...]:
        scores, transitions, start, end, lengths, marginals, uses = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient shall have a derivative, which that of `partition` has
            table = pack(transitions, start, end)
            _, marginals, uses = sequences.partition(scores, _for_each(table, scores), lengths)
        t, factor = marginals.shape[-1], of_value[..., None, None]
        of_tables = (factor * uses).reshape(-1, (t + 2) * t).sum(0)  # no product of matrices: autocast would round it
        of_transitions, *of_ends = of_tables.split((t * t, t, t))
        given = (None if ends is None else of for ends, of in zip((start, end), of_ends))
        return factor * marginals, of_transitions.view(t, t), *given, None


def _for_each(table: Tensor, scores: Tensor) -> Tensor:
    return table.expand(*scores.shape[:-2], *table.shape)


def is_one_step(scores: Tensor, transitions: Tensor, start: Tensor | None, end: Tensor | None) -> bool:
    """Whether `shared_log_partition` can be called: a gradient is needed, and the tables have no batch dimensions."""
    if not (torch.is_grad_enabled() and are_plain(scores, transitions, start, end)):
        return False
    moves, kind, size = scores.requires_grad, (scores.dtype, scores.device), scores.shape[-1:]
    for table, shape in ((transitions, size * 2), (start, size), (end, size)):
        if table is not None:
            if (table.dtype, table.device) != kind or table.shape != shape:
                return False
            moves = moves or table.requires_grad
    return moves


shared_log_partition: Callable[..., Tensor] = _Shared.apply
"""The log-partition of scores with transitions (t, t), start and end (t,) or None, that all examples share."""


max_marginals = kernel_operator(
    f"tagging_max_marginals({_INPUTS}) -> best[n, t]", kernels.tagging.max_marginals, work=_work, **_OPTIONS
)
"""The score of the best sequence through each tag."""


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[1])


def _differentiate(ctx: Any, of_value: Tensor, of_uses: Tensor | None) -> tuple[Any, ...]:
    (uses,) = ctx.saved_tensors
    return None, of_value[..., None, None] * uses, None


couple: Callable[..., tuple[Tensor, Tensor]] = kernel_operator(
    "tagging_couple(point[n, t], table[t + 2, t], lengths[] <= n) -> value[], uses[t + 2, t]",
    kernels.tagging.couple,
    work=_work,
    save=_save,
    backward=_differentiate,
    **_OPTIONS,
)
"""The largest expected score of the table in a mixture with these probabilities of tags, and how often each is used.

The value has a gradient for the table, not for the point.
"""

"""The operators of taggings: scores (*batch, n, t), a table (*batch, t + 2, t), lengths.

The table holds the transitions by [tag before, tag], then the scores of a first tag, then those of a last one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.operators._derivatives import partition_operator
from pullback.operators._family import family
from pullback.operators._flat import GAP_OF_INTERIOR, Flat
from pullback.operators._kernel_operator import kernel_operator
from pullback.operators._register import are_plain, holds_several

Array = NDArray[Any]


def _refusal(example: str, scores: Any, table: Any, lengths: Any, *_: Any) -> str:
    given_by_name = {"scores": scores[:lengths], **_tables(table)}
    for name, given in given_by_name.items():
        if not _are_numbers(given):
            return _NO_NUMBERS.format(name, example)
    closed = np.flatnonzero((scores[:lengths] == -np.inf).all(-1))
    if closed.size:
        return (
            f"Tagging: position {closed[0]} of {example} has no tag that its scores and mask allow; expected one at "
            "every position within its length.  Padding is given by lengths."
        )
    return _NO_SEQUENCE.format(example)


def _refuse_table(example: str, point: Any, table: Any, *_: Any) -> str:
    wrong = next(name for name, given in _tables(table).items() if not _are_numbers(given))
    return _NO_NUMBERS.format(wrong, example)


def _refuse_pairs(example: str, pairs: Any, lengths: Any, *_: Any) -> str:
    if not (_are_numbers(pairs[:1, :1]) and _are_numbers(pairs[1:lengths])):
        return _NO_NUMBERS.format("scores, transitions, start or end", example)
    return _NO_SEQUENCE.format(example)


_NO_NUMBERS = "Tagging: the {} of {} contain NaN or +inf; expected numbers or -inf."
_NO_SEQUENCE = "Tagging: {} has no sequence of tags that its scores, transitions and mask allow."


def _tables(table: Any) -> dict[str, Any]:
    return {"transitions": table[:-2], "start scores": table[-2], "end scores": table[-1]}


def _are_numbers(given: Any) -> bool:
    """Whether none is NaN or +∞."""
    return bool((given < np.inf).all())


def _work(scores: Any, *_: Any) -> float:
    return 0.5 * float(scores.shape[1]) * float(scores.shape[2]) ** 2


class TaggingKernels:
    """The kernels of taggings, where those of the active set take the table as an option, behind the lengths."""

    argmax, topk, max_marginals = kernels.tagging.argmax, kernels.tagging.topk, kernels.tagging.max_marginals
    log_partition, partition = kernels.tagging.log_partition, kernels.tagging.partition
    hessian_product, sample = kernels.tagging.hessian_product, kernels.tagging.sample

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


def _choices(lengths: Array, point: Array) -> Array:
    """How many tags are in use, beside one for each position."""
    more: Array = np.count_nonzero(point.reshape(len(point), -1), axis=1) - lengths
    return more


@dataclass(frozen=True, kw_only=True)
class TaggingInterior(Flat):
    """Flat scores of tags, by an interior-point method."""

    def are_flat(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array) -> Array:
        """Whether the interior takes less time, as measured: that of vertices grows with the square of their number.

        There will be about as many as parts in use, one less for each position.
        """
        t, more = point.shape[2], _choices(lengths, point)
        most = np.minimum(self._most(lengths, t), 0.75 * lengths * (t - 1))
        flat: Array = self.are_long(lengths) & (more >= most)
        return flat

    def _most(self, lengths: Array, t: int) -> Array:
        """How many vertices take as long as the interior."""
        most: Array = self.parts * np.sqrt(lengths * (t**2 + 40.0))
        return most

    def patience(self, lengths: Array, event: Sequence[int]) -> Array | None:
        return (1.25 * self._most(lengths, event[-1])).astype(np.int64)

    def are_tied(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, size: Array) -> Array:
        """A few vertices that use that many tags: others, which mix their tags, tie with them, as with equal scores."""
        tied: Array = self.are_flat(scores, lengths, numbers, point) & (4 * size <= _choices(lengths, point))
        return tied

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        nearest, gap = np.zeros(scores.shape), np.full(len(scores), np.inf)
        wide = np.ascontiguousarray(scores, np.float64)
        kernels.tagging.approach(wide, numbers[0], lengths, GAP_OF_INTERIOR, nearest, rest, gap, 0, len(scores))
        point[:] = nearest
        solved: Array = gap < np.inf
        return solved

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        product, uses = np.empty(rest.shape), np.empty(numbers[0].shape)
        wide = np.ascontiguousarray(gradient, np.float64)
        kernels.tagging.approach_backward(rest, numbers[0], lengths, wide, product, uses, 0, len(rest))
        return product, uses


sequences = family(
    "tagging",
    "scores[n, t], table[t + 2, t], lengths[] <= n",
    "n, t",
    TaggingKernels,
    capacity="(n * (t - 1) if t < 9 else 8 * n) + 1",
    also="table",
    flat=TaggingInterior(least=2, parts=2.5),
    most=None,
    is_lattice=True,
    work=_work,
    draws=lambda *arrays: 4 * _work(*arrays),
    refusal=_refusal,
    structure="Tagging",
)


pairs = partition_operator(
    "tagging_pairs(scores[n, t, t], lengths[] <= n) -> value[], marginals[n, t, t]",
    kernels.chain.partition,
    hessian=kernels.chain.hessian_product,
    keeps="marginals lengths",
    work=lambda *arrays: 6.0 * arrays[0][0].size,
    refusal=_refuse_pairs,
    structure="Tagging",
)
"""The sums of a chain over scores of pairs that were made of those of a tagging: errors speak of the tagging."""


# ---- tables that all examples share


def is_one_step(scores: Tensor, transitions: Tensor, start: Tensor | None, end: Tensor | None) -> bool:
    """Whether `shared_log_partition` can be called: a gradient is needed, and the tables have no batch dimensions."""
    if not (torch.is_grad_enabled() and are_plain(scores, transitions, start, end)):
        return False
    moves, t, dtype = scores.requires_grad, scores.shape[-1], scores.dtype
    if not (scores.is_cpu and dtype in _WIDE):
        return False
    for table, shape in ((transitions, (t, t)), (start, (t,)), (end, (t,))):
        if table is not None:
            if not (table.is_cpu and table.dtype == dtype and table.shape == shape):
                return False
            moves = moves or table.requires_grad
    return moves


_WIDE = (torch.float32, torch.float64)


class _Shared(torch.autograd.Function):
    """The log-partition with tables for all examples, in one step of autograd and one of a kernel instead of ten."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, transitions: Tensor, start: Any, end: Any, lengths: Any) -> Tensor:
        value, marginals, uses = sequences.partition(scores, _for_each(scores, transitions, start, end), lengths)
        ctx.save_for_backward(scores, transitions, start, end, lengths, marginals, uses)
        return value

    @staticmethod
    def backward(ctx: Any, of_value: Tensor) -> tuple[Tensor | None, ...]:
        scores, transitions, start, end, lengths, marginals, uses = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient shall have a derivative, which that of `partition` has
            table = _pack(transitions, start, end).expand(*scores.shape[:-2], -1, -1)
            _, marginals, uses = sequences.partition(scores, table, lengths)
        elif are_plain(of_value) and not holds_several(of_value):
            of_scores, of_table = _weigh(of_value, marginals, uses)
            return of_scores, *_unpack(of_table, start, end), None
        factor = of_value.unsqueeze(-1).unsqueeze(-1)
        each = (factor * uses).reshape(-1, *uses.shape[-2:])
        of_table = each.sum(0)  # no product of matrices: autocast would round it
        return factor * marginals, *_unpack(of_table, start, end), None


shared_log_partition: Callable[..., Tensor] = _Shared.apply
"""The log-partition of scores with transitions (t, t), start and end (t,) or None, that all examples share."""


def _pack(transitions: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
    """The table (t + 2, t) of transitions (t, t), and of start and end (t,), 0 if not given."""
    none = transitions.new_zeros(transitions.shape[-1])
    ends = [none if given is None else given for given in (start, end)]
    return torch.cat((transitions, torch.stack(ends)))


def _unpack(table: Tensor, start: Tensor | None, end: Tensor | None) -> tuple[Tensor | None, ...]:
    """What `_pack` put together; None for what was not given."""
    t = table.shape[-1]
    return table[:t], None if start is None else table[t], None if end is None else table[t + 1]


def _for_each(scores: Tensor, transitions: Tensor, start: Tensor | None, end: Tensor | None) -> Tensor:
    """`_pack`, written out once for each example of the scores."""
    t = scores.shape[-1]
    table = scores.new_empty((*scores.shape[:-2], t + 2, t))
    rows = table.numpy()  # NumPy assigns to parts in less time than torch takes to put them together
    for place, given in ((slice(t), transitions), (t, start), (t + 1, end)):
        rows[..., place, :] = 0 if given is None else given.resolve_neg().numpy()
    return table


def _weigh(of_value: Tensor, marginals: Tensor, uses: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of scores and of the table, from that of each value."""
    of_scores, of_table = torch.empty_like(marginals), uses.new_empty(uses.shape[-2:])
    weights = of_value.resolve_neg().contiguous().numpy().reshape(-1)
    given = [tensor.numpy().reshape(-1, *tensor.shape[-2:]) for tensor in (marginals, uses, of_scores)]
    kernels.tagging.weigh(weights, *given, of_table.numpy(), 0, len(weights))
    return of_scores, of_table


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(output[1])


def _differentiate(ctx: Any, of_value: Tensor, of_uses: Tensor | None) -> tuple[Any, ...]:
    (uses,) = ctx.saved_tensors
    return None, of_value[..., None, None] * uses, None


couple: Callable[..., tuple[Tensor, Tensor]] = kernel_operator(
    "tagging_couple(point[n, t], table[t + 2, t], lengths[] <= n) -> value[], uses[t + 2, t]",
    kernels.tagging.couple,
    work=_work,
    refusal=_refuse_table,
    structure="Tagging",
    moves=2,
    save=_save,
    backward=_differentiate,
)
"""The largest expected score of the table in a mixture with these probabilities of tags, and how often each is used.

The value has a gradient for the table, not for the point.
"""

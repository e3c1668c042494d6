"""The operators that most structures have, all of them from one line: argmax, k best, mixtures, sums, samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pullback.operators._derivatives import partition_operator
from pullback.operators._flat import Flat
from pullback.operators._kernel_operator import Work, kernel_operator
from pullback.operators._mixture import mixture_operator
from pullback.operators._mixture_projection import mixture_projection
from pullback.operators._signature import parse


@dataclass(frozen=True)
class Choices:
    """What can be computed over a structure whose best vertex is known.

    Every operator takes scores, lengths and the structure's own numbers, then what it needs besides: `topk` how many,
    `mixture` a start and limits, `sparsemap` the largest gap.  That one is None for a structure that has a better way
    than the active set.
    """

    argmax: Callable[..., Tensor]
    topk: Callable[..., tuple[Tensor, Tensor]]
    mixture: Callable[..., tuple[Tensor, ...]]
    sparsemap: Callable[..., tuple[Tensor, ...]] | None


@dataclass(frozen=True)
class Family(Choices):
    """What can be computed where also the sum over all vertices is known; `sample` takes seeds and their count.

    `max_marginals` is None unless vertices are paths through a lattice, forward and backward.
    """

    log_partition: Callable[..., Tensor]
    partition: Callable[..., tuple[Tensor, ...]]
    sample: Callable[..., Tensor]
    max_marginals: Callable[..., Tensor] | None = None


def choices(
    name: str,
    inputs: str,
    parts: str,
    kernels: Any,
    *,
    work: Work,
    best: Work | None = None,
    slots: str = "n",
    capacity: str | None = None,
    also: str | None = None,
    flat: Flat | None = None,
    **options: Any,
) -> Choices:
    """The operators `name_argmax`, `name_topk`, `name_mixture`, `name_sparsemap`, from kernels that bear these names.

    inputs: what they all take, `scores[n, t, t], lengths[] <= n`.  parts: the shape of a vertex, `n, t, t`; slots: how
    many parts it has at most.  capacity: how many vertices SparseMAP keeps for its derivative, `8 * n`; there is no
    such operator by default.  also: the second input, if it has a gradient beside the scores.  flat: how SparseMAP
    treats flat scores, if not like others.  work: of each of the best vertices; best: of the argmax, if that takes
    less.
    """
    options["moves"] = 1 if also is None else 2
    mixing: dict[str, Any] = {"parts": parts, "slots": slots, "work": lambda *arrays: 20 * work(*arrays), **options}
    return Choices(
        argmax=kernel_operator(
            f"{name}_argmax({inputs}) -> vertex[{parts}]", kernels.argmax, work=best or work, **options
        ),
        topk=kernel_operator(
            f"{name}_topk({inputs}, int k) -> vertices[k, {parts}], size[]: int64",
            kernels.topk,
            work=lambda *arrays: work(*arrays) * (1 + arrays[-2].shape[1]),
            **options,
        ),
        mixture=mixture_operator(name, inputs, kernels.mixture, **mixing),
        sparsemap=mixture_projection(name, inputs, kernels, capacity=capacity, also=also, flat=flat, **mixing)
        if capacity
        else None,
    )


def family(
    name: str,
    inputs: str,
    parts: str,
    kernels: Any,
    *,
    work: Work,
    best: Work | None = None,
    sums: Work | None = None,
    draws: Work | None = None,
    slots: str = "n",
    capacity: str | None = None,
    also: str | None = None,
    flat: Flat | None = None,
    keeps: str | None = None,
    most: float | None = 1.0,
    is_lattice: bool = False,
    **options: Any,
) -> Family:
    """All that `choices` makes, and `name_log_partition`, `name_partition`, `name_sample`.

    work: of the sums too; sums: of the log-partition, if that takes less; draws: of what samples are drawn from, if
    that takes more.  also: the partition has one more output then, how often each number of that input is used.
    keeps: what the Hessian is computed from, the inputs by default.  most: no marginal is above it; None where the
    kernel sees to that itself.  is_lattice: there is `name_max_marginals`, too.
    """
    sums, draws = sums or work, draws or work
    searches: dict[str, Any] = {"slots": slots, "capacity": capacity, "also": also, "flat": flat}
    chosen = choices(name, inputs, parts, kernels, work=work, best=best, **searches, **options)
    options["moves"] = 1 if also is None else 2
    outputs = f"value[], marginals[{parts}]" + ("" if also is None else f", uses[{_dims_of(also, inputs)}]")
    return Family(
        **vars(chosen),
        log_partition=kernel_operator(
            f"{name}_log_partition({inputs}) -> value[]", kernels.log_partition, work=sums, **options
        ),
        partition=partition_operator(
            f"{name}_partition({inputs}) -> {outputs}",
            kernels.partition,
            hessian=kernels.hessian_product,
            keeps=keeps,
            most=most,
            work=lambda *arrays: 2 * sums(*arrays),
            **options,
        ),
        sample=kernel_operator(
            f"{name}_sample({inputs}, seeds[], int count) -> vertices[count, {parts}]",
            kernels.sample,
            work=lambda *arrays: draws(*arrays) + 2.0 * arrays[-1][:1].size,
            **options,
        ),
        max_marginals=kernel_operator(
            f"{name}_max_marginals({inputs}) -> best[{parts}]", kernels.max_marginals, work=work, **options
        )
        if is_lattice
        else None,
    )


def _dims_of(name: str, inputs: str) -> str:
    """What stands in the brackets of an input."""
    return ", ".join(parse(f"_({inputs}) -> _[]")[name].dims or ())

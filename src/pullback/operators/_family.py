"""The operators that most structures have, all of them from one line: argmax, sums, samples, k best, mixtures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pullback.operators._kernel_operator import Work, kernel_operator, partition_operator
from pullback.operators._mixture import mixture_operator


@dataclass(frozen=True)
class Family:
    """What can be computed over one structure.

    Every operator takes scores, lengths and the structure's own numbers, then what it needs besides: `sample` seeds and
    their count, `topk` how many, `mixture` a start and limits.
    """

    argmax: Callable[..., Tensor]
    log_partition: Callable[..., Tensor]
    partition: Callable[..., tuple[Tensor, ...]]
    sample: Callable[..., Tensor]
    topk: Callable[..., tuple[Tensor, Tensor]]
    mixture: Callable[..., tuple[Tensor, ...]]


def family(
    name: str,
    inputs: str,
    parts: str,
    kernels: Any,
    *,
    work: Work,
    best: Work | None = None,
    keeps: str | None = None,
    **options: Any,
) -> Family:
    """The operators `name_argmax`, `name_partition`, …, from kernels that bear these names.

    inputs: what they all take, `scores[n, t, t], lengths[] <= n`.  parts: the shape of a vertex, `n, t, t`; its slots
    are counted by n.  work: of the sums; best: of the argmax, if that takes less.  keeps: what the Hessian is computed
    from, the inputs if not said.
    """
    return Family(
        argmax=kernel_operator(
            f"{name}_argmax({inputs}) -> vertex[{parts}]", kernels.argmax, work=best or work, **options
        ),
        log_partition=kernel_operator(
            f"{name}_log_partition({inputs}) -> value[]", kernels.log_partition, work=work, **options
        ),
        partition=partition_operator(
            f"{name}_partition({inputs}) -> value[], marginals[{parts}]",
            kernels.partition,
            hessian=kernels.hessian_product,
            keeps=keeps,
            work=lambda *arrays: 2 * work(*arrays),
            **options,
        ),
        sample=kernel_operator(
            f"{name}_sample({inputs}, seeds[], int count) -> vertices[count, {parts}]",
            kernels.sample,
            work=lambda *arrays: work(*arrays) + 2.0 * arrays[-1][:1].size,
            **options,
        ),
        topk=kernel_operator(
            f"{name}_topk({inputs}, int k) -> vertices[k, {parts}], size[]: int64",
            kernels.topk,
            work=lambda *arrays: work(*arrays) * (1 + arrays[-2].shape[1]),
            **options,
        ),
        mixture=mixture_operator(
            f"{name}_mixture({inputs}", kernels.mixture, parts=parts, work=lambda *arrays: 20 * work(*arrays), **options
        ),
    )

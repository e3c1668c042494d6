"""The operators of subsets: scores (*batch, n), −∞ at items that may not be chosen; low and high bound their number."""

from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators._derivatives import partition_operator, projection_operator
from pullback.operators._kernel_operator import kernel_operator


def _refusal(example: str, scores: Any, low: Any, *_: Any) -> str:
    if not (scores < np.inf).all():
        return f"Subset: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    allowed = int((scores > -np.inf).sum())
    return (
        f"Subset: {example} has {allowed} item(s) to choose from within its length and mask; expected at least "
        f"{int(low)}, or `Subset.at_most` for any number up to k."
    )


def _table(scores: Any, low: Any, high: Any, *_: Any) -> float:
    """The time to fill an example's table of items × counts."""
    n = scores.shape[-1]
    return 6 * float(n * np.minimum(high, n - low).max(initial=0))


argmax = kernel_operator(
    "subset_argmax(scores[n], low[], high[]) -> best[n]",
    kernels.subset.argmax,
    work=lambda scores, *_: 10.0 * scores.shape[-1],
    refusal=_refusal,
)
project = projection_operator(
    "subset_project(scores[n], low[], high[]) -> point[n]",
    kernels.subset.project,
    jacobian=kernels.subset.project_backward,
    most=None,
    work=lambda scores, *_: 4.0 * scores.shape[-1],
    refusal=_refusal,
)
partition = partition_operator(
    "subset_partition(scores[n], low[], high[]) -> value[], marginals[n]",
    kernels.subset.partition,
    hessian=kernels.subset.hessian_product,
    work=_table,
    refusal=_refusal,
)
sample = kernel_operator(
    "subset_sample(scores[n], low[], high[], uniforms[count, n]: float64) -> drawn[count, n]",
    kernels.subset.sample,
    work=lambda scores, low, high, uniforms, *_: _table(scores, low, high) + 5.0 * uniforms[0].size,
    refusal=_refusal,
)
"""One draw for each row of uniforms in [0, 1)."""
sample_bits = kernel_operator(
    "binary_sample(chances[n], seeds[], int count) -> drawn[count, n]",
    kernels.subset.sample_bits,
    work=lambda chances, seeds, count, drawn, *_: 2.0 * drawn[:1].size,
)
"""Subsets of any size, whose items are independent."""

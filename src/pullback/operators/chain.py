"""The operators of linear chains: scores (*batch, n, t, t) of tag at i − 1 → tag at i, lengths counting positions."""

from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators._kernel_operator import kernel_operator, partition_operator, projection_operator
from pullback.operators.mixture import mixture_operator

_SCORES = "scores[n, t, t], lengths[] <= n"


def _refusal(example: str, scores: Any, lengths: Any, *_: Any) -> str:
    used = [scores[:1, :1], scores[1:lengths]]
    if any(np.isnan(part).any() or (part == np.inf).any() for part in used):
        return f"Chain: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Chain: {example} has no sequence of tags whose scores are all above -inf within its mask."


_OPTIONS: dict[str, Any] = {"work": lambda scores, *_: float(scores[0].size), "refusal": _refusal}

argmax = kernel_operator(f"chain_argmax({_SCORES}) -> best[n, t, t]", kernels.chain.argmax, **_OPTIONS)
log_partition = kernel_operator(f"chain_log_partition({_SCORES}) -> value[]", kernels.chain.log_partition, **_OPTIONS)
partition = partition_operator(
    f"chain_partition({_SCORES}) -> value[], marginals[n, t, t]",
    kernels.chain.partition,
    hessian=kernels.chain.hessian_product,
    **_OPTIONS,
)
sample = kernel_operator(
    f"chain_sample({_SCORES}, seeds[], int count) -> drawn[count, n, t, t]", kernels.chain.sample, **_OPTIONS
)
topk = kernel_operator(
    f"chain_topk({_SCORES}, int k) -> best[k, n, t, t], size[]: int64", kernels.chain.topk, **_OPTIONS
)
sparsemap = projection_operator(
    f"chain_sparsemap({_SCORES}) -> point[n, t, t]",
    kernels.chain.project,
    jacobian=kernels.chain.project_backward,
    keeps="lengths point",
    **_OPTIONS,
)
mixture = mixture_operator(f"chain_mixture({_SCORES}", kernels.chain.mixture, parts="n, t, t", **_OPTIONS)

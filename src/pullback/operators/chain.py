"""The operators of linear chains: scores (*batch, n, t, t) of tag at i − 1 → tag at i, lengths counting positions."""

from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._family import family


def _refusal(example: str, scores: Any, lengths: Any, *_: Any) -> str:
    used = np.concatenate([scores[:1, :1].ravel(), scores[1:lengths].ravel()])
    if np.isnan(used).any() or (used == np.inf).any():
        return f"Chain: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Chain: {example} has no sequence of tags whose scores are all above -inf within its mask."


def _best(scores: Any, *_: Any) -> float:
    return float(scores[0].size)


_INPUTS = "scores[n, t, t], lengths[] <= n"
_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "Chain"}

sequences = family(
    "chain",
    _INPUTS,
    "n, t, t",
    kernels.chain,
    keeps="marginals lengths",
    work=lambda *arrays: 3 * _best(*arrays),
    best=_best,
    is_lattice=True,
    **_OPTIONS,
)
sparsemap = projection_operator(
    f"chain_sparsemap({_INPUTS}) -> point[n, t, t]",
    kernels.chain.project,
    jacobian=kernels.chain.project_backward,
    keeps="lengths point",
    work=lambda *arrays: 60 * _best(*arrays),  # some dozens of sweeps
    **_OPTIONS,
)

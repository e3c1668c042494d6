"""The operators of matchings: scores (*batch, n, m) of row i with column j, lengths counting rows and columns."""

from typing import Any

import numpy as np

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._family import choices

_INPUTS = "scores[n, m], lengths[2] <= (n, m), bool optional"


def _refusal(example: str, scores: Any, lengths: Any, *_: Any) -> str:
    used = scores[: lengths[0], : lengths[1]]
    if np.isnan(used).any() or (used == np.inf).any():
        return f"Matching: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Matching: {example} has no matching: its mask or its pairs at -inf leave a row or column without partner."


def _best(scores: Any, *_: Any) -> float:
    return 7.0 * float(scores[0].size)


_OPTIONS: dict[str, Any] = {"refusal": _refusal, "structure": "Matching"}

matchings = choices("matching", _INPUTS, "n, m", kernels.matching, work=_best, **_OPTIONS)

sparsemap = projection_operator(
    f"matching_sparsemap({_INPUTS}) -> point[n, m], row_price[n], col_price[m]",
    kernels.matching.project,
    jacobian=kernels.matching.project_backward,
    keeps="lengths optional point row_price col_price",
    work=lambda *arrays: 20 * _best(*arrays),
    **_OPTIONS,
)
"""The nearest mixture of matchings, and the prices that tell its face."""


transport = projection_operator(
    f"matching_transport({_INPUTS}, start_rows[p]: float64, start_cols[q]: float64, float tolerance, "
    "int max_iterations) -> point[n, m], row_price[n], col_price[m], iterations[]: int64, error[]: float64",
    kernels.matching.sinkhorn,
    jacobian=kernels.matching.sinkhorn_backward,
    keeps="lengths optional point row_price col_price",
    curved=True,
    work=lambda *arrays: 20 * _best(*arrays),
    example={"max_iterations": 100},
    **_OPTIONS,
)
"""argmax ⟨s, μ⟩ − Σ μ log μ over mixtures of matchings, its prices, and how the search ended."""

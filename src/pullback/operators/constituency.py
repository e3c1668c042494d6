"""The operators of binary trees over spans: scores (*batch, n, n) by [first word, last word], or (*batch, n, n, t).

Kernels know labelled spans alone.  Without labels, arrays get an axis for one label on their way there.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pullback import kernels
from pullback.operators._family import family
from pullback.operators._flat import SPANS, ByChart
from pullback.operators._threads import Kernel

Array = NDArray[Any]


def _refusal(example: str, scores: Array, lengths: Any, *_: Any) -> str:
    used = scores[np.triu_indices(int(lengths))]
    if np.isnan(used).any() or (used == np.inf).any():
        return f"ConstituencyTree: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"ConstituencyTree: {example} has no binary tree whose spans are all above -inf within its mask."


def _work(scores: Array, *_: Any) -> float:
    return 0.2 * float(scores.shape[1]) ** 3 + 4.0 * float(scores[0].size)


def _work_of_sums(scores: Array, *_: Any) -> float:
    labels = 4.0 if scores.ndim == 4 else 1.0
    return 0.04 * float(scores.shape[1]) ** 3 + labels * float(scores[0].size)


_OPTIONS: dict[str, Any] = {"work": _work, "sums": _work_of_sums, "refusal": _refusal, "structure": "ConstituencyTree"}

# At least the Σ ⌊n / w⌋ slots of kernels.constituency.mixtures, which a compiler could not count for an unknown n.
SLOTS = "n * (3 if n < 16 else 4 if n < 40 else 5 if n < 100 else 8 if n < 2000 else n)"


# ---- without labels

_SHAPED_LIKE_SCORES = {
    "argmax": (0, 2),
    "topk": (0, 3),
    "log_partition": (0,),
    "partition": (0, 3),
    "hessian_product": (0, 2, 3),
    "sample": (0, 4),
    "mixture": (0, 6),
    "mixture_backward": (0, 5, 6),
}
"""Which arguments of a kernel are scores, vertices or points."""


def _with_one_label(kernel: Kernel, places: tuple[int, ...]) -> Kernel:
    """The kernel for arrays that have no axis of labels at these places."""

    def run(*arguments: Any) -> int:
        return kernel(*(given[..., None] if i in places else given for i, given in enumerate(arguments)))

    return run


class _WithoutLabels:
    """The kernels, for spans that have no labels."""

    def __init__(self) -> None:
        for name, places in _SHAPED_LIKE_SCORES.items():
            setattr(self, name, _with_one_label(getattr(kernels.constituency, name), places))


def _write_words(point: Array, lengths: Array) -> None:
    """The single words are in every tree."""
    for spans, n in zip(point, lengths):
        spans[np.arange(n), np.arange(n)] = 1.0


def _write_only_labels(point: Array, lengths: Array) -> None:
    """The chart has the labels of single words, unless there is only one."""
    if point.shape[-1] == 1:
        _write_words(point, lengths)


trees = family(
    "constituency",
    "scores[n, n], lengths[] <= n",
    "n, n",
    _WithoutLabels(),
    slots=SLOTS,
    capacity="n * (n + 1) // 2 if n < 80 else 32 * n",
    flat=ByChart(chart=lambda: SPANS, least=40, parts=18.0, complete=_write_words),
    **_OPTIONS,
)
labelled_trees = family(
    "labelled_constituency",
    "scores[n, n, t], lengths[] <= n",
    "n, n, t",
    kernels.constituency,
    slots=SLOTS,
    capacity="n * (n + 1) // 2 * t if n * t < 80 else 32 * n",
    flat=ByChart(chart=lambda: SPANS, least=10, parts=25.0, least_parts=700, complete=_write_only_labels),
    **_OPTIONS,
)

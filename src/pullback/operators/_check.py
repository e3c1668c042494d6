"""An assertion about data that survives compilation."""

import numpy as np
import torch
import torch.fx.node
from torch import Tensor

from pullback.operators._kernel_operator import EXAMPLES, name_example, refuse_out_of_range
from pullback.operators._register import register


def _check(ok: Tensor, message: str) -> Tensor:
    if not ok.all():
        index = int(np.flatnonzero(~ok.numpy())[0])
        place = [int(i) for i in np.unravel_index(index, ok.shape)] if ok.dim() else ""
        named = message.replace("example {example}", name_example(index, ok.shape))
        raise ValueError(named.format(example=place))
    return ok.clone()


check = register("check(Tensor ok, str message) -> Tensor", _check, lambda ok, message: torch.empty_like(ok))
"""Raises `message` unless every entry of `ok` is true; `{example}` in it becomes the index of the first that is not.

Where there is one instance and no batch, `example {example}` becomes `the instance`.
"""

EXAMPLES["check"] = lambda: (torch.ones(3, dtype=torch.bool), "message")


def _check_range(lengths: Tensor, most: list[int], structure: str, advice: str) -> Tensor:
    axes, numbers = len(most), lengths.numpy()
    batch = numbers.shape if axes == 1 else numbers.shape[:-1]
    limit = most[0] if axes == 1 else tuple(most)
    refuse_out_of_range(structure, "lengths", numbers.reshape(-1, *numbers.shape[len(batch) :]), limit, batch, advice)
    return lengths.clone()


check_range = register(
    "check_range(Tensor lengths, int[] most, str structure, str advice) -> Tensor",
    _check_range,
    lambda lengths, *_: torch.empty_like(lengths),
)
"""Raises unless every length, with one or several numbers, is between 0 and `most`, in the words that kernels have."""

EXAMPLES["check_range"] = lambda: (torch.ones(3, dtype=torch.int64), [2], "Structure", "")

# What they return is never read, and they have to stay in compiled graphs all the same.
torch.fx.node.has_side_effect(torch.ops.pullback.check.default)
torch.fx.node.has_side_effect(torch.ops.pullback.check_range.default)

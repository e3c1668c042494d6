"""An assertion about data that survives compilation."""

import numpy as np
import torch
import torch.fx.node
from torch import Tensor

from pullback.operators._kernel_operator import EXAMPLES
from pullback.operators._register import register


def _check(ok: Tensor, message: str) -> Tensor:
    if not ok.all():
        example = [int(i) for i in np.argwhere(~ok.numpy())[0]]
        raise ValueError(message.format(example=example))
    return ok.clone()


check = register("check(Tensor ok, str message) -> Tensor", _check, lambda ok, message: torch.empty_like(ok))
"""Raises `message` unless every entry of `ok` is true; `{example}` in it becomes the index of the first that is not."""

EXAMPLES["check"] = lambda: (torch.ones(3, dtype=torch.bool), "message")

# What `check` returns is never read, and it has to stay in compiled graphs all the same.
torch.fx.node.has_side_effect(torch.ops.pullback.check.default)

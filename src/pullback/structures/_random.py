"""Random numbers for samples: drawn where the generator is, on the host if there is none."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def uniforms(shape: Sequence[int], generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Numbers in [0, 1) in double precision, on `device`."""
    return torch.rand(tuple(shape), dtype=torch.float64, **_source(generator)).to(device)


def seeds(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """A seed for the samples of each example."""
    return torch.randint(2**63 - 1, tuple(shape), **_source(generator))


def _source(generator: torch.Generator | None) -> dict[str, Any]:
    """What to draw with; compilers take no generator, not even None, where the sizes may change."""
    return {"device": "cpu"} if generator is None else {"device": generator.device, "generator": generator}

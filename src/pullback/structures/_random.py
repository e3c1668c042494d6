"""Random numbers for samples: drawn where the generator is, on the host if there is none."""

from collections.abc import Sequence

import torch
from torch import Tensor


def uniforms(shape: Sequence[int], generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Numbers in [0, 1) in double precision, on `device`."""
    drawn = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=_home(generator))
    return drawn.to(device)


def seeds(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """A seed for the samples of each example."""
    return torch.randint(2**63 - 1, tuple(shape), generator=generator, device=_home(generator))


def _home(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device

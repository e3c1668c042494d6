"""What structures over a list of items share: their subsets, and points as mixtures of subsets."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.structures._limits import check_count
from pullback.structures._results import Mixture

NO_BEST_SUBSETS = (
    "there is no kernel for the k best subsets; `support` lists those that SparseMAP mixes, `enumerate` all of them "
    "where there are few, and `sample` draws some."
)
_ROUNDING = 1e-13  # per item; a subset with a smaller share is there by rounding alone


def list_subsets(name: str, n: int, sizes: Sequence[int]) -> Tensor:
    """Every subset of n items that has one of the sizes, as zeros and ones: (subsets, n)."""
    total = sum(math.comb(n, size) for size in sizes)
    check_count(name, total, f"{n} items have {{}} vertices")
    every = torch.zeros(total, n)
    first = 0
    for size in sizes:
        chosen = torch.tensor(list(itertools.combinations(range(n), size)), dtype=torch.long)
        every[first : first + len(chosen)].scatter_(1, chosen, 1.0)
        first += len(chosen)
    return every


def are_subsets(vertices: Tensor, allowed: Tensor | None) -> Tensor:
    """Whether each of `vertices` (..., n) is made of zeros and ones, with ones at allowed items only: (...)."""
    ones = vertices == 1 if allowed is None else (vertices == 1) & allowed
    return ((vertices == 0) | ones).all(-1)


def mix_subsets(point: Tensor) -> Mixture:
    """A point 0 ≤ μ ≤ 1 as a mixture of subsets, each with ⌊Σμ⌋ or ⌈Σμ⌉ items; differentiable in the point.

    Lay the items end to end, item i on the interval from Cᵢ₋₁ to Cᵢ = μ₁ + … + μᵢ.  The marks u, u + 1, u + 2, … hit
    item i for a share μᵢ of the offsets 0 ≤ u < 1, and the subset they hit changes only where u passes the fractional
    part of some Cᵢ (systematic sampling).  So there are at most as many subsets as fractional entries, and one more
    where Σμ is fractional; they are affinely independent.  Reference: Madow (1949).
    """
    fraction = torch.where(point == 1, 0, point.double())  # a whole item is in every subset
    ends = fraction.cumsum(-1)
    cuts = (ends - ends.detach().floor()).sort(-1).values
    edge = torch.zeros_like(cuts[..., :1])
    cuts = torch.cat([edge, cuts, edge + 1], -1)
    widths = cuts.diff(dim=-1)  # (..., n + 1)
    in_use = widths > _ROUNDING * (point.shape[-1] + 10)
    size = in_use.sum(-1)
    most = int(size.max()) if size.numel() else 0
    order = torch.sort((~in_use).to(torch.uint8), dim=-1, stable=True).indices[..., :most]
    used = in_use.gather(-1, order)
    probabilities = torch.where(used, widths.gather(-1, order), 0).to(point.dtype)

    marks = (cuts[..., :-1] + widths / 2).detach().gather(-1, order).unsqueeze(-1)
    ends = ends.detach().unsqueeze(-2)
    starts = torch.nn.functional.pad(ends[..., :-1], (1, 0))
    hit = ((ends - marks).ceil() > (starts - marks).ceil()) | (point == 1).unsqueeze(-2)
    return Mixture((hit & used.unsqueeze(-1)).to(point.dtype), probabilities, size)

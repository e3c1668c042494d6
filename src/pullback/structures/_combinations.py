"""One vertex from each of several structures: all of them, those that mix, and the best.

Each structure is a *block*; its vertices are flat, and a combination is their concatenation.
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.structures._limits import MOST_IN_MIXTURE, TooManyVertices, check_count
from pullback.structures._results import Mixture


def list_combinations(name: str, blocks: Sequence[Tensor]) -> Tensor:
    """Vertices (mᵢ, partsᵢ) of each block, combined in every way: (Π mᵢ, Σ partsᵢ)."""
    total = math.prod(len(block) for block in blocks)
    what = f"{len(blocks)} blocks have {{}} combinations of vertices"
    check_count(name, total, what, "  Sampling and `topk` need no list.")
    chosen = torch.tensor(list(itertools.product(*(range(len(block)) for block in blocks))), dtype=torch.long)
    return torch.cat([block[chosen[:, i]] for i, block in enumerate(blocks)], -1)


def combine_mixtures(name: str, blocks: Sequence[Mixture]) -> Mixture:
    """The mixture of all combinations, whose probabilities are products.

    The vertices of each block are (*batch, mᵢ, partsᵢ), those of the combinations (*batch, m, Σ partsᵢ).
    """
    every = blocks[0]
    for block in blocks[1:]:
        probabilities = (every.probabilities.unsqueeze(-1) * block.probabilities.unsqueeze(-2)).flatten(-2)
        size = every.size * block.size
        most = int(size.max()) if size.numel() else 0
        if most > MOST_IN_MIXTURE:
            raise TooManyVertices(
                f"{name}: {most} or more combinations of vertices mix; expected at most {MOST_IN_MIXTURE}.  "
                "`topk` lists the best combinations, and `sparsemap` gives the point without them."
            )
        order = torch.sort((probabilities.detach() == 0).to(torch.uint8), dim=-1, stable=True).indices[..., :most]
        left, right = order // block.probabilities.shape[-1], order % block.probabilities.shape[-1]
        vertices = torch.cat([_take(every.vertices, left), _take(block.vertices, right)], -1)
        probabilities = probabilities.gather(-1, order)
        used = torch.arange(most, device=size.device) < size.unsqueeze(-1)
        every = Mixture(vertices * used.unsqueeze(-1), probabilities, size)
    return every


def combine_best(blocks: Sequence[tuple[Tensor, Tensor]], k: int) -> tuple[Tensor, Tensor]:
    """The k best combinations: (*batch, k, Σ partsᵢ), best first, and their number.

    Each block gives its best vertices (*batch, k, partsᵢ) and their scores (*batch, k), −∞ where there are no more.
    """
    vertices, values = blocks[0]
    for more, scores in blocks[1:]:
        sums = (values.unsqueeze(-1) + scores.unsqueeze(-2)).flatten(-2)
        best = sums.topk(k, -1)
        left, right = best.indices // scores.shape[-1], best.indices % scores.shape[-1]
        vertices, values = torch.cat([_take(vertices, left), _take(more, right)], -1), best.values
    found = values > -torch.inf
    return vertices * found.unsqueeze(-1), found.sum(-1)


def _take(vertices: Tensor, index: Tensor) -> Tensor:
    """Vertices (*batch, m, parts) at the places (*batch, k)."""
    return vertices.gather(-2, index.unsqueeze(-1).expand(*index.shape, vertices.shape[-1]))

"""What follows from a support: the probabilities as functions of the scores, and how good the solution is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pullback.operators._search import Found, check_start
from pullback.structures._results import Solution

if TYPE_CHECKING:
    from pullback.structures._structure import Structure


def affine_probabilities(scores: Tensor, found: Found, event_dims: int, own: Tensor | None = None) -> Tensor:
    """The probabilities of a support as functions of the scores.

    Near the solution they minimize ½‖Σ pᵢ zᵢ − s‖² subject to Σ pᵢ = 1 alone, which is a linear system in the Gram
    matrix of the vertices.  Adding 11ᵀ to it changes nothing under that constraint and makes it regular whenever
    the vertices are affinely independent.  `own` are the scores that the vertices have beside those of their parts.
    """
    moves = scores.requires_grad or (own is not None and own.requires_grad)
    if not (torch.is_grad_enabled() and moves):
        return found.probabilities
    used = found.probabilities > 0
    rows = found.vertices.flatten(-event_dims).double() * used[..., None]
    values = (rows @ scores.masked_fill(scores == -torch.inf, 0).flatten(-event_dims).double()[..., None]).squeeze(-1)
    if own is not None:
        values = values + own.double().masked_fill(~used, 0)
    ones = used.double()
    gram = rows @ rows.mT + ones[..., None] * ones[..., None, :] + torch.diag_embed(1 - ones)
    factor = torch.linalg.cholesky(gram)
    solved = torch.cholesky_solve(torch.stack([values, ones], -1), factor)
    free, unit = solved[..., 0], solved[..., 1]
    affine = free + unit * ((1 - free.sum(-1)) / unit.sum(-1))[..., None]
    return found.probabilities + (affine - affine.detach()).to(scores.dtype)


def solution_of_support(structure: Structure, scores: Tensor, start: Tensor | None) -> Solution:
    """The solution of a structure whose `support` needs no search, and so no start."""
    structure._refuse_vmap("solve", scores)
    with torch.no_grad():
        scores = structure.restrict(scores)
        if start is not None:
            check_start(type(structure).__name__, start, *structure._split(scores.shape))
        mixture = structure.support(scores)
        point = mixture.mean()
        rest = scores.masked_fill(scores == -torch.inf, 0).double() - point
        best = structure.argmax(rest.masked_fill(scores == -torch.inf, -torch.inf))
        gap = (rest * (best - point)).flatten(-structure.event_dims).sum(-1)
    return Solution(mixture, gap, torch.zeros_like(mixture.size), torch.ones_like(gap, dtype=torch.bool))

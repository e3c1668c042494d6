"""The peers' dependency trees in our conventions: scores (batch, head, modifier), node 0 is the root.

Each class lays the scores out as its library wants them once, before any timing: a float32 tensor goes in and a tensor
comes out.  `to_ours` takes an arc matrix back, for comparing answers.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from . import _peers
from ._harness import optional


def tree_score(scores: Tensor, arcs: Tensor) -> Tensor:
    """⟨scores, arcs⟩ per example, without touching the diagonal and column 0 (their scores are never used)."""
    return torch.where(arcs > 0, scores * arcs, 0.0).sum((-2, -1))


def arcs_from_heads(heads: Tensor) -> Tensor:
    """Arc matrices (batch, head, modifier) from head indices (batch, modifier), of which column 0 is ignored."""
    arcs = torch.nn.functional.one_hot(heads, heads.shape[-1]).transpose(-2, -1).float()
    arcs[..., 0] = 0
    return arcs


class TorchStruct(_peers.TorchStruct):
    """torch-struct: (batch, n, n), head first, the root's arcs on the diagonal."""

    def __init__(self, scores: Tensor, *, projective: bool, single_root: bool):
        self.family = self.library.DependencyCRF if projective else self.library.NonProjectiveDependencyCRF
        self.multiroot = not single_root
        self.scores = self.from_ours(scores).requires_grad_()  # the projective one refuses scores without gradient

    @staticmethod
    def from_ours(matrix: Tensor) -> Tensor:
        inner = matrix[:, 1:, 1:].clone()
        inner.diagonal(dim1=1, dim2=2).copy_(matrix[:, 0, 1:])
        return inner

    @staticmethod
    def to_ours(matrix: Tensor) -> Tensor:
        n = matrix.shape[-1]
        ours = matrix.new_zeros(len(matrix), n + 1, n + 1)
        ours[:, 0, 1:] = matrix.diagonal(dim1=1, dim2=2)
        ours[:, 1:, 1:] = matrix - torch.diag_embed(matrix.diagonal(dim1=1, dim2=2))
        return ours

    @property
    def distribution(self):
        return self.family(self.scores, multiroot=self.multiroot)


class Supar(_peers.Supar):
    """supar: (batch, n + 1, n + 1), modifier first, node 0 is the root; `argmax` gives head indices."""

    def __init__(self, scores: Tensor, *, projective: bool, single_root: bool):
        self.family = self.library.DependencyCRF if projective else self.library.MatrixTree
        self.multiroot = not single_root
        self.scores = self.from_ours(scores).requires_grad_()

    @staticmethod
    def from_ours(matrix: Tensor) -> Tensor:
        return matrix.transpose(1, 2).contiguous()

    @staticmethod
    def to_ours(matrix: Tensor) -> Tensor:
        arcs = arcs_from_heads(matrix) if matrix.dim() == 2 else matrix.transpose(1, 2).clone()
        arcs[..., 0] = 0
        arcs.diagonal(dim1=1, dim2=2).zero_()
        return arcs

    @property
    def distribution(self):
        return self.family(self.scores, multiroot=self.multiroot)


class Ufal:
    """ufal.chu_liu_edmonds: one (n + 1, n + 1) array of doubles per sentence, modifier first, to a list of heads.

    The input is a float32 tensor and the output a tensor, as for every contender, so the conversions count.  A single
    root comes by a penalty on the root's arcs.
    """

    name, module = "ufal", "ufal.chu_liu_edmonds"

    def __init__(self, scores: Tensor, *, projective: bool, single_root: bool):
        self.decode = optional(self.module).chu_liu_edmonds
        self.scores = scores.detach().transpose(1, 2).contiguous()
        self.single_root = single_root

    def argmax(self) -> Tensor:
        decode, matrices = self.decode, self.scores.double()
        if self.single_root:
            matrices[:, :, 0] -= 1e4
        return torch.tensor([decode(matrix)[0] for matrix in matrices.numpy()])

    @staticmethod
    def to_ours(heads: Tensor) -> Tensor:
        return arcs_from_heads(heads.clamp(min=0))


class LpSparseMAP:
    """lp-sparsemap: a factor graph per sentence, (n, n), modifier first, the root's arcs on the diagonal.

    Non-projective trees are multi-root and projective ones single-root, whatever one asks for.
    """

    name, module = "lp-sparsemap", "lpsmap"

    def __init__(self, scores: Tensor, *, projective: bool, single_root: bool):
        self.library = optional(self.module)
        self.projective = projective
        self.scores = list(TorchStruct.from_ours(scores.detach()).transpose(1, 2).contiguous())

    def sparsemap(self) -> Tensor:
        points = []
        for scores in self.scores:
            graph = self.library.TorchFactorGraph()
            arcs = graph.variable_from(scores)
            graph.add(self.library.DepTree(arcs, packed=True, projective=self.projective))
            graph.solve(max_iter=1, max_inner_iter=1000, step_size=0)
            points.append(arcs.value)
        return torch.stack(points)

    @staticmethod
    def to_ours(points: Tensor) -> Tensor:
        return TorchStruct.to_ours(points.transpose(1, 2).contiguous())


class Peers:
    """The peers that are installed, each holding the same scores; a missing one is None."""

    def __init__(self, scores: Tensor, *, projective: bool = False, single_root: bool = False):
        self.arguments = {"projective": projective, "single_root": single_root}
        self.ours = scores

    def _make(self, family: type):
        return family(self.ours, **self.arguments) if optional(family.module) else None

    @cached_property
    def torch_struct(self) -> TorchStruct | None:
        return self._make(TorchStruct)

    @cached_property
    def supar(self) -> Supar | None:
        return self._make(Supar)

    @cached_property
    def ufal(self) -> Ufal | None:
        return self._make(Ufal)

    @cached_property
    def lp_sparsemap(self) -> LpSparseMAP | None:
        return self._make(LpSparseMAP)

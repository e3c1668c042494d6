"""Dependency trees over the words of a sentence."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.operators import tree_sparsemap, trees
from pullback.operators._family import Family
from pullback.structures._capabilities import relative_to_best
from pullback.structures._compiled import Compiled
from pullback.structures._constants import constant
from pullback.structures._limits import check_count


@constant
def _nodes_and_arcs(size: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """0, 1, …, and the arcs between so many nodes that any tree may have: into words, from other nodes."""
    nodes = torch.arange(size, device=device)
    return nodes, (nodes > 0) & (nodes.unsqueeze(-1) != nodes)


@dataclass(frozen=True, eq=False)
class DependencyTree(Compiled):
    """Trees in which every word has one head: another word, or the root.

    Scores: (..., n + 1, n + 1), scores[..., head, modifier]; node 0 is the root.  Column 0 and the diagonal are
    never read and are exactly zero in every output and gradient.

    lengths: the number of words of each example, n if not given;  words beyond it are padding, and 0 words give zeros.
    mask: (..., n + 1, n + 1), true for arcs that are allowed.
    projective: no two arcs cross, so that every head governs a contiguous span.
    single_root: exactly one word hangs on the root; any number if not.

    With n words there are (n + 1)ⁿ⁻¹ trees, nⁿ⁻¹ with a single root.  Argmax: O(n²) by contraction, projective O(n³) by
    Eisner's chart.  Log-partition and marginals: O(n³), by the matrix-tree theorem or the chart.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    projective: bool = False
    single_root: bool = False
    event_dims = 2
    room = trees.ROOM

    # ---- inference

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The mixture of trees nearest to `scores`: by cuts, or by the active-set method when projective or peaked."""
        if self.projective:
            return super().sparsemap(scores)
        return tree_sparsemap.project(*self._prepare(scores), self.single_root)[0]

    def marginals(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        linearized = torch.is_grad_enabled() and scores.requires_grad and not self.projective
        partition = trees.linearized_partition if linearized else self._operators.partition
        return partition(scores, lengths, self.single_root)[1]

    @property
    def _operators(self) -> Family:
        return trees.projective_trees if self.projective else trees.trees

    @property
    def _numbers(self) -> tuple[bool]:
        return (self.single_root,)

    # ---- what a tree is

    def longest(self, event: Sequence[int]) -> tuple[int]:
        return (event[-1] - 1,)

    def check_event(self, event: torch.Size) -> None:
        if event[0] != event[1]:
            raise ValueError(
                f"DependencyTree: scores have parts of shape {tuple(event)}; expected (..., n + 1, n + 1) for n words, "
                "node 0 being the root."
            )

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        nodes, arcs = _nodes_and_arcs(shape[-1], device)
        if self.lengths is not None:
            inside = nodes <= self.lengths.to(device).unsqueeze(-1)
            arcs = arcs & inside.unsqueeze(-1) & inside.unsqueeze(-2)
        return arcs if self.mask is None else arcs & self.mask.to(device)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        (n,) = length
        check_count("DependencyTree", (n + 1) ** n)
        heads = torch.tensor(list(itertools.product(range(n + 1), repeat=n)), dtype=torch.long)
        arcs = torch.zeros(len(heads), *event)
        arcs[:, :, 1 : n + 1] = torch.nn.functional.one_hot(heads, event[-1]).mT.to(arcs.dtype)
        return arcs[self._are_trees(arcs, torch.full((len(heads),), n))]

    def contains(self, vertices: Tensor) -> Tensor:
        self.check_event(vertices.shape[-2:])
        answer = self._are_trees(vertices, self._lengths_of(vertices))
        if self.mask is not None:
            answer = answer & ~((vertices != 0) & ~self.mask.to(vertices.device)).flatten(-2).any(-1)
        return answer

    def _are_trees(self, arcs: Tensor, lengths: Tensor | None) -> Tensor:
        return trees.heads(arcs, lengths, self.projective, self.single_root)[..., 0] == 0

    def _without_offset(self, scores: Tensor) -> Tensor:
        return relative_to_best(scores, -2)

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[-1]).expand(*event)

    # ---- heads

    @staticmethod
    def heads(arcs: Tensor) -> Tensor:
        """The heads (..., n) of trees given as arc matrices (..., n + 1, n + 1): 0 for the root, −1 for no head."""
        found = arcs[..., :, 1:] != 0
        return torch.where(found.any(-2), found.to(torch.uint8).argmax(-2), -1)

    @staticmethod
    def arcs(heads: Tensor) -> Tensor:
        """The arc matrices (..., n + 1, n + 1) of trees given as heads (..., n): 0 is the root, −1 is no head."""
        size = heads.shape[-1] + 1
        words = torch.nn.functional.one_hot(heads.clamp_min(0), size).mT * (heads >= 0).unsqueeze(-2)
        return torch.nn.functional.pad(words.to(torch.get_default_dtype()), (1, 0))

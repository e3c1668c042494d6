"""Dependency trees over the words of a sentence."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.operators import tree_sparsemap, trees
from pullback.structures._slots import Slots
from pullback.structures._structure import Enumerable, KBest, LogLinear, draw

_MOST = 2**22


@dataclass(frozen=True, eq=False)
class DependencyTree(Slots, LogLinear, KBest, Enumerable):
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

    @property
    def event_dims(self) -> int:
        return 2

    # ---- inference

    def argmax(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        return self._trees.argmax(scores.detach(), lengths, self.single_root)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The mixture of trees nearest to `scores`: by cuts, or by the active-set method when projective or peaked."""
        project = tree_sparsemap.project_projective if self.projective else tree_sparsemap.project
        return project(*self._prepare(scores), self.single_root)[0]

    def log_partition(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        if torch.is_grad_enabled() and scores.requires_grad:
            return self._trees.partition(scores, lengths, self.single_root)[0]
        return self._trees.log_partition(scores, lengths, self.single_root)

    def marginals(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        differentiable = torch.is_grad_enabled() and scores.requires_grad
        linearized = differentiable and not self.projective
        partition = trees.linearized_partition if linearized else self._trees.partition
        return partition(scores, lengths, self.single_root)[1]

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        return draw(self._trees.sample, *self._prepare(scores), sample_shape, generator, self.single_root)

    def _best(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return self._trees.topk(*self._prepare(scores), k, self.single_root)

    def _mix(self, scores: Tensor, lengths: Tensor, start: Tensor, *limits: float) -> tuple[Tensor, ...]:
        return self._trees.mixture(scores, lengths, self.single_root, start, *limits)

    @property
    def _trees(self) -> trees.TreeOperators:
        return trees.projective if self.projective else trees.any_order

    # ---- what a tree is

    def longest(self, event: Sequence[int]) -> int:
        return event[-1] - 1

    def check_event(self, event: torch.Size) -> None:
        if event[0] != event[1]:
            raise ValueError(
                f"DependencyTree: scores have parts of shape {tuple(event)}; expected (..., n + 1, n + 1) for n words, "
                "node 0 being the root."
            )

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        nodes = torch.arange(shape[-1], device=device)
        words = nodes > 0
        arcs = words & (nodes.unsqueeze(-1) != nodes)
        if self.lengths is not None:
            inside = nodes <= self.lengths.to(device).unsqueeze(-1)
            arcs = arcs & inside.unsqueeze(-1) & inside.unsqueeze(-2)
        return arcs if self.mask is None else arcs & self.mask.to(device)

    def vertices(self, event: Sequence[int]) -> Tensor:
        size = event[-1]
        lengths = [size - 1] if self.lengths is None else sorted(set(self.lengths.flatten().tolist()))
        return torch.cat([self._list_trees(n, size) for n in lengths])

    def _list_trees(self, n: int, size: int) -> Tensor:
        if (n + 1) ** n > _MOST:
            raise ValueError(
                f"DependencyTree: {n} words have {(n + 1) ** (n - 1)} trees; expected at most 7 words to list."
            )
        heads = torch.tensor(list(itertools.product(range(n + 1), repeat=n)), dtype=torch.long)
        arcs = torch.zeros(len(heads), size, size)
        arcs[:, :, 1 : n + 1] = torch.nn.functional.one_hot(heads, size).mT.to(arcs.dtype)
        words = torch.full((len(heads),), n)
        return arcs[trees.heads(arcs, words, self.projective, self.single_root)[..., 0] == 0]

    def contains(self, vertices: Tensor) -> Tensor:
        self.check_event(vertices.shape[-2:])
        answer = trees.heads(vertices, self._lengths_of(vertices), self.projective, self.single_root)[..., 0] == 0
        if self.mask is not None:
            answer = answer & ~((vertices != 0) & ~self.mask.to(vertices.device)).flatten(-2).any(-1)
        return answer

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[-1]).expand(*event)

    # ---- heads

    @staticmethod
    def heads(arcs: Tensor) -> Tensor:
        """Arc matrices (..., n + 1, n + 1) as head indices (..., n): 0 for the root, −1 for a word without a head."""
        found = arcs[..., :, 1:] != 0
        return torch.where(found.any(-2), found.to(torch.uint8).argmax(-2), -1)

    @staticmethod
    def arcs(heads: Tensor) -> Tensor:
        """Head indices (..., n) as arc matrices (..., n + 1, n + 1); −1 gives a word no head."""
        size = heads.shape[-1] + 1
        words = torch.nn.functional.one_hot(heads.clamp_min(0), size).mT * (heads >= 0).unsqueeze(-2)
        return torch.nn.functional.pad(words.to(torch.get_default_dtype()), (1, 0))

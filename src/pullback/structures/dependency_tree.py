"""Dependency trees over the words of a sentence."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pullback.structures import _tree_operators as trees
from pullback.structures import _tree_projections as projections
from pullback.structures._projection import Projection, check_start
from pullback.structures._structure import LogLinear, check_lengths, check_mask

_MOST = 2**22


class TopK(NamedTuple):
    """The best structures in decreasing order of score.

    vertices: (..., k, *event);  scores: (..., k), −∞ beyond `count`;  count: (...), below k only if there are no more.
    """

    vertices: Tensor
    scores: Tensor
    count: Tensor  # type: ignore[assignment]  # shadows tuple.count


@dataclass(frozen=True, eq=False)
class DependencyTree(LogLinear):
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

    event_dims: ClassVar[int] = 2

    lengths: Tensor | None = None
    mask: Tensor | None = None
    projective: bool = False
    single_root: bool = False

    # ---- inference

    def argmax(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        if scores.requires_grad:
            scores = scores.detach()
        return trees.argmax(scores, lengths, self.projective, self.single_root)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The mixture of trees nearest to `scores`: by cuts, or by the active-set method when projective or peaked."""
        scores, lengths = self._prepare(scores)
        if self.projective:
            start = projections.no_trees(lengths, scores.shape[-1])
            return projections.by_trees(scores, lengths, start, True, self.single_root, projections.GAP_OF_DERIVATIVE)[
                0
            ]
        return projections.project(scores, lengths, self.single_root)[0]

    def _project(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Projection:
        if spanning:
            return super()._project(scores, spanning=spanning, start=start)
        scores, lengths = self._prepare(scores)
        given = projections.no_trees(lengths, scores.shape[-1]) if start is None else self._given(start, scores)
        found = projections.by_trees(scores, lengths, given, self.projective, self.single_root, projections.GAP)
        point, heads, probabilities, count, gap, iterations = found
        most = int(count.max()) if count.numel() else 1
        inside = torch.arange(most, device=count.device) < count.unsqueeze(-1)
        words = torch.where(inside, lengths.unsqueeze(-1), 0)
        vertices = trees.arcs(probabilities, heads[..., :most, :], words)
        converged = projections.is_certified(gap, scores, point)
        return Projection(vertices, probabilities[..., :most], count, iterations + 1, gap, converged)

    def _given(self, start: Tensor, scores: Tensor) -> Tensor:
        """The heads of the trees in `start`, −1 for whatever else is there."""
        check_start(start, scores.shape[:-2], scores.shape[-2:])
        lengths = self._lengths(scores).unsqueeze(-1).expand(start.shape[:-2])
        return trees.heads(start.detach().to(scores.device), lengths, self.projective, self.single_root)

    def log_partition(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        if torch.is_grad_enabled() and scores.requires_grad:
            return trees.partition_and_marginals(scores, lengths, self.projective, self.single_root, False)[0]
        return trees.log_partition(scores, lengths, self.projective, self.single_root)

    def marginals(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        linearized = torch.is_grad_enabled() and scores.requires_grad
        return trees.partition_and_marginals(scores, lengths, self.projective, self.single_root, linearized)[1]

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        scores, lengths = self._prepare(scores)
        scores = scores.detach()
        seeds = torch.randint(2**63 - 1, lengths.shape, generator=generator)
        count = torch.Size(sample_shape).numel()
        drawn = trees.sample(scores, lengths, seeds, count, self.projective, self.single_root)
        return drawn.movedim(-3, 0).reshape(*sample_shape, *scores.shape)

    def topk(self, scores: Tensor, k: int) -> TopK:
        """The `k` best trees and their scores, all different; the scores are differentiable."""
        if not isinstance(k, int) or k < 1:
            raise ValueError(f"DependencyTree: k is {k!r}; expected an integer ≥ 1.")
        prepared, lengths = self._prepare(scores)
        vertices, count = trees.topk(prepared.detach(), lengths, k, self.projective, self.single_root)
        missing = torch.arange(k, device=count.device) >= count.unsqueeze(-1)
        values = (self.restrict(scores).unsqueeze(-3).masked_fill(vertices == 0, 0) * vertices).sum((-1, -2))
        return TopK(vertices, values.masked_fill(missing, -torch.inf), count)

    # ---- what a tree is

    def enumerate(self, event_shape: Sequence[int]) -> Tensor:
        size = event_shape[-1]
        lengths = [size - 1] if self.lengths is None else sorted(set(self.lengths.flatten().tolist()))
        every = [self._enumerate_words(n, size) for n in lengths]
        return torch.cat(every)

    def _enumerate_words(self, n: int, size: int) -> Tensor:
        if (n + 1) ** n > _MOST:
            raise ValueError(
                f"DependencyTree: {n} words have {(n + 1) ** (n - 1)} trees; expected at most 7 words to list."
            )
        heads = torch.tensor(list(itertools.product(range(n + 1), repeat=n)), dtype=torch.long)
        arcs = torch.zeros(len(heads), size, size)
        arcs[:, :, 1 : n + 1] = torch.nn.functional.one_hot(heads, size).mT.to(arcs.dtype)
        words = torch.full((len(heads),), n)
        return arcs[trees.contains(arcs, words, self.projective, self.single_root)]

    def contains(self, vertices: Tensor) -> Tensor:
        if vertices.shape[-1] != vertices.shape[-2]:
            raise ValueError(
                f"DependencyTree: vertices have shape {tuple(vertices.shape)}; expected (..., n + 1, n + 1)."
            )
        lengths = self._lengths(vertices)
        answer = trees.contains(vertices, lengths, self.projective, self.single_root)
        if self.mask is not None:
            answer = answer & ~((vertices != 0) & ~self.mask.to(vertices.device)).flatten(-2).any(-1)
        return answer

    def restrict(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        return scores.masked_fill(~trees.arcs_in_use(lengths, scores.shape[-1]), -torch.inf)

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

    # ---- plumbing

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Scores as the kernels read them, and one length per example."""
        scores = super().restrict(scores)
        if scores.shape[-1] != scores.shape[-2]:
            raise ValueError(f"DependencyTree: scores have shape {tuple(scores.shape)}; expected (..., n + 1, n + 1).")
        if self.mask is not None:
            check_mask("DependencyTree", self.mask, scores)
            scores = scores.masked_fill(~self.mask.to(scores.device), -torch.inf)
        return scores, self._lengths(scores)

    def _lengths(self, scores: Tensor) -> Tensor:
        batch, n = scores.shape[:-2], scores.shape[-1] - 1
        if self.lengths is None:
            return torch.full(batch, n, dtype=torch.int64, device=scores.device)
        check_lengths("DependencyTree", self.lengths, batch, n)
        return self.lengths.to(scores.device, torch.int64).expand(batch)

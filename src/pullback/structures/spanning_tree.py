"""Spanning trees and forests of undirected graphs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.operators import spanning_tree as operators
from pullback.operators._register import may_need_grad
from pullback.operators._search import Found
from pullback.structures._capabilities import (
    Enumerable,
    KBest,
    LogLinear,
    MissingCapability,
    relative_to_best,
    vertices_by_length,
)
from pullback.structures._checks import check_parts, check_sample_shape, check_tolerance
from pullback.structures._limits import check_count
from pullback.structures._listed import Index, are_indices, list_parts, write_parts
from pullback.structures._random import seeds
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class SpanningTree(LogLinear, KBest, Enumerable):
    """Trees that connect n nodes by n − 1 edges; `SpanningTree.forest(k)` has exactly n − k edges, and so k trees.

    Scores: (..., n, n), symmetric, as an edge has no direction: scores[..., i, j] and scores[..., j, i] are the same
    edge, and where they differ, their mean counts.  A vertex has ones in both halves, and the score of a tree counts
    each of its edges once, Σ s z over i < j.  The diagonal is never read, and zero in every output and gradient.

    lengths: the number of nodes of each example, n if not given;  nodes beyond it are padding, and 0 or 1 have no edge.
    mask: (..., n, n), true for edges that are allowed;  false at one of its two entries forbids an edge, as −∞ does.
    trees: how many trees there are; `SpanningTree.forest(k)` is the short form of `SpanningTree(trees=k)`.
    tolerance: the largest gap that `solve` and `support` may stop at, see `Structure.tolerance`; None is exact.

    There are nⁿ⁻² trees.  Argmax: O(n²), the greedy choice.  Log-partition and marginals: O(n³), by the matrix-tree
    theorem; forests of several trees have no such sums, for to count them is #P-hard.  SparseMAP splits the graph at
    sets of nodes that are too dense (Fujishige, 1980).
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    trees: int = 1
    tolerance: float | None = None
    event_dims = 2
    fixed_sums = (-2, -1)

    @classmethod
    def forest(
        cls, k: int, lengths: Tensor | None = None, mask: Tensor | None = None, *, tolerance: float | None = None
    ) -> SpanningTree:
        """Forests of k trees: every node is in one of them, and a tree may be a single node."""
        _check_trees("SpanningTree.forest: k", k)
        return cls(lengths, mask, trees=k, tolerance=tolerance)

    def __post_init__(self) -> None:
        check_tolerance("SpanningTree", self.tolerance)
        _check_trees("SpanningTree: trees", self.trees)

    def offers(self, capability: type[Structure]) -> bool:
        return isinstance(self, capability) and (self.trees == 1 or not issubclass(capability, LogLinear))

    def why_not(self, capability: type[Structure]) -> str:
        if capability is LogLinear:
            return (
                f"there is no fast way to sum over all forests of {self.trees} trees; forests have an argmax, "
                "topk and sparsemap, and sums are for a single tree, trees=1."
            )
        return super().why_not(capability)

    # ---- inference

    def argmax(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare_symmetric(scores)
        return operators.argmax(scores.detach(), lengths, self.trees)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return _symmetric(operators.project(*self._prepare_symmetric(scores), self.trees)[0])

    def log_partition(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare_sum("log_partition", scores)
        if may_need_grad(scores):
            return operators.partition(scores, lengths)[0]
        return operators.log_partition(scores, lengths)

    def marginals(self, scores: Tensor) -> Tensor:
        return 2 * operators.partition(*self._prepare_sum("marginals", scores))[1]  # each half has half of an edge

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        sample_shape = check_sample_shape("SpanningTree", sample_shape)
        scores, lengths = self._prepare_sum("sample", scores)
        seeded = seeds(self.batch_shape(scores), generator)
        drawn = operators.sample(scores.detach(), lengths, seeded, sample_shape.numel())
        return drawn.movedim(-3, 0).reshape(*sample_shape, *scores.shape)

    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return operators.topk(*self._prepare_symmetric(scores), self.trees, k)

    def _without_offset(self, scores: Tensor) -> Tensor:
        return relative_to_best(scores, (-2, -1))  # all trees have the same number of edges

    # ---- both halves hold an edge

    def count_once(self, numbers: Tensor) -> Tensor:
        return numbers / 2

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        found = super()._search(scores, spanning=spanning, start=start)  # which counts every edge twice
        return found._replace(gap=self.count_once(found.gap))

    def _tolerance_or(self, gap: float) -> float:
        return 2 * super()._tolerance_or(gap)

    def gradient_of_parts(self, gradient: Tensor) -> Tensor:
        return gradient + gradient.mT

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        scores, lengths = super()._prepare(scores)
        if self.mask is not None:
            scores = scores.masked_fill(~torch.atleast_2d(self.mask).mT.to(scores.device), -torch.inf)
        return scores, lengths

    def _prepare_symmetric(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        scores, lengths = self._prepare(scores)
        return _symmetric(scores), lengths

    def _prepare_sum(self, what: str, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        if self.trees > 1:
            raise MissingCapability(f"SpanningTree.{what}: {self.why_not(LogLinear)}")
        return self._prepare(scores)

    def forbid(self, scores: Tensor) -> Tensor:
        scores = super().forbid(scores)
        return scores.masked_fill(scores.mT == -torch.inf, -torch.inf)

    # ---- what a tree is

    def check_event(self, event: torch.Size) -> None:
        if event[0] != event[1]:
            raise ValueError(f"SpanningTree: scores have parts of shape {tuple(event)}; expected (..., n, n).")

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        nodes = torch.arange(shape[-1], device=device)
        edges = nodes.unsqueeze(-1) != nodes
        if self.lengths is not None:
            inside = nodes < self.lengths.to(device).unsqueeze(-1)
            edges = edges & inside.unsqueeze(-1) & inside.unsqueeze(-2)
        if self.mask is not None:
            mask = torch.atleast_2d(self.mask).to(device)
            edges = edges & mask & mask.mT
        return edges

    def vertices(self, event: Sequence[int]) -> Tensor:
        return vertices_by_length(self, event, lambda length: self._list_forests(length[0], event[0]))

    def _list_forests(self, n: int, size: int) -> Tensor:
        """Every choice of as many edges between n nodes as a forest has; those with a cycle do not belong."""
        pairs, edges = n * (n - 1) // 2, max(n, 1) - self.trees
        count = math.comb(pairs, edges) if edges >= 0 else 0
        check_count("SpanningTree", count, f"there are {{}} ways to choose {edges} edges")
        if count == 0:
            return torch.zeros(0, size, size)
        chosen = torch.tensor(list(itertools.combinations(range(pairs), edges)), dtype=torch.long)
        low, high = torch.triu_indices(n, n, 1)[:, chosen]
        rows = torch.arange(count).unsqueeze(-1)
        vertices = torch.zeros(count, size, size)
        vertices[rows, low, high] = vertices[rows, high, low] = 1.0
        return vertices

    # ---- edges

    @staticmethod
    def edges(vertex: Tensor) -> list[Any]:
        """The edges (i, j) with i < j of a tree or forest (n, n), in order; lists of them for a batch."""
        check_parts("SpanningTree.edges", "vertex", vertex, "n, n")
        lopsided = (vertex != vertex.mT).nonzero()
        if len(lopsided):
            place = lopsided[0].tolist()
            raise ValueError(
                f"SpanningTree.edges: vertex{place} is {vertex[tuple(place)].item():.4g}, and not so with its nodes "
                "exchanged; expected halves that are equal."
            )
        return list_parts(vertex, 2, lambda one: [tuple(edge) for edge in one.triu().nonzero().tolist()])

    @staticmethod
    def vertex(edges: Sequence[Any] | Tensor, n: int) -> Tensor:
        """The tree or forest (n, n) that has these edges (i, j), in any order; a batch from lists of them.

        Edges with a cycle are refused; how many trees there are to be is not known here.
        """

        def index_of(edge: Sequence[Any]) -> Index:
            if not are_indices(edge, (n, n)) or edge[0] == edge[1]:
                raise ValueError(
                    f"SpanningTree.vertex: an edge is {edge}; expected (i, j), two different nodes below {n}."
                )
            return tuple(edge)

        def check_cycles(edges: Sequence[Any]) -> None:
            tree = list(range(n))  # of each node, by the number of one of its nodes
            for i, j in edges:
                if tree[i] == tree[j]:
                    raise ValueError(
                        f"SpanningTree.vertex: the edges are {edges}, and ({i}, {j}) closes a cycle; expected the "
                        "edges of a tree or a forest."
                    )
                tree = [tree[i] if each == tree[j] else each for each in tree]

        half = write_parts("SpanningTree.vertex", edges, (n, n), index_of, check_cycles)
        return torch.maximum(half, half.mT)


def _check_trees(what: str, count: int) -> None:
    """The number of trees is an integer, at least 1; `what` says whose it is, and its name."""
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{what} is {count!r}; expected an integer ≥ 1.")


def _symmetric(matrix: Tensor) -> Tensor:
    """The mean of both halves; exact where they are equal.  Its gradient is symmetric too."""
    half = matrix / 2
    return half + half.mT

"""Paths through a directed acyclic graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from pullback.operators import paths
from pullback.operators._family import Family
from pullback.structures._checks import broadcasts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._paths import list_paths

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def _end(name: str, node: Any, device: torch.device) -> Tensor:
    """The source or the sink as a tensor; that it is not negative is checked where the nodes are numbered."""
    if isinstance(node, Tensor):
        if node.dtype not in _INTEGERS:
            raise TypeError(f"Path: the {name} has dtype {node.dtype}; expected an integer dtype.")
    elif isinstance(node, bool) or not isinstance(node, Integral):
        raise TypeError(
            f"Path: the {name} is {node!r}; expected an integer ≥ 0, or a tensor with one for each example."
        )
    return torch.as_tensor(node, device=device)


class _Numbered(CompiledLattice):
    """What a path keeps beside its fields: its graph as kernels read it, and which edges are on a path."""

    _graph: Tensor
    _used: Tensor


@dataclass(frozen=True, eq=False)
class Path(_Numbered):
    """Paths from a source to a sink of a directed acyclic graph: lattices of hypotheses, word graphs, plans.

    Scores: (..., m), one for each edge; a vertex is 1 at the edges of its path.

        edges = torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3], [0, 3]])     # tail, head
        pb.Path(edges, source=0, sink=3).argmax(scores)                    # scores: (..., 5)

    edges: (m, 2), the tail and the head of each edge, in any order; nodes have any numbers ≥ 0, and two edges may have
    the same ends.  Where examples have graphs of their own, (..., m, 2), with (−1, −1) for edges that do not exist.
    source, sink: the nodes where paths begin and end; integers, or tensors with one for each example.  If they are the
    same, the only path is the empty one, all zeros.
    mask: (..., m), true for edges that are allowed.
    tolerance: the largest gap that `solve` and `support` may stop at, see `Structure.tolerance`; None is exact.

    Edges that are on no path from source to sink are padding: never read, and zero in every output.  Argmax,
    log-partition, marginals and a sample take O(m).  SparseMAP is a projection onto the flows of one unit, by Newton's
    method on its dual.  The nodes are ordered, and a cycle is refused, when a `Path` is made: O(m).  Chains,
    segmentations and alignments are paths too, with graphs that need not be written down.
    """

    edges: Tensor
    source: int | Tensor
    sink: int | Tensor
    mask: Tensor | None = None
    _: KW_ONLY
    tolerance: float | None = None

    def __post_init__(self) -> None:
        check_tolerance("Path", self.tolerance)
        edges = self.edges
        if not isinstance(edges, Tensor) or edges.dtype not in _INTEGERS:
            kind = edges.dtype if isinstance(edges, Tensor) else type(edges).__name__
            raise TypeError(f"Path: edges are {kind}; expected a tensor of integers.")
        if edges.dim() < 2 or edges.shape[-1] != 2 or edges.shape[-2] == 0:
            raise ValueError(f"Path: edges have shape {tuple(edges.shape)}; expected (..., m, 2): tail and head.")
        ends = [_end(name, getattr(self, name), edges.device) for name in ("source", "sink")]
        try:
            batch = torch.broadcast_shapes(edges.shape[:-2], *(end.shape for end in ends))
        except RuntimeError as error:
            shapes = ", ".join(str(tuple(x.shape)) for x in (edges, *ends))
            raise ValueError(f"Path: edges, source and sink have shapes {shapes}; expected one batch.") from error
        edges = edges.long().expand(*batch, *edges.shape[-2:])
        graph, used = paths.path_graph(edges, *(end.long().expand(batch) for end in ends))
        object.__setattr__(self, "_graph", graph)
        object.__setattr__(self, "_used", used)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return paths.path_sparsemap(*self._prepare(scores))

    @property
    def _operators(self) -> Family:
        return paths.paths

    def check_event(self, event: torch.Size) -> None:
        if event[0] != self.edges.shape[-2]:
            raise ValueError(f"Path: scores have {event[0]} parts; expected one for each edge, {self.edges.shape[-2]}.")

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        return self._with_mask(self._used.to(device), device)

    def _prepare(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Scores as kernels read them, and the graph of each example."""
        scores, _ = super()._prepare(scores)
        batch, graph = scores.shape[:-1], self._graph.to(scores.device)
        if graph.shape[:-2] == batch:
            return scores, graph
        if not broadcasts(graph.shape[:-2], batch):
            raise ValueError(
                f"Path: the graphs have the batch shape {tuple(graph.shape[:-2])}; expected one that broadcasts to "
                f"that of the scores, {tuple(batch)}."
            )
        return scores, graph.expand(*batch, *graph.shape[-2:])

    def _slots(self, event: Sequence[int]) -> Tensor:
        """The number of the node that an edge leads to."""
        head, part = self._graph[..., 1, :-2], self._graph[..., 2, :-2]
        slots = torch.zeros_like(head)
        slots = torch.cat([slots, slots[..., :1]], -1)  # one more, for the edges that are not in use
        slots = slots.scatter(-1, torch.where(part < 0, event[0], part), head - 1)[..., :-1]
        return slots if slots.dim() == 1 else slots.unsqueeze(-2)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        graphs = self._graph.reshape(-1, *self._graph.shape[-2:])
        listed = torch.cat([list_paths("Path", graph, int(graph[1, -1]), event[0]) for graph in graphs])
        return (listed if len(graphs) == 1 else listed.unique(dim=0)).to(torch.get_default_dtype())

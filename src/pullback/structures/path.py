"""Paths through a directed acyclic graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from pullback.operators import path as operators
from pullback.operators._family import Family
from pullback.structures._checks import broadcasts, check_parts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._listed import Index, are_indices, as_lists, list_parts, write_parts
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
        graph, used = operators.graph_of(edges, *(end.long().expand(batch) for end in ends))
        object.__setattr__(self, "_graph", graph)
        object.__setattr__(self, "_used", used)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return operators.sparsemap(*self._prepare(scores))

    @property
    def _operators(self) -> Family:
        return operators.paths

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
        self._check_batch(batch)
        return scores, graph.expand(*batch, *graph.shape[-2:])

    def _check_batch(self, batch: torch.Size) -> None:
        graphs = self._graph.shape[:-2]
        if not broadcasts(graphs, batch):
            raise ValueError(
                f"Path: the graphs have the batch shape {tuple(graphs)}; expected one that broadcasts to that of the "
                f"scores, {tuple(batch)}."
            )

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

    # ---- routes

    def route(self, vertex: Tensor) -> list[Any]:
        """The numbers of the edges of a path, in order from source to sink; lists of them for a batch.

        vertex: (m,), one at each edge of the path.
        """
        return self._follow("route", vertex, lambda edges, nodes: edges)

    def nodes(self, vertex: Tensor) -> list[Any]:
        """The nodes of a path (m,), from source to sink; lists of them for a batch."""
        return self._follow("nodes", vertex, lambda edges, nodes: nodes)

    def vertex(self, route: Sequence[Any] | Tensor) -> Tensor:
        """The path (m,) that has the edges with these numbers, in any order; a batch from lists of them.

        Edges that do not lead from source to sink are refused; without any there is no path, and the row is zero.
        """
        m = self.edges.shape[-2]

        def index_of(edge: Sequence[Any]) -> Index:
            if not are_indices(edge, (m,)):
                raise ValueError(
                    f"Path.vertex: an edge of the route is {edge[0]!r}; expected a whole number from 0 to {m - 1}."
                )
            return tuple(edge)

        vertex = write_parts("Path.vertex", _as_items(as_lists(route)), (m,), index_of)
        self._follow("vertex", vertex, lambda edges, nodes: edges)
        return vertex

    def _follow(self, what: str, vertex: Tensor, choose: Callable[[list[int], list[int]], list[int]]) -> list[Any]:
        """What to `choose` of the edges and the nodes of each path, both in order."""
        check_parts(f"Path.{what}", "vertex", vertex, "m")
        self.check_event(vertex.shape[-1:])
        batch, m = self._split(vertex.shape)[0], vertex.shape[-1]
        self._check_batch(batch)
        ends = (_end(name, getattr(self, name), vertex.device).expand(batch) for name in ("source", "sink"))
        used, edges, sources, sinks = (
            each.reshape(-1, *each.shape[len(batch) :]).tolist()
            for each in (vertex, self.edges.expand(*batch, m, 2), *ends)
        )

        def follow(number: Tensor) -> list[int]:
            b = int(number)
            chosen = [e for e in range(m) if used[b][e]]
            found = _in_order(chosen, edges[b], sources[b], sinks[b])
            if found is None:
                raise ValueError(
                    f"Path.{what}: the edges {chosen} do not lead from {sources[b]} to {sinks[b]}; expected the edges "
                    "of one path."
                )
            return choose(*found)

        return list_parts(torch.arange(batch.numel()).reshape(batch), 0, follow)


def _as_items(route: Sequence[Any]) -> list[Any]:
    """Numbers as the items of a list of parts; lists of them stay lists."""
    return [_as_items(each) if isinstance(each, Sequence) else (each,) for each in route]


def _in_order(chosen: list[int], edges: list[list[int]], source: int, sink: int) -> tuple[list[int], list[int]] | None:
    """The chosen edges and the nodes they lead to, from source to sink; None if they are not one path.

    Without any edge, which is how vertices that do not exist are filled up, there are no nodes unless source and sink
    are the same.
    """
    from_tail = {edges[e][0]: e for e in chosen}
    route: list[int] = []
    nodes = [source] if chosen or source == sink else []
    while nodes and nodes[-1] in from_tail:
        route.append(from_tail.pop(nodes[-1]))
        nodes.append(edges[route[-1]][1])
    whole = len(route) == len(chosen) and (not nodes or nodes[-1] == sink)
    return (route, nodes) if whole else None

"""Constituency trees against torch-struct and supar, and how long SparseMAP takes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import pullback as pb

from . import _peers
from ._harness import (
    OURS,
    Figure,
    absolute,
    agree,
    case,
    faster_than,
    take_turns,
    with_gradient,
    with_threads,
)

SIZES = ((32, 25), (32, 40))  # sentences, words


def random_scores(batch: int, n: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(batch, n, n, generator=torch.Generator().manual_seed(n))


def size_of(batch: int, n: int) -> str:
    return f"{batch} × {n} words"


class TorchStruct(_peers.TorchStruct):
    """torch-struct's TreeCRF: (batch, n, n, labels), with one label."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = self.from_ours(scores).requires_grad_()

    @staticmethod
    def from_ours(scores: Tensor) -> Tensor:
        return scores.unsqueeze(-1).clone()

    @property
    def distribution(self):
        return self.library.TreeCRF(self.scores)


class Supar(_peers.Supar):
    """supar's ConstituencyCRF: (batch, n + 1, n + 1), a span by the gaps between words where it begins and ends."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = self.from_ours(scores).requires_grad_()

    @staticmethod
    def from_ours(scores: Tensor) -> Tensor:
        return torch.nn.functional.pad(scores, (1, 0, 0, 1)).contiguous()

    @property
    def distribution(self):
        return self.library.ConstituencyCRF(self.scores)


def _both(scores: Tensor) -> dict[str, TorchStruct | Supar | None]:
    return {peer.name: peer.of(scores) for peer in (TorchStruct, Supar)}


@case("constituency.argmax")
def argmax() -> Iterator[Figure]:
    """The algorithm of Cocke, Kasami and Younger against torch-struct and supar."""
    trees = pb.ConstituencyTree()
    for shape in SIZES:
        scores = random_scores(*shape)
        peers = _both(scores)
        for peer in filter(None, peers.values()):
            agree(trees.inner(scores, trees.argmax(scores)), peer.best().flatten(), "best tree", 1e-4)
        contenders = {name: peer and peer.argmax for name, peer in peers.items()}
        times = take_turns({OURS: lambda: trees.argmax(scores), **contenders}, rounds=(3, 15))
        for name in peers:
            yield faster_than(times, name, at_least=20.0, size=size_of(*shape))


@case("constituency.sums")
def sums() -> Iterator[Figure]:
    """Log-partition and marginals, forward and backward, against torch-struct and supar."""
    trees = pb.ConstituencyTree()
    for shape in SIZES:
        scores, weight = random_scores(*shape).requires_grad_(), random_scores(*shape).flip(0)
        peers = _both(scores.detach())
        for operation, cotangent, target in (("log_partition", None, 20.0), ("marginals", weight, 8.0)):
            contenders = {OURS: lambda: with_gradient(lambda: getattr(trees, operation)(scores), scores, cotangent)}
            for name, peer in peers.items():
                contenders[name] = None
                if peer:
                    agree(trees.log_partition(scores), peer.log_partition().flatten(), operation, 1e-3)
                    given = None if cotangent is None else peer.from_ours(cotangent)
                    contenders[name] = lambda peer=peer, given=given: with_gradient(
                        getattr(peer, operation), peer.scores, given
                    )
            times = take_turns(contenders, rounds=(3, 15))
            for name in peers:
                yield faster_than(times, name, at_least=target, size=f"{operation}, {size_of(*shape)}")


@case("constituency.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP from peaked to flat scores, forward and backward."""
    trees = pb.ConstituencyTree()
    for shape in ((8, 10), (8, 25)):
        for scale in (1.0, 0.1, 0.0):
            scores, weight = random_scores(*shape, scale).requires_grad_(), random_scores(*shape).flip(0)
            times = take_turns(
                {OURS: lambda: with_gradient(lambda: trees.sparsemap(scores), scores, weight)}, rounds=(2, 5)
            )
            yield absolute(times, per=shape[0], unit="s/tree", size=f"{size_of(*shape)}, scale {scale:g}")


@case("constituency.threads")
def threads() -> Iterator[Figure]:
    """Two threads against one, in a batch that takes one thread over 2 ms."""
    scores, trees = random_scores(512, 40), pb.ConstituencyTree()
    for name in ("marginals", "argmax"):
        call = lambda: getattr(trees, name)(scores)
        times = take_turns({OURS: with_threads(2, call), "one thread": with_threads(1, call)})
        yield faster_than(times, "one thread", at_least=1.5, size=f"{name}, {size_of(512, 40)}")

"""Linear chains against torch-struct, which takes the same tensor, and SparseMAP against the vertex active set."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import pullback as pb
from pullback.operators import chain as operators

from . import _peers
from ._harness import OURS, Figure, agree, case, faster_than, take_turns, with_gradient, with_threads

SIZES = ((32, 25, 10), (64, 50, 20), (16, 200, 32))  # sequences, positions, tags
SCALES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.01)
ACTIVE_SET = "active set"


def random_scores(batch: int, n: int, t: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(batch, n, t, t, generator=torch.Generator().manual_seed(n))


def size_of(batch: int, n: int, t: int) -> str:
    return f"{batch} × {n} positions, {t} tags"


class TorchStruct(_peers.TorchStruct):
    """torch-struct's linear chain: (batch, n − 1, tag at i + 1, tag at i), the first unary score in its first step."""

    def __init__(self, scores: Tensor) -> None:
        self.scores = self.from_ours(scores).requires_grad_()

    @staticmethod
    def from_ours(scores: Tensor) -> Tensor:
        steps = scores[:, 1:].transpose(-1, -2).clone()
        steps[:, 0] += scores[:, 0, 0].unsqueeze(-2)
        return steps.contiguous()

    @property
    def distribution(self):
        return self.library.LinearChainCRF(self.scores)


@case("chain.argmax")
def argmax() -> Iterator[Figure]:
    """Viterbi against torch-struct."""
    for shape in SIZES:
        scores = random_scores(*shape)
        peer, chain = TorchStruct.of(scores), pb.Chain()
        if peer:
            best = (peer.argmax().detach() * peer.scores).sum((-1, -2, -3))
            agree(chain.inner(scores, chain.argmax(scores)), best, "best sequence", 1e-4)
        times = take_turns({OURS: lambda: chain.argmax(scores), TorchStruct.name: peer and peer.argmax})
        yield faster_than(times, TorchStruct.name, at_least=10.0, size=size_of(*shape))


@case("chain.sums")
def sums() -> Iterator[Figure]:
    """Log-partition and marginals, forward and backward, against torch-struct."""
    for shape in SIZES:
        scores, chain = random_scores(*shape).requires_grad_(), pb.Chain()
        peer, weight = TorchStruct.of(scores.detach()), random_scores(*shape)
        for operation, cotangent in (("log_partition", None), ("marginals", weight)):
            ours = lambda: with_gradient(lambda: getattr(chain, operation)(scores), scores, cotangent)
            theirs = None
            if peer:
                agree(chain.log_partition(scores), peer.log_partition(), operation, 1e-3)
                given = None if cotangent is None else weight[:, 1:].transpose(-1, -2).contiguous()
                theirs = lambda: with_gradient(getattr(peer, operation), peer.scores, given)
            times = take_turns({OURS: ours, TorchStruct.name: theirs}, rounds=(3, 15))
            yield faster_than(times, TorchStruct.name, at_least=30.0, size=f"{operation}, {size_of(*shape)}")


@case("chain.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP against the vertex active set, from peaked to flat scores, forward."""
    chain = pb.Chain()
    for shape in ((8, 25, 10), (2, 50, 20)):
        for scale in SCALES[:-1] if shape[2] == 20 else SCALES:
            scores = random_scores(*shape, scale)
            lengths = torch.full(shape[:1], shape[1])
            start = torch.empty(shape[0], 0, shape[1], dtype=torch.int32)
            active_set = lambda: operators.sequences.mixture(scores, lengths, start, 1e-10, 10_000, 2000)[0]
            agree(chain.sparsemap(scores), active_set(), "sparsemap", 1e-4)
            times = take_turns({OURS: lambda: chain.sparsemap(scores), ACTIVE_SET: active_set}, rounds=(2, 15))
            note = f"{1e6 * times.median(OURS) / shape[0]:.0f} µs/sequence"
            target = 50.0 if scale <= 0.1 else 1 / 1.3
            size = f"{size_of(*shape)}, scale {scale:g}"
            yield faster_than(times, ACTIVE_SET, at_least=target, size=size, note=note)


@case("chain.threads")
def threads() -> Iterator[Figure]:
    """Two threads against one."""
    scores, chain = random_scores(64, 50, 20), pb.Chain()
    for name in ("marginals", "sparsemap"):
        call = lambda: getattr(chain, name)(scores)
        times = take_turns({OURS: with_threads(2, call), "one thread": with_threads(1, call)})
        yield faster_than(times, "one thread", at_least=1.5, size=f"{name}, {size_of(64, 50, 20)}")

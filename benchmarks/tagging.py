"""Taggings against pytorch-crf and supar; SparseMAP, which no peer has for the same polytope at a known gap."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import pullback as pb

from . import _peers
from ._harness import OURS, Figure, agree, case, faster_than, optional, slower_than, take_turns, with_gradient

SIZES = ((32, 25, 10), (64, 50, 20), (16, 200, 32))  # sequences, positions, tags
SCALES = (1000.0, 30.0, 1.0, 0.3, 0.1, 0.01, 1e-4, 0.0)


def random_inputs(batch: int, n: int, t: int, scale: float = 1.0) -> tuple[Tensor, ...]:
    """Scores, transitions, start and end that require grad."""
    generator = torch.Generator().manual_seed(n)
    shapes = ((batch, n, t), (t, t), (t,), (t,))
    return tuple((scale * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes)


def size_of(batch: int, n: int, t: int) -> str:
    return f"{batch} × {n} positions, {t} tags"


class TorchCRF:
    """pytorch-crf with given tables; its normalizer is not public, and takes positions first."""

    def __init__(self, scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> None:
        self.model = optional("torchcrf").CRF(scores.shape[-1], batch_first=True)
        for name, table in (("transitions", transitions), ("start_transitions", start), ("end_transitions", end)):
            setattr(self.model, name, torch.nn.Parameter(table.detach().clone()))
        self.scores = scores
        self.mask = torch.ones(scores.shape[:2], dtype=torch.bool)
        self.inputs = (scores, *self.model.parameters())

    def log_partition(self) -> Tensor:
        return self.model._compute_normalizer(self.scores.transpose(0, 1), self.mask.transpose(0, 1))

    def argmax(self) -> list[list[int]]:
        return self.model.decode(self.scores.detach(), self.mask)


class Supar(_peers.Supar):
    """supar's linear chain: transitions (t + 1, t + 1) with the start as last row and the end as last column."""

    def __init__(self, scores: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> None:
        t = scores.shape[-1]
        table = torch.full((t + 1, t + 1), 0.0)
        table[:t, :t], table[-1, :t], table[:t, -1] = transitions.detach(), start.detach(), end.detach()
        self.scores, self.table = scores, table.requires_grad_()
        self.inputs = (scores, self.table)
        self.lengths = torch.full(scores.shape[:1], scores.shape[1])

    @property
    def distribution(self):
        return self.library.LinearChainCRF(self.scores, self.table, self.lengths)


def _both(inputs: tuple[Tensor, ...]) -> dict[str, TorchCRF | Supar | None]:
    crf = TorchCRF(*inputs) if optional("torchcrf") else None
    return {"pytorch-crf": crf, Supar.name: Supar.of(*inputs)}


def tagging_of(inputs: tuple[Tensor, ...]) -> pb.Tagging:
    _, transitions, start, end = inputs
    return pb.Tagging(transitions, start=start, end=end)


def _gradients(
    call: Callable[[], Tensor], inputs: tuple[Tensor, ...], cotangent: Tensor | None
) -> Callable[[], object]:
    return lambda: with_gradient(call, inputs, cotangent)


@case("tagging.argmax")
def argmax() -> Iterator[Figure]:
    """Viterbi against pytorch-crf and supar."""
    for shape in SIZES:
        inputs = random_inputs(*shape)
        peers = _both(inputs)
        contenders = {name: peer and peer.argmax for name, peer in peers.items()}
        times = take_turns({OURS: lambda: tagging_of(inputs).argmax(inputs[0]), **contenders})
        for name in peers:
            yield faster_than(times, name, at_least=4.0, size=size_of(*shape))


@case("tagging.sums")
def sums() -> Iterator[Figure]:
    """Log-partition and marginals, forward and backward to scores and tables, against pytorch-crf and supar."""
    for shape in SIZES:
        inputs, weight = random_inputs(*shape), random_inputs(*shape)[0].detach()
        peers = _both(inputs)
        for operation, cotangent in (("log_partition", None), ("marginals", weight)):
            contenders = {
                OURS: _gradients(lambda: getattr(tagging_of(inputs), operation)(inputs[0]), inputs, cotangent)
            }
            for name, peer in peers.items():
                if peer is None or not hasattr(peer, operation):
                    contenders[name] = None
                    continue
                if operation == "log_partition":
                    agree(tagging_of(inputs).log_partition(inputs[0]), peer.log_partition(), operation, 1e-3)
                contenders[name] = _gradients(getattr(peer, operation), peer.inputs, cotangent)
            times = take_turns(contenders, rounds=(3, 15))
            for name in peers if operation == "log_partition" else (Supar.name,):
                yield faster_than(times, name, at_least=10.0, size=f"{operation}, {size_of(*shape)}")


@case("tagging.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP forward and backward, from peaked to flat scores, compared with scale 1."""
    for shape in ((32, 25, 10), (8, 50, 20), (4, 100, 5), (4, 20, 40)):
        weight = random_inputs(*shape)[0].detach()

        def call_at(scale: float) -> Callable[[], object]:
            inputs = random_inputs(*shape, scale)
            return _gradients(lambda: tagging_of(inputs).sparsemap(inputs[0]), inputs, weight)

        for scale in SCALES:
            times = take_turns({OURS: call_at(scale), "scale 1": call_at(1.0)}, seconds=1.0, rounds=(2, 7))
            note = f"{1e6 * times.median(OURS) / shape[0]:.0f} µs/sequence"
            yield slower_than(times, "scale 1", at_most=20.0, size=f"{size_of(*shape)}, scale {scale:g}", note=note)

"""Sparsemax and entmax against torch.softmax and the entmax package."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import pullback as pb

from ._harness import Call, Figure, agree, case, faster_than, optional, slower_than, take_turns

entmax = optional("entmax")

Mapping = Callable[[Tensor], Tensor]


def _there_and_back(mapping: Mapping, scores: Tensor, weight: Tensor) -> Call:
    """Forward and backward, as a training step would call them."""
    leaf = scores.clone().requires_grad_()

    def call() -> Tensor:
        leaf.grad = None
        point = mapping(leaf)
        point.backward(weight)
        return point

    return call


def _against_softmax(
    ours: Mapping, peers: dict[str, Mapping | None], limits: dict[tuple[int, int], float]
) -> Iterator[Figure]:
    for (batch, n), limit in limits.items():
        generator = torch.Generator().manual_seed(0)
        scores, weight = (torch.randn(batch, n, generator=generator) for _ in range(2))
        mappings = {"pullback": ours, "softmax": lambda s: s.softmax(-1), **peers}
        calls = {name: m and _there_and_back(m, scores, weight) for name, m in mappings.items()}
        for name in peers:
            if calls[name]:
                agree(calls["pullback"](), calls[name](), f"{name} at {batch}×{n}", tolerance=1e-5)
        times = take_turns(calls, rounds=(15, 60), turn=0.005)
        yield slower_than(times, "softmax", at_most=limit, size=f"{batch}×{n}")
        yield faster_than(times, tuple(peers), size=f"{batch}×{n}")


@case("simplex.sparsemax")
def sparsemax() -> Iterator[Figure]:
    """Sparsemax forward and backward against softmax and entmax, float32."""
    structure = pb.Categorical()
    peers = {
        "entmax": entmax and entmax.sparsemax,
        "entmax, k=100": entmax and (lambda s: entmax.sparsemax(s, k=100)),
    }
    limits = {(1024, 32): 2.5, (512, 1024): 1.6, (64, 32768): 1.0}
    yield from _against_softmax(structure.sparsemap, peers, limits)


@case("simplex.entmax15")
def entmax15() -> Iterator[Figure]:
    """1.5-entmax forward and backward against softmax and entmax, float32."""
    structure = pb.Categorical()
    peers = {
        "entmax": entmax and entmax.entmax15,
        "entmax, k=100": entmax and (lambda s: entmax.entmax15(s, k=100)),
    }
    limits = {(1024, 32): 2.5, (512, 1024): 1.7, (64, 32768): 1.1}
    yield from _against_softmax(lambda s: structure.entmax(s, 1.5), peers, limits)


@case("simplex.entmax")
def any_alpha() -> Iterator[Figure]:
    """α-entmax forward and backward, differentiable in α, against the bisection of entmax, float32."""
    structure = pb.Categorical()
    for batch, n in ((1024, 32), (512, 1024)):
        generator = torch.Generator().manual_seed(0)
        scores, weight = (torch.randn(batch, n, generator=generator) for _ in range(2))
        for order in (1.1, 1.7, 3.0):
            alpha = torch.full((batch,), order, requires_grad=True)
            ours = _there_and_back(lambda s, alpha=alpha: structure.entmax(s, alpha), scores, weight)
            theirs = None
            if entmax:
                bisect = lambda s, alpha=alpha: entmax.entmax_bisect(s, alpha.unsqueeze(-1))
                theirs = _there_and_back(bisect, scores, weight)
                agree(ours(), theirs(), f"α = {order} at {batch}×{n}", tolerance=1e-3)
            times = take_turns({"pullback": ours, "entmax": theirs})
            yield faster_than(times, "entmax", size=f"{batch}×{n}, α = {order}")

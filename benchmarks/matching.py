"""Matchings against SciPy and lapx, SparseMAP from flat to peaked scores, and Sinkhorn against POT."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

import pullback as pb

from ._harness import (
    OURS,
    Figure,
    absolute,
    agree,
    case,
    faster_than,
    optional,
    slower_than,
    take_turns,
    with_gradient,
    with_threads,
)

BATCH = 32
SIZES = {10: 1.5, 50: 1.0, 200: 1.0}
LP_SPARSEMAP = {1.0: 0.274, 0.1: 0.171}  # seconds for (32, 10, 10), measured in another run: it does not build here
SCIPY, LAPX, POT = "SciPy", "lapx", "POT"


def random_scores(n: int, scale: float = 1.0, batch: int = BATCH) -> Tensor:
    return scale * torch.randn(batch, n, n, generator=torch.Generator().manual_seed(n))


def _size(n: int) -> str:
    return f"{BATCH} × {n} × {n}"


@case("matching.argmax")
def argmax() -> Iterator[Figure]:
    """The best matching against SciPy and lapx, one instance after the other."""
    structure, lapx = pb.Matching(), optional("lap")
    for n, target in SIZES.items():
        scores = random_scores(n)
        costs = -scores.double().numpy()
        best = np.array([-cost[linear_sum_assignment(cost)].sum() for cost in costs])
        agree(structure.inner(scores, structure.argmax(scores)), torch.from_numpy(best), "best matching", 1e-3)
        calls = {
            OURS: lambda: structure.argmax(scores),
            SCIPY: lambda: [linear_sum_assignment(cost) for cost in costs],
            LAPX: lapx and (lambda: [lapx.lapjv(cost) for cost in costs]),
        }
        times = take_turns(calls)
        for peer in (SCIPY, LAPX):
            yield faster_than(times, peer, at_least=target, size=_size(n))


@case("matching.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP forward and backward, from flat to peaked scores."""
    structure = pb.Matching()
    for n in (10, 50):
        for scale in (0.0, 0.01, 0.1, 1.0, 10.0, 1000.0):
            scores = random_scores(n, scale).requires_grad_()
            usual, weight = random_scores(n).requires_grad_(), random_scores(n)
            call = lambda scores: lambda: with_gradient(lambda: structure.sparsemap(scores), scores, weight)
            times = take_turns({OURS: call(scores), "scale 1": call(usual)})
            yield slower_than(times, "scale 1", at_most=20.0, size=f"{_size(n)}, scale {scale:g}")
            if n == 10 and scale in LP_SPARSEMAP:
                limit = LP_SPARSEMAP[scale] / 300
                yield absolute(times, size=f"{_size(n)}, scale {scale:g}, 300 × lp-sparsemap", at_most=limit)


@case("matching.sinkhorn")
def sinkhorn() -> Iterator[Figure]:
    """Entropic matchings at a temperature of 0.1 to 1e-6, forward and backward, against POT's log-domain solver."""
    n, temperature = 50, 0.1
    scores, structure, weight = random_scores(n).double().requires_grad_(), pb.Matching(), random_scores(n).double()
    ours = lambda: with_gradient(lambda: pb.Sinkhorn(temperature).predict(structure, scores), scores, weight)
    pot, theirs = optional("ot"), None
    if pot:
        ones = torch.ones(n, dtype=torch.float64)

        def one(given: Tensor) -> Tensor:
            return pot.bregman.sinkhorn_log(ones, ones, -given, temperature, numItermax=1000, stopThr=1e-6, warn=False)

        theirs = lambda: with_gradient(lambda: torch.stack([one(given) for given in scores]), scores, weight)
    times = take_turns({OURS: ours, POT: theirs}, rounds=(1, 5))
    yield faster_than(times, POT, at_least=3.0, size=f"{_size(n)}, temperature {temperature}")


@case("matching.threads")
def threads() -> Iterator[Figure]:
    """Two threads against one."""
    scores, structure = random_scores(60, batch=64), pb.Matching()
    for name in ("argmax", "sparsemap"):
        call = lambda: getattr(structure, name)(scores)
        times = take_turns({OURS: with_threads(2, call), "one thread": with_threads(1, call)})
        yield faster_than(times, "one thread", at_least=1.5, size=f"{name}, 64 × 60 × 60")

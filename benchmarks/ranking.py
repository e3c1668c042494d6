"""Rankings: soft ranks against sorting alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import pullback as pb

from ._harness import OURS, Figure, absolute, case, faster_than, slower_than, take_turns

BATCH, ITEMS = 64, 1000

# Seconds for the batch, as stored with the other figures of the peers: torchsort, one thread, forward and backward.
TORCHSORT = 5.45e-3


def random_scores(scale: float = 1.0, seed: int = 0) -> torch.Tensor:
    return scale * torch.randn(BATCH, ITEMS, generator=torch.Generator().manual_seed(seed))


@case("ranking.soft_rank")
def soft_rank() -> Iterator[Figure]:
    """Soft ranks of 64 × 1000 scores, forward and backward: half of torchsort's time, beside torch.argsort alone."""
    cotangent, ranking = random_scores(seed=1), pb.Ranking()
    for scale in (1.0, 100.0, 1e4):
        scores, size = random_scores(scale).requires_grad_(), f"{BATCH} × {ITEMS}, scale {scale:g}"
        times = take_turns(
            {
                OURS: lambda: torch.autograd.grad(ranking.soft_rank(scores), scores, cotangent),
                "forward": lambda: ranking.soft_rank(scores.detach()),
                "torch.argsort": lambda: scores.detach().argsort(-1),
            }
        )
        note = f"torchsort, stored: {1e3 * TORCHSORT:.2f} ms; forward alone: {1e3 * times.median('forward'):.2f} ms"
        yield absolute(times, size=size, at_most=TORCHSORT / 2, unit="s", note=note)
        yield slower_than(times, "torch.argsort", size=size, note="an order has to be found before anything else")


@case("ranking.entropic")
def entropic() -> Iterator[Figure]:
    """Soft ranks in the geometry of the entropy, forward and backward."""
    cotangent, ranking, scores = random_scores(seed=1), pb.Ranking(), random_scores().requires_grad_()
    times = take_turns(
        {OURS: lambda: torch.autograd.grad(ranking.soft_rank(scores, regularizer="entropy"), scores, cotangent)}
    )
    yield absolute(times, size=f"{BATCH} × {ITEMS}", unit="s")


@case("ranking.argmax")
def argmax() -> Iterator[Figure]:
    """Ranks of 64 × 1000 scores against sorting twice, as one writes it in plain PyTorch."""
    scores, ranking = random_scores(), pb.Ranking()
    assert torch.equal(ranking.argmax(scores), (scores.argsort(-1).argsort(-1) + 1).float())
    times = take_turns({OURS: lambda: ranking.argmax(scores), "argsort twice": lambda: scores.argsort(-1).argsort(-1)})
    yield faster_than(times, "argsort twice", size=f"{BATCH} × {ITEMS}")

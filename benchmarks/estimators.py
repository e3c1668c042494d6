"""What an estimator adds to the inference it is built around."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import pullback as pb

from ._harness import OURS, Figure, absolute, case, slower_than, take_turns

BATCH, WORDS = 16, 10


@case("estimators.ste")
def ste() -> Iterator[Figure]:
    """One training step of STE on 16 × 10 words, loss and backward, around the bare argmax.

    As in a training loop: the estimator is made once, the structure for each batch.
    """
    generator = torch.Generator().manual_seed(0)
    lengths = torch.full((BATCH,), WORDS)
    scores = torch.randn(BATCH, WORDS + 1, WORDS + 1, generator=generator).requires_grad_()
    weight = torch.randn(WORDS + 1, WORDS + 1, generator=generator)

    def decode(z: torch.Tensor) -> torch.Tensor:
        return (z * weight).sum((-1, -2))

    estimator = pb.ste()

    def step() -> None:
        scores.grad = None
        estimator.loss(pb.DependencyTree(lengths), scores, decode).sum().backward()

    def argmax() -> torch.Tensor:
        return pb.DependencyTree(lengths).argmax(scores)

    def decoder_alone() -> None:
        scores.grad = None
        decode(scores).sum().backward()

    times = take_turns({OURS: step, "argmax": argmax, "decoder alone": decoder_alone})
    size = f"STE step, {BATCH} × {WORDS} words"
    yield absolute(times, size=size, at_most=250e-6)
    yield slower_than(times, "argmax", size=size)
    around = times.median(OURS) - times.median("argmax") - times.median("decoder alone")
    yield Figure(f"{size}, beside argmax and decoder", around, "s", times={OURS: around})

"""What an estimator adds to the inference it is built around."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


@case("estimators.overhead")
def overhead() -> Iterator[Figure]:
    """What `loss` and its backward add to the same step written by hand, 16 × 10 words.

    By hand: the bare calls of the structure in a `torch.autograd.Function`, or the usual detached difference.
    """
    generator = torch.Generator().manual_seed(0)
    trees = pb.DependencyTree(torch.full((BATCH,), WORDS))
    scores = torch.randn(BATCH, WORDS + 1, WORDS + 1, generator=generator).requires_grad_()
    weight = torch.randn(WORDS + 1, WORDS + 1, generator=generator)

    class Projected(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, scores: torch.Tensor) -> torch.Tensor:
            z: torch.Tensor = trees.argmax(scores.detach())
            ctx.save_for_backward(z)
            return z.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (z,) = ctx.saved_tensors
            return z - trees.project(z - gradient)

    def decode(point: torch.Tensor) -> torch.Tensor:
        return (point * weight).sum((-1, -2))

    def trained(latent: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
        def step() -> None:
            scores.grad = None
            decode(latent(scores)).mean().backward()

        return step

    def discrete(relax: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
        def latent(scores: torch.Tensor) -> torch.Tensor:
            relaxed = relax(scores)
            return relaxed + (trees.argmax(scores.detach()) - relaxed).detach()

        return trained(latent)

    by_hand = {
        "ste": discrete(lambda scores: scores),
        "spigot": trained(Projected.apply),
        "structured_attention": trained(trees.marginals),
        "sparsemap": trained(trees.sparsemap),
        "ste_marginals": discrete(trees.marginals),
        "ste_sparsemap": discrete(trees.sparsemap),
    }
    for name, bare in by_hand.items():
        estimator = pb.get_estimator(name)

        def step(estimator: pb.Estimator = estimator) -> None:
            scores.grad = None
            estimator.loss(trees, scores, decode).mean().backward()

        times = take_turns({OURS: step, "by hand": bare})
        added = times.median(OURS) - times.median("by hand")
        yield Figure(f"{name}, beside the same by hand", added, "s", at_most=150e-6, times={OURS: added})


@case("estimators.samples")
def samples() -> Iterator[Figure]:
    """Sixteen samples in one call, against one call on scores that are stacked sixteen times, 16 × 10 words.

    Methods that add noise to the scores are beside a call on stacked scores that adds as much.
    """
    generator = torch.Generator().manual_seed(0)
    trees, count = pb.DependencyTree(torch.full((BATCH,), WORDS)), 16
    scores = torch.randn(BATCH, WORDS + 1, WORDS + 1, generator=generator).requires_grad_()
    stacked = scores.detach().repeat(count, 1, 1, 1).requires_grad_()
    weight = torch.randn(WORDS + 1, WORDS + 1, generator=generator)
    noise = pb.Gumbel()

    def decode(point: torch.Tensor) -> torch.Tensor:
        return (point * weight).sum((-1, -2))

    def decode_each(points: torch.Tensor) -> torch.Tensor:
        return torch.stack([decode(point) for point in points])

    def several(estimator: pb.Estimator) -> Callable[[], None]:
        def run() -> None:
            scores.grad = None
            estimator.loss(trees, scores, decode).sum().backward()

        return run

    def one(estimator: pb.Estimator, *, noisy: bool) -> Callable[[], None]:
        def run() -> None:
            stacked.grad = None
            given = stacked + noise.draw(trees, stacked) if noisy else stacked
            estimator.loss(trees, given, decode_each).sum().backward()

        return run

    def smoothed() -> None:
        """The argmax of noisy scores, its mean, and the covariance of both with the decoder's gradient."""
        drawn = noise.draw(trees, stacked)
        vertices = trees.argmax(stacked.detach() + drawn)
        point = vertices.mean(0).requires_grad_()
        decode(point).sum().backward()
        product = ((vertices - vertices.mean(0)) * point.grad).sum((-1, -2), keepdim=True)
        scores.grad = (product * noise.slope(drawn)).mean(0)

    pairs = {
        "perturbed": (several(pb.perturbed(noise=noise, samples=count)), smoothed),
        "perturb_and_map": (several(pb.perturb_and_map(samples=count)), one(pb.ste_marginals(), noisy=True)),
        "reinforce": (several(pb.reinforce(count)), one(pb.reinforce(), noisy=False)),
    }
    for name, (ours, theirs) in pairs.items():
        times = take_turns({OURS: ours, "one stacked call": theirs})
        yield slower_than(times, "one stacked call", at_most=1.3, size=f"{name}, {count} samples")


@case("estimators.compare")
def compare() -> Iterator[Figure]:
    """`compare_gradients` with every estimator that serves, on 32 examples of five out of ten items."""
    generator = torch.Generator().manual_seed(0)
    structure, scores = pb.Subset(5), torch.randn(32, 10, generator=generator)
    goal = torch.randn(10, generator=generator).abs()
    names = [name for name, entry in pb.CATALOG.items() if entry.serves(structure) and not entry.given]

    def run() -> object:
        return pb.compare_gradients(structure, scores, lambda z: (z - goal).square().sum(-1), names)

    times = take_turns({OURS: run}, rounds=(1, 2))
    yield absolute(times, size=f"{len(names)} estimators", at_most=10.0)

"""What an estimator adds to the inference it is built around."""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
    """What `loss` and its backward add to the bare calls of the structure and to the decoder, 16 × 10 words."""
    generator = torch.Generator().manual_seed(0)
    trees = pb.DependencyTree(torch.full((BATCH,), WORDS))
    scores = torch.randn(BATCH, WORDS + 1, WORDS + 1, generator=generator).requires_grad_()
    weight = torch.randn(WORDS + 1, WORDS + 1, generator=generator)
    z, direction = trees.argmax(scores), weight.expand(scores.shape)  # the gradient that the decoder sends

    def decode(point: torch.Tensor) -> torch.Tensor:
        return (point * weight).sum((-1, -2))

    def decoder_alone() -> None:
        scores.grad = None
        decode(scores).sum().backward()

    def pulled_back(find: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
        def both() -> None:
            trees.argmax(scores)
            find(z - direction)

        return both

    def through(relax: Callable[[torch.Tensor], torch.Tensor], *, discrete: bool = False) -> Callable[[], None]:
        def there_and_back() -> None:
            scores.grad = None
            if discrete:
                trees.argmax(scores)
            relax(scores).backward(direction)

        return there_and_back

    parts = {
        "ste": lambda: trees.argmax(scores),
        "spigot": pulled_back(trees.project),
        "structured_attention": through(trees.marginals),
        "sparsemap": through(trees.sparsemap),
        "ste_marginals": through(trees.marginals, discrete=True),
        "ste_sparsemap": through(trees.sparsemap, discrete=True),
    }
    for name, bare in parts.items():
        estimator = pb.get_estimator(name)

        def step(estimator: pb.Estimator = estimator) -> None:
            scores.grad = None
            estimator.loss(trees, scores, decode).sum().backward()

        times = take_turns({OURS: step, "parts": bare, "decoder alone": decoder_alone})
        added = times.median(OURS) - times.median("parts") - times.median("decoder alone")
        yield Figure(f"{name}, beside its parts", added, "s", at_most=150e-6, times={OURS: added})


@case("estimators.samples")
def samples() -> Iterator[Figure]:
    """Sixteen samples in one call, against one call on scores that are stacked sixteen times, 16 × 10 words."""
    generator = torch.Generator().manual_seed(0)
    trees, count = pb.DependencyTree(torch.full((BATCH,), WORDS)), 16
    scores = torch.randn(BATCH, WORDS + 1, WORDS + 1, generator=generator).requires_grad_()
    stacked = scores.detach().repeat(count, 1, 1, 1).requires_grad_()
    weight = torch.randn(WORDS + 1, WORDS + 1, generator=generator)

    def decode(point: torch.Tensor) -> torch.Tensor:
        return (point * weight).sum((-1, -2))

    def decode_each(points: torch.Tensor) -> torch.Tensor:
        return torch.stack([decode(point) for point in points])

    def step(estimator: pb.Estimator, given: torch.Tensor, decoder: Callable[..., torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            given.grad = None
            estimator.loss(trees, given, decoder).sum().backward()

        return run

    for name, several, one in (
        ("perturb and MAP", pb.perturb_and_map(samples=count), pb.ste_marginals()),
        ("reinforce", pb.reinforce(count), pb.reinforce()),
    ):
        contenders = {OURS: step(several, scores, decode), "one stacked call": step(one, stacked, decode_each)}
        times = take_turns(contenders)
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

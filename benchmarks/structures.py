"""Every structure in turn: how its operations grow with the size, and what a second thread brings."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import pullback as pb

from ._harness import OURS, Figure, case, faster_than, take_turns, with_gradient, with_threads
from ._report import plot

LONGEST = 0.5  # seconds of a call: curves end before
ENOUGH = 5e-3  # seconds of a call that is worth a second thread, with some to spare


@dataclass(frozen=True)
class Member:
    """A structure, by its size n: how to make it, the shape of its scores, and the sizes to try."""

    name: str
    axis: str
    sizes: tuple[int, ...]
    make: Callable[[int], pb.Structure]
    event: Callable[[int], tuple[int, ...]]

    def scores(self, n: int, batch: int) -> Tensor:
        return torch.randn(batch, *self.event(n), generator=torch.Generator().manual_seed(n))


def grid(n: int) -> pb.Path:
    """Paths through a square of n nodes in a row, down or to the right."""
    node = torch.arange(n * n).reshape(n, n)
    down, right = (torch.stack([a.flatten(), b.flatten()], -1) for a, b in ((node[:-1], node[1:]), _columns(node)))
    return pb.Path(torch.cat([down, right]), 0, n * n - 1)


def _columns(node: Tensor) -> tuple[Tensor, Tensor]:
    return node[:, :-1], node[:, 1:]


def _tagging(n: int) -> pb.Tagging:
    shapes = ((10, 10), (10,), (10,))
    transitions, start, end = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) for shape in shapes)
    return pb.Tagging(transitions, start=start, end=end)


_SHORT, _LONG, _ITEMS = (10, 20, 40, 80), (10, 25, 50, 100, 200, 400), (10, 100, 1000, 10_000)
MEMBERS = (
    Member("Categorical", "items", _ITEMS, lambda n: pb.Categorical(), lambda n: (n,)),
    Member("Binary", "items", _ITEMS, lambda n: pb.Binary(), lambda n: (n,)),
    Member("Subset", "items, 10 chosen", (20, 100, 1000, 10_000), lambda n: pb.Subset(10), lambda n: (n,)),
    Member("Ranking", "items", _ITEMS, lambda n: pb.Ranking(), lambda n: (n,)),
    Member("Chain", "positions, 10 tags", _LONG[:-1], lambda n: pb.Chain(), lambda n: (n, 10, 10)),
    Member("Tagging", "positions, 10 tags", _LONG[:-1], _tagging, lambda n: (n, 10)),
    Member("Path", "nodes in a row", (5, 10, 20, 40), grid, lambda n: (2 * n * (n - 1),)),
    Member("Segmentation", "positions, width 4, 5 labels", _SHORT, lambda n: pb.Segmentation(), lambda n: (n, 4, 5)),
    Member("Alignment", "rows and columns", _SHORT, lambda n: pb.Alignment(), lambda n: (n, n, 3)),
    Member("DependencyTree", "words", _LONG[:-1], lambda n: pb.DependencyTree(), lambda n: (n + 1, n + 1)),
    Member(
        "DependencyTree, projective",
        "words",
        _SHORT,
        lambda n: pb.DependencyTree(projective=True),
        lambda n: (n + 1, n + 1),
    ),
    Member(
        "DependencyTree, labelled",
        "words, 10 labels",
        _SHORT,
        lambda n: pb.DependencyTree(labelled=True),
        lambda n: (n + 1, n + 1, 10),
    ),
    Member("ConstituencyTree", "words", _SHORT, lambda n: pb.ConstituencyTree(), lambda n: (n, n)),
    Member("SpanningTree", "nodes", _SHORT, lambda n: pb.SpanningTree(), lambda n: (n, n)),
    Member("Matching", "rows and columns", _SHORT, lambda n: pb.Matching(), lambda n: (n, n)),
)


def operations(structure: pb.Structure, scores: Tensor) -> dict[str, Callable[[], object]]:
    """What a structure offers, each a call without arguments; sums go forward and backward."""
    calls: dict[str, Callable[[], object]] = {
        "argmax": lambda: structure.argmax(scores),
        "sparsemap": lambda: structure.sparsemap(scores),
    }
    leaf = scores.clone().requires_grad_()
    if structure.offers(pb.LogLinear):
        calls["log_partition"] = lambda: with_gradient(lambda: structure.log_partition(leaf), leaf)
        calls["marginals"] = lambda: with_gradient(lambda: structure.marginals(leaf), leaf, scores)
        calls["sample"] = lambda: structure.sample(scores)
    if structure.offers(pb.KBest):
        calls["topk"] = lambda: structure.topk(scores, 4)
    return calls


@case("structures.growth")
def growth() -> Iterator[Figure]:
    """Seconds per example over sizes, one thread; the curves of each structure go to results/growth-NAME.png."""
    for member in MEMBERS:
        curves: dict[str, list[float]] = {}
        for n in member.sizes:
            batch = max(2, 400 // n)
            structure, scores = member.make(n), member.scores(n, batch)
            for name, call in operations(structure, scores).items():
                curve = curves.setdefault(name, [])
                if len(curve) == member.sizes.index(n) and (not curve or curve[-1] * batch < LONGEST):
                    times = take_turns({OURS: call}, seconds=0.3, rounds=(2, 9))
                    curve.append(times.median(OURS) / batch)
        title = f"{member.name}, one thread"
        file_name = "-".join(["growth", *member.name.lower().replace(",", "").split()])
        path = plot(file_name, title, member.axis, member.sizes, curves)
        for name, curve in curves.items():
            size, seconds = member.sizes[len(curve) - 1], curve[-1]
            note = f"grows as n^{_exponent(member.sizes, curve):.1f}; {path.name}"
            yield Figure(f"{member.name}, {name}, {size} {member.axis}", seconds, "s/example", note=note)


def _exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of the last two points."""
    if len(seconds) < 2:
        return math.nan
    at = len(seconds) - 1
    return math.log(seconds[at] / seconds[at - 1]) / math.log(sizes[at] / sizes[at - 1])


@case("structures.threads")
def threads() -> Iterator[Figure]:
    """Two threads against one, for every operation of every structure, in batches that take one thread over 2 ms."""
    for member in MEMBERS:
        n = member.sizes[1]
        structure = member.make(n)
        for name in operations(structure, member.scores(n, 2)):
            batch, call = _large_enough(member, structure, n, name)
            times = take_turns({OURS: with_threads(2, call), "one thread": with_threads(1, call)}, rounds=(7, 25))
            promised = 1.5 if times.median("one thread") > 2e-3 else None
            size = f"{member.name}, {name}, {batch} × {n} {member.axis}"
            yield faster_than(times, "one thread", at_least=promised, size=size)


def _large_enough(member: Member, structure: pb.Structure, n: int, name: str) -> tuple[int, Callable[[], object]]:
    """A batch, and the call on it, that keeps one thread busy for a while."""
    batch = 16
    while True:
        call = operations(structure, member.scores(n, batch))[name]
        alone = with_threads(1, call)
        alone()
        start = time.perf_counter()
        alone()
        if time.perf_counter() - start > ENOUGH or batch >= 4096:
            return batch, call
        batch *= 2

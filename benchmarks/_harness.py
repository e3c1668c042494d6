"""What every benchmark shares: contenders that take turns, figures with targets, and the table.

A case is a generator of figures.  It prepares its inputs, checks that the contenders agree, lets them take turns, and
states what was promised:

    from ._harness import Figure, agree, case, faster_than, optional, slower_than, take_turns

    @case("simplex.sparsemax")
    def sparsemax():
        '''Sparsemax forward and backward against softmax, float32.'''
        for (batch, n), limit in {(1024, 32): 2.5, (512, 1024): 1.6}.items():
            scores = ...
            times = take_turns({
                "pullback": lambda: ours(scores),
                "softmax": lambda: softmax(scores),
                "entmax": entmax and (lambda: entmax.sparsemax(scores)),   # None: the peer is not installed
            })
            yield slower_than(times, "softmax", at_most=limit, size=f"{batch}×{n}")
            yield faster_than(times, "entmax", size=f"{batch}×{n}")        # no target: shown for information

- `entmax = optional("entmax")` gives the module, or None where it is not installed; a contender that is None is left
  out, and a figure that needs it says so instead of failing.
- `agree(ours, theirs)` raises where two answers differ: what is compared must be the same thing.
- A contender is a call without arguments.  Its time is the median over rounds; a ratio is the median of the ratios
  within each round, so a machine that slows down for a while slows down both sides.
- `with_gradient(function, inputs, cotangent)` is one forward and one backward pass, `with_threads(2, call)` the same
  call with two threads.
- `absolute(times, at_most=10e-6, per=32, unit="s/row")` is a figure for a time itself, `Figure(...)` for anything else.
- A new file of cases needs no registration: `python -m benchmarks` imports every module beside this one.
"""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import torch

OURS = "pullback"

Call = Callable[[], object]
Case = Callable[[], Iterable["Figure"]]

CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Register a generator of figures under `name`, written `file.what`."""

    def register(function: Case) -> Case:
        CASES[name] = function
        return function

    return register


def optional(module: str) -> ModuleType | None:
    """The module of that name, or None where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def data_folder() -> Path | None:
    """The folder given as --data or in PULLBACK_BENCH_DATA, for cases that need data; None if there is none."""
    folder = os.environ.get("PULLBACK_BENCH_DATA")
    return Path(folder) if folder else None


class Disagreement(AssertionError):
    """Two contenders do not compute the same thing."""


def agree(ours: torch.Tensor, theirs: torch.Tensor, what: str, tolerance: float = 1e-3) -> None:
    """Raise unless both answers are equal up to `tolerance`, absolute and relative."""
    ours, theirs = ours.detach().double(), theirs.detach().double()
    if ours.shape != theirs.shape:
        raise Disagreement(f"{what}: shapes {tuple(ours.shape)} and {tuple(theirs.shape)}")
    if not torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
        raise Disagreement(f"{what}: answers differ by up to {(ours - theirs).abs().max():.2g}")


@dataclass(frozen=True)
class Times:
    """Seconds per call of each contender, one entry per round; contenders that could not run are `missing`."""

    rounds: Mapping[str, list[float]]
    missing: tuple[str, ...] = ()

    def median(self, name: str) -> float:
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times longer `name` takes than `other`: the median over rounds."""
        return statistics.median(a / b for a, b in zip(self.rounds[name], self.rounds[other]))

    def with_stored(self, name: str, seconds: float, *, by: str, then: float) -> Times:
        """Add a contender that cannot run here from stored figures.

        When it took `seconds`, `by` took `then`; so its time in a round is that of `by`, scaled.
        """
        if by not in self.rounds:
            return replace(self, missing=(*self.missing, name))
        scaled = [seconds * now / then for now in self.rounds[by]]
        return replace(self, rounds={**self.rounds, name: scaled})


def take_turns(
    contenders: Mapping[str, Call | None],
    *,
    seconds: float = 2.0,
    turn: float = 0.02,
    rounds: tuple[int, int] = (5, 25),
    threads: int = 1,
) -> Times:
    """Time the contenders round after round, in this process, after a call each to warm up.

    Each turn repeats a call until it lasts about `turn` seconds; there are as many rounds as fit into `seconds`,
    within the given bounds.  Torch uses `threads` threads while this runs.
    """
    present = {name: call for name, call in contenders.items() if call is not None}
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    _settle_allocator()
    try:
        repeats, expected = {}, 0.0
        for name, call in present.items():
            call()  # compiles, fills caches
            once = min(_timed(call, 1) for _ in range(2))
            repeats[name] = max(1, round(turn / max(once, 1e-7)))
            expected += once * repeats[name]
        count = min(max(int(seconds / expected), rounds[0]), rounds[1])
        taken: dict[str, list[float]] = {name: [] for name in present}
        for _ in range(count):
            for name, call in present.items():
                taken[name].append(_timed(call, repeats[name]))
    finally:
        torch.set_num_threads(threads_before)
    return Times(taken, tuple(name for name in contenders if name not in present))


def _settle_allocator() -> None:
    """Free one large tensor, as a training process has done long before.

    Until then glibc returns memory to the system after nearly every call, and whoever comes next pays for the page
    faults: up to half the time of a small kernel.
    """
    torch.zeros(2**22)


def by_processor_time() -> bool:
    """Whether turns are measured by the time of the processor, which other programs do not lengthen."""
    return bool(os.environ.get("PULLBACK_BENCH_CPU"))


def _timed(call: Call, repeats: int) -> float:
    clock = time.process_time if by_processor_time() else time.perf_counter
    gc.collect(0)
    collects = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        for _ in range(repeats):
            call()
        return (clock() - start) / repeats
    finally:
        if collects:
            gc.enable()


def with_gradient(
    function: Callable[[], torch.Tensor],
    inputs: torch.Tensor | tuple[torch.Tensor, ...],
    cotangent: torch.Tensor | None = None,
) -> torch.Tensor:
    """One forward and one backward pass: the gradient of what `function` returns, by the first of its inputs."""
    value = function()
    cotangent = torch.ones_like(value) if cotangent is None else cotangent
    return torch.autograd.grad(value, inputs, cotangent)[0]


def with_threads(threads: int, call: Call) -> Call:
    """The same call with `threads` torch threads, for contenders that differ in nothing else."""

    def threaded() -> object:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return call()
        finally:
            torch.set_num_threads(before)

    return threaded


@dataclass(frozen=True)
class Figure:
    """One row of the table: a measured value beside what we promised.

    `at_least` and `at_most` bound `value`; with neither, the row is for information.  `value` is None where a peer
    is missing, and `note` says why.  `times` holds the medians behind the value, in seconds.
    """

    size: str
    value: float | None
    unit: str
    against: str = ""
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    case: str = ""
    failed: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the promise holds; None where there is none, or nothing was measured."""
        if self.value is None or (self.at_least is None and self.at_most is None):
            return None
        enough = self.at_least is None or self.value >= self.at_least
        return enough and (self.at_most is None or self.value <= self.at_most)


def faster_than(
    times: Times, peers: str | tuple[str, ...], *, size: str, at_least: float | None = None, note: str = ""
) -> Figure:
    """How many times longer than us the best of `peers` takes; more is better."""
    return _against(times, peers, size, note, at_least=at_least)


def slower_than(
    times: Times, peers: str | tuple[str, ...], *, size: str, at_most: float | None = None, note: str = ""
) -> Figure:
    """How many times longer we take than the best of `peers`; less is better."""
    return _against(times, peers, size, note, at_most=at_most, inverse=True)


def _against(
    times: Times,
    peers: str | tuple[str, ...],
    size: str,
    note: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    inverse: bool = False,
) -> Figure:
    named = (peers,) if isinstance(peers, str) else peers
    present = [peer for peer in named if peer in times.rounds]
    absent = [peer for peer in named if peer not in times.rounds]
    notes = [note] if note else []
    notes += [f"{peer}: not installed" for peer in absent]
    medians = {name: times.median(name) for name in times.rounds}
    value, against = None, " / ".join(named)
    if present:
        against = min(present, key=times.median)
        value = times.ratio(OURS, against) if inverse else times.ratio(against, OURS)
    unit = "× slower" if inverse else "× faster"
    return Figure(size, value, unit, against, at_least, at_most, "; ".join(notes), medians)


def absolute(
    times: Times, *, size: str, at_most: float | None = None, per: int = 1, unit: str = "s", note: str = ""
) -> Figure:
    """Our own time, divided by `per` (rows, examples, calls); in seconds, `unit` says of what."""
    medians = {name: times.median(name) for name in times.rounds}
    return Figure(size, times.median(OURS) / per, unit, at_most=at_most, note=note, times=medians)


def run(names: Iterable[str]) -> Iterator[Figure]:
    """The figures of the named cases, one by one; a case that fails yields a row that says how."""
    for name in names:
        try:
            for figure in CASES[name]():
                yield replace(figure, case=name)
        except Exception as error:  # one broken case must not hide the others
            yield Figure("", None, "", note=f"{type(error).__name__}: {error}", case=name, failed=True)

"""Compiling ahead of time: small examples of everything a structure can do, run in several processes."""

import contextlib
import difflib
import importlib
import itertools
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback import kernels
from pullback.structures.alignment import Alignment
from pullback.structures.binary import Binary
from pullback.structures.categorical import Categorical
from pullback.structures.chain import Chain
from pullback.structures.constituency_tree import ConstituencyTree
from pullback.structures.dependency_tree import DependencyTree
from pullback.structures.matching import Matching
from pullback.structures.oracle import Oracle
from pullback.structures.path import Path
from pullback.structures.ranking import Ranking
from pullback.structures.segmentation import Segmentation
from pullback.structures.spanning_tree import SpanningTree
from pullback.structures.subset import Subset
from pullback.structures.tagging import Tagging

CALLS: dict[str, Callable[[Any, Tensor], Any]] = {
    "argmax": lambda structure, scores: structure.argmax(scores),
    "contains": lambda structure, scores: structure.contains(structure.argmax(scores)),
    "topk": lambda structure, scores: structure.topk(scores, 2),
    "sparsemap": lambda structure, scores: structure.sparsemap(scores),
    "flat": lambda structure, scores: structure.sparsemap(1e-3 * scores),  # where very many vertices mix
    "support": lambda structure, scores: structure.support(scores).probabilities,
    "entmax": lambda structure, scores: structure.entmax(scores, 1.5) + structure.entmax(scores, 1.3),
    "max_marginals": lambda structure, scores: structure.max_marginals(scores),
    "pair_marginals": lambda structure, scores: structure.pair_marginals(scores),
    "sinkhorn": lambda structure, scores: structure.transport(scores).point,
    "soft_sort": lambda structure, scores: structure.soft_sort(scores, regularizer="entropy"),
    "soft_rank": lambda structure, scores: structure.soft_rank(scores, regularizer="entropy"),
    "log_partition": lambda structure, scores: structure.log_partition(scores),
    "value": lambda structure, scores: structure.log_partition(scores.detach()),  # where nothing is differentiated
    "marginals": lambda structure, scores: structure.marginals(scores),
    "entropy": lambda structure, scores: structure.entropy(scores),
    "sample": lambda structure, scores: structure.sample(scores, (2,)),
}
_BEST = ("argmax", "contains")
_MIXTURES = ("sparsemap", "support")
_SUMS = ("value", "log_partition", "marginals", "entropy", "sample")


def _first_two(scores: Tensor) -> Tensor:
    return torch.zeros_like(scores).scatter(-1, scores.topk(2).indices, 1)


def _labelled(projective: bool = False) -> DependencyTree:
    return DependencyTree(projective=projective, labelled=True)


def _diamond() -> Path:
    return Path(torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3], [0, 3]]), 0, 3)


@dataclass(frozen=True)
class Workload:
    """A structure, the shape of its scores, and calls whose kernels are compiled in one process."""

    name: str
    make: Callable[[], Any]
    shape: tuple[int, ...]
    calls: tuple[str, ...]
    kind: str = ""

    def run(self, dtype: torch.dtype) -> None:
        """Each call, forward and backward.  One example is peaked and one is flat: they may take different ways."""
        generator = torch.Generator().manual_seed(0)
        scale = torch.tensor([1000.0, 0.1]).reshape(2, *(1,) * len(self.shape))
        scores = (scale * torch.randn(2, *self.shape, generator=generator)).to(dtype).requires_grad_()
        for call in self.calls:
            answer = CALLS[call](self.make(), scores)
            if isinstance(answer, Tensor) and answer.requires_grad:
                answer.square().sum().backward()


# A new structure is a line or two.  What takes longest comes first, so that the processes end at about the same time.
WORKLOADS = (
    Workload("DependencyTree", DependencyTree, (9, 9), _MIXTURES),
    Workload("DependencyTree", DependencyTree, (9, 9), _SUMS),
    Workload("DependencyTree", lambda: DependencyTree(projective=True), (9, 9), _SUMS, "projective"),
    Workload("DependencyTree", lambda: DependencyTree(projective=True), (9, 9), _MIXTURES, "projective"),
    Workload("DependencyTree", lambda: DependencyTree(projective=True), (41, 41), ("flat",), "projective, flat"),
    Workload("DependencyTree", DependencyTree, (9, 9), (*_BEST, "topk")),
    Workload("DependencyTree", lambda: DependencyTree(projective=True), (9, 9), (*_BEST, "topk"), "projective"),
    Workload("SpanningTree", SpanningTree, (9, 9), _SUMS),
    Workload("SpanningTree", SpanningTree, (9, 9), (*_BEST, "topk", *_MIXTURES)),
    Workload("ConstituencyTree", ConstituencyTree, (8, 8), _SUMS),
    Workload("ConstituencyTree", ConstituencyTree, (8, 8), _MIXTURES),
    Workload("ConstituencyTree", ConstituencyTree, (44, 44), ("flat",), "flat"),
    Workload("ConstituencyTree", ConstituencyTree, (8, 8), (*_BEST, "topk")),
    Workload("DependencyTree", _labelled, (7, 7, 3), _MIXTURES, "labelled"),
    Workload("DependencyTree", _labelled, (7, 7, 3), (*_BEST, "topk", *_SUMS), "labelled"),
    Workload("DependencyTree", lambda: _labelled(True), (7, 7, 3), _MIXTURES, "labelled, projective"),
    Workload("DependencyTree", lambda: _labelled(True), (7, 7, 3), (*_BEST, "topk", *_SUMS), "labelled, projective"),
    Workload("Chain", Chain, (6, 3, 3), _MIXTURES),
    Workload("Chain", Chain, (6, 3, 3), (*_BEST, "max_marginals", "topk", *_SUMS)),
    Workload("Matching", Matching, (6, 5), (*_BEST, "topk", *_MIXTURES, "sinkhorn")),
    Workload("Tagging", lambda: Tagging(torch.eye(3)), (6, 3), (*_SUMS, "max_marginals", "pair_marginals")),
    Workload("Tagging", lambda: Tagging(torch.eye(3)), (6, 3), (*_BEST, "topk", *_MIXTURES)),
    Workload("Tagging", lambda: Tagging(torch.eye(3).double()), (6, 3), ("log_partition",), "double tables"),
    Workload("Tagging", lambda: Tagging(torch.zeros(5, 5)), (30, 5), ("flat",), "flat"),
    Workload("Path", _diamond, (5,), _MIXTURES),
    Workload("Path", _diamond, (5,), (*_BEST, "max_marginals", "topk", *_SUMS)),
    Workload("Alignment", lambda: Alignment(kind="dtw"), (4, 4), _MIXTURES, "cells"),
    Workload("Alignment", lambda: Alignment(kind="dtw"), (24, 24), ("flat",), "cells, flat"),
    Workload("Alignment", Alignment, (4, 4, 3), (*_MIXTURES, *_BEST, "max_marginals", "topk", *_SUMS)),
    Workload("Segmentation", Segmentation, (4, 2, 2), (*_MIXTURES, *_BEST, "max_marginals", "topk", *_SUMS)),
    Workload("Segmentation", lambda: Segmentation(transitions=torch.eye(2)), (4, 2, 2), _MIXTURES, "transitions"),
    Workload("Categorical", Categorical, (8,), ("entmax", *_BEST, "topk", *_MIXTURES, *_SUMS)),
    Workload("Categorical", Categorical, (4096,), ("entmax", *_MIXTURES), "long rows"),
    Workload("Subset", lambda: Subset(2), (8,), _SUMS),
    Workload("Oracle", lambda: Oracle(_first_two), (8,), (*_BEST, *_MIXTURES)),
    Workload("Subset", lambda: Subset(2), (8,), (*_BEST, *_MIXTURES)),
    Workload("Ranking", Ranking, (8,), ("soft_rank", "soft_sort", *_BEST, *_MIXTURES)),
    Workload("Binary", Binary, (8,), (*_BEST, *_MIXTURES, *_SUMS)),
)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
TASKS = {
    ", ".join(filter(None, (load.name, load.kind, load.calls[0], dtype))): (load, dtype)
    for load, dtype in itertools.product(WORKLOADS, DTYPES)
}
NAMES = tuple(sorted({load.name for load in WORKLOADS}))


def warm(*structures: str, processes: int | None = None, progress: bool = True) -> None:
    """Compiles the kernels of the named structures, or of all, and keeps them for later processes.

        pb.warm()                                # everything
        pb.warm("DependencyTree", "Subset")      # upper and lower case are the same

    The first call of a kernel on a machine compiles it, which takes seconds; afterwards it is read from disk.  This
    does it ahead of time, for float32 and float64, in as many `processes` as there are processors to use.  What has
    been compiled already is left alone.  The command `pullback warm` is the same.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"warm: processes is {processes}; expected at least 1.")
    chosen = {_named(name) for name in structures or NAMES}
    caching = kernels.caching()
    tasks = [task for task, (load, _) in TASKS.items() if load.name in chosen and not caching.is_noted(task)]
    with _shown(len(tasks)) if progress else contextlib.nullcontext(_say_nothing) as tell:
        if tasks:
            _run_all(tasks, min(processes or _processors(), len(tasks)), tell)
    if not all(map(caching.is_noted, tasks)):
        caching.warn_once()


def _named(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"warm: a structure is {name!r}; expected its name, such as 'DependencyTree'.")
    known = {known.lower(): known for known in NAMES}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.4)
        hint = f"did you mean {known[near[0]]}?" if near else f"expected one of {', '.join(NAMES)}."
        raise ValueError(f"warm: no structure is called {name!r}; {hint}")
    return known[name.lower()]


def _processors() -> int:
    """How many processors this process may use, which a scheduler may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---- processes: each reads the name of a task from its input and answers with a line when it is done

_CHILD = "import sys; sys.path[:] = {path!r}; from pullback.warming import serve; serve()"


def serve() -> None:
    """What a process does that `warm` has started."""
    logging.getLogger("pullback").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for line in sys.stdin:
        task = line.strip()
        load, dtype = TASKS[task]
        load.run(DTYPES[dtype])
        kernels.caching().note(task)
        print(task, flush=True)


def _run_all(tasks: Sequence[str], processes: int, tell: Callable[[str, float], None]) -> None:
    left = iter(tasks)  # several threads may draw from it
    with ThreadPoolExecutor(processes) as pool:
        for job in [pool.submit(_run_in_child, left, tell) for _ in range(processes)]:
            job.result()


def _run_in_child(tasks: Iterator[str], tell: Callable[[str, float], None]) -> None:
    command = [sys.executable, "-c", _CHILD.format(path=sys.path)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
        ) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        for task in tasks:
            start = time.monotonic()
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(f"{task}\n")
                child.stdin.flush()
            if child.stdout.readline().strip() != task:
                child.kill()
                errors.seek(0)
                raise RuntimeError(f"warm: {task} failed.\n{errors.read()}")
            tell(task, time.monotonic() - start)


# ---- progress


def _say_nothing(task: str, seconds: float) -> None:
    pass


def _shown(total: int) -> contextlib.AbstractContextManager[Callable[[str, float], None]]:
    """A bar where rich is installed, lines where it is not."""
    if total == 0:
        return _lines(total)
    try:
        importlib.import_module("rich.progress")
    except ImportError:
        return _lines(total)
    return _bar(total)


@contextlib.contextmanager
def _lines(total: int) -> Iterator[Callable[[str, float], None]]:
    done = itertools.count(1)

    def tell(task: str, seconds: float) -> None:
        print(f"{next(done)}/{total}  {task}  {seconds:.0f} s", file=sys.stderr, flush=True)

    what = f"{total} groups of kernels" if total else "nothing"
    print(f"pullback: {what} to compile.", file=sys.stderr)
    yield tell


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Callable[[str, float], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("compiling kernels", total=total)
        yield lambda task, seconds: progress.update(bar, advance=1, description=task)

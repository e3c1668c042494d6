"""What starting costs: importing the library, and the first call of each kernel on a new and on a known machine."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ._harness import OURS, Figure, case

SOURCE = Path(__file__).parents[1] / "src"

IMPORT = "import time, torch; start = time.perf_counter(); import pullback; print(time.perf_counter() - start)"

FIRST_CALL = """
import time, torch
scores = torch.randn({shape}, requires_grad={differentiated})
torch.softmax(scores.flatten(), 0)  # torch's own first call is not ours
start = time.{clock}()
import pullback as pb  # loads what is used when it is used
{call}
print(time.{clock}() - start)
"""

_TREE = "3, 9, 9"
CALLS = {
    "sparsemax": ("8, 32", "pb.Categorical().sparsemap(scores)"),
    "1.5-entmax": ("8, 32", "pb.Categorical().entmax(scores, 1.5)"),
    "Subset sparsemap": ("8, 32", "pb.Subset(4).sparsemap(scores)"),
    "Subset marginals": ("8, 32", "pb.Subset(4).marginals(scores)"),
    "DependencyTree argmax": (_TREE, "pb.DependencyTree().argmax(scores)"),
    "DependencyTree marginals": (_TREE, "pb.DependencyTree().marginals(scores)"),
    "DependencyTree sparsemap": (_TREE, "pb.DependencyTree().sparsemap(scores)"),
    "projective argmax": (_TREE, "pb.DependencyTree(projective=True).argmax(scores)"),
    "projective marginals": (_TREE, "pb.DependencyTree(projective=True).marginals(scores)"),
    "projective sparsemap": (_TREE, "pb.DependencyTree(projective=True).sparsemap(scores)"),
}
_SPIGOT = "pb.spigot().loss({trees}, scores, lambda z: z.sum((-1, -2))).sum().backward()"
TRAINING = {
    f"{kind}{name}": call.format(trees=trees)
    for kind, trees in {"": "pb.DependencyTree()", "projective ": "pb.DependencyTree(projective=True)"}.items()
    for name, call in {
        "argmax": "{trees}.argmax(scores)",
        "sparsemap": "{trees}.sparsemap(scores).square().sum().backward()",
        "marginals": "{trees}.marginals(scores).square().sum().backward()",
        "spigot": _SPIGOT,
    }.items()
}


def _seconds_of(program: str, **environment: str) -> float:
    """What the program prints, run in a process of its own."""
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    if run.returncode:
        raise RuntimeError(run.stderr.strip().splitlines()[-1])
    return float(run.stdout.split()[-1])


@case("start_up.import")
def importing() -> Iterator[Figure]:
    """What `import pullback` adds to `import torch`: the median of fresh processes."""
    _seconds_of(IMPORT)  # the first one writes the bytecode
    seconds = statistics.median(_seconds_of(IMPORT) for _ in range(7))
    yield Figure("after import torch", seconds, "s", at_most=0.2, times={OURS: seconds})


@case("start_up.first_call")
def first_call() -> Iterator[Figure]:
    """The first call of a kernel with an empty cache, as on a new machine, and in later processes."""
    for name, (shape, call) in CALLS.items():
        program = FIRST_CALL.format(shape=shape, call=call, clock="perf_counter", differentiated=False)
        with _new_machine() as machine:
            cold = _seconds_of(program, **machine)
            warm = statistics.median(_seconds_of(program, **machine) for _ in range(3))
        yield Figure(f"{name}, new machine", cold, "s", at_most=15.0, times={OURS: cold})
        yield Figure(f"{name}, later process", warm, "s", at_most=0.5, times={OURS: warm})


@case("start_up.against_base")
def against_base() -> Iterator[Figure]:
    """The first step of training on a new machine, in processor time, against an older checkout (--base)."""
    base = os.environ.get("PULLBACK_BENCH_BASE")
    if base is None:
        yield Figure("trees, new machine", None, "of the time", "base", at_most=0.65, note="needs --base")
        return
    for name, call in TRAINING.items():
        program = FIRST_CALL.format(shape=_TREE, call=call, clock="process_time", differentiated=True)
        rounds = [(_cold(program), _cold(program, Path(base))) for _ in range(3)]
        ratio = statistics.median(ours / theirs for ours, theirs in rounds)
        times = {OURS: min(ours for ours, _ in rounds), "base": min(theirs for _, theirs in rounds)}
        yield Figure(f"{name}, new machine", ratio, "of the time", "base", at_most=0.65, times=times)


def _cold(program: str, source: Path = SOURCE) -> float:
    """Seconds of a first call where nothing has been compiled."""
    with _new_machine(source) as machine:
        return _seconds_of(program, **machine)


@contextlib.contextmanager
def _new_machine(source: Path = SOURCE) -> Iterator[dict[str, str]]:
    """The environment of a process that finds the library as it was installed: its sources, and no compiled kernels.

    Kernels are looked for beside the sources and in the user's folders too, so these are new as well.
    """
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "source"
        shutil.copytree(source / "pullback", copied / "pullback", ignore=shutil.ignore_patterns("__pycache__"))
        yield {"PYTHONPATH": str(copied), **dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), folder)}

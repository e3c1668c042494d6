"""A kernel over the instances of a batch, in the threads that torch uses."""

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

Kernel = Callable[..., int]
Job = Callable[[], None]


def over_batch(kernel: Kernel, arguments: Sequence[Any], *, batch: int, work: float) -> int:
    """What `kernel(*arguments, lo, hi)` reports over `range(batch)`: the first instance it could not solve, or −1.

    `work` estimates the nanoseconds in all: below 0.3 ms a second thread costs more than it brings; from 2 ms on the
    batch is cut into pieces, of which each thread takes one after the other: more of them share long and short
    instances more evenly, and each has to lay out its arrays.  Each instance is computed by one thread, so the answer
    does not depend on how many there are.
    """
    threads = torch.get_num_threads() if work >= 300_000 and batch > 1 else 1
    if threads == 1:
        return int(kernel(*arguments, 0, batch))
    pieces = min(threads * (4 if work >= 40_000_000 else 2 if work >= 2_000_000 else 1), batch)
    waiting = iter(range(pieces))  # several threads may draw from it
    reports: list[tuple[int, int]] = []
    errors: list[BaseException] = []

    def run_pieces() -> None:
        try:
            for i in waiting:
                reports.append((i, int(kernel(*arguments, batch * i // pieces, batch * (i + 1) // pieces))))
        except BaseException as error:  # a thread of torch's has nobody to raise it to
            errors.append(error)

    (_openmp() or _in_pool)(run_pieces, threads)
    if errors:
        raise errors[0]
    return next((report for _, report in sorted(reports) if report != -1), -1)


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _openmp() -> Callable[[Job, int], None] | None:
    """What runs a job in so many of torch's own threads, this one included; None where they cannot be reached.

    OpenMP's threads do not sleep when their work is done: for some milliseconds each keeps its core busy and watches
    for more.  Threads of our own would have to share the cores with them after nearly every operation of torch.
    """
    return None if _forked else _in_openmp()


@functools.cache
def _in_openmp() -> Callable[[Job, int], None] | None:
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"), os.RTLD_NOLOAD | os.RTLD_LAZY)
        parallel = library.GOMP_parallel  # of the library that torch was linked with
    except (OSError, AttributeError):  # other systems, other builds
        return None
    parallel.argtypes, parallel.restype = (_CALLBACK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None

    def run(job: Job, threads: int) -> None:
        parallel(_CALLBACK(lambda _: job()), None, threads, 0)

    return run


_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()
_forked = False


def _in_pool(job: Job, threads: int) -> None:
    """Runs a job in this thread and in others of our own."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "pullback")
        others = [_pool.submit(job) for _ in range(threads - 1)]
    job()
    for other in others:
        other.result()


def _after_fork() -> None:
    """A forked child has none of its parent's threads, though OpenMP believes so, and may inherit a locked lock."""
    global _pool, _lock, _forked
    _pool, _lock, _forked = None, threading.Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""A kernel over the instances of a batch, in as many threads as torch uses."""

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

Kernel = Callable[..., int]


def over_batch(kernel: Kernel, arguments: Sequence[Any], *, batch: int, work: float) -> int:
    """What `kernel(*arguments, lo, hi)` reports over `range(batch)`: the first instance it could not solve, or −1.

    `work` estimates the nanoseconds in all: below 0.3 ms a second thread costs more than it brings; from 2 ms on the
    batch is cut into pieces, of which each thread takes one after the other.  Each instance is computed by one thread,
    so the answer does not depend on how many there are.
    """
    threads = min(torch.get_num_threads(), batch) if work >= 300_000 else 1
    if threads == 1:
        return int(kernel(*arguments, 0, batch))
    pieces = min(threads * (4 if work >= 2_000_000 else 1), batch)
    waiting = iter(range(pieces))  # several threads may draw from it

    def run_pieces() -> list[tuple[int, int]]:
        return [(i, int(kernel(*arguments, batch * i // pieces, batch * (i + 1) // pieces))) for i in waiting]

    jobs = [_pool().submit(run_pieces) for _ in range(threads - 1)]
    reports = sorted(itertools.chain(run_pieces(), *(job.result() for job in jobs)))
    return next((report for _, report in reports if report != -1), -1)


_threads: ThreadPoolExecutor | None = None
_lock = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    global _threads
    with _lock:
        if _threads is None:
            _threads = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1), "pullback")
        return _threads


def _forget_pool() -> None:
    """A forked child has none of its parent's threads, and may inherit the lock in a locked state."""
    global _threads, _lock
    _threads, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)

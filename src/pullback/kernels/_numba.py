"""Loads Numba, pauses the garbage collector while it compiles, and tells the user why a first call takes long."""

import functools
import logging
import time
from typing import Any

from pullback.kernels import _collector

PATIENCE = 1.0  # seconds after which a compilation is worth a word

_logger = logging.getLogger("pullback")


@functools.cache
def load_numba() -> None:
    """Loads Numba, once, with all that it would load at its first compilation."""
    _collector.pause_collector()
    try:
        from numba.core import event
        from numba.core.registry import cpu_target

        cpu_target.target_context.refresh()
        cpu_target.typing_context.refresh()
    finally:
        _collector.resume_collector()

    class Listener(event.Listener):
        """Hears of every function at the start and at the end of its compilation; callees lie within their callers."""

        def __init__(self) -> None:
            self.news = Announcement()

        def on_start(self, compilation: Any) -> None:
            name = _kernel_of(compilation)
            if name:
                _collector.pause_collector()
                self.news.begin(name)

        def on_end(self, compilation: Any) -> None:
            if _kernel_of(compilation):
                self.news.end()
                _collector.resume_collector()

    event.register("numba:compile", Listener())


def _kernel_of(compilation: Any) -> str:
    """`trees.arborescence.argmax` for the compilation of that function; empty for functions that are not ours."""
    function = getattr(compilation.data["dispatcher"], "py_func", None)
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', '')}"
    return name.removeprefix("pullback.kernels.") if name.startswith("pullback.kernels.") else ""


class Announcement:
    """Says once for each folder of kernels that it is being compiled, if that takes longer than `PATIENCE`.

    Numba compiles in one thread at a time, and tells when it begins each of the many functions a kernel calls: these
    are the moments at which we look at the clock.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.folder = ""
        self.since = 0.0
        self.announced: set[str] = set()

    def begin(self, name: str) -> None:
        if self.depth == 0:
            self.folder, self.since = name.split(".")[0], time.monotonic()
        self.depth += 1
        self._look_at_the_clock()

    def end(self) -> None:
        self._look_at_the_clock()
        self.depth -= 1

    def _look_at_the_clock(self) -> None:
        if self.folder not in self.announced and time.monotonic() - self.since > PATIENCE:
            self.announced.add(self.folder)
            _logger.warning(
                "pullback is compiling its kernels for %s.  This happens once on each machine; "
                "`pullback warm` does it ahead of time.",
                self.folder.replace("_", " "),
            )

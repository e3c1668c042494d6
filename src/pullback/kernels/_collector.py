"""Gives the garbage collector a rest while Numba loads and while it compiles our kernels.

Both make hundreds of thousands of objects and hardly any garbage.  Searching them, and all of torch's, for it over and
over takes a third of the time to load and a fifth of that to compile.
"""

import functools
import gc
import os
import threading
from typing import Any

_sleepers = 0
_collects = True
_lock = threading.Lock()


def rest() -> None:
    """No collections until `wake` has been called as often."""
    global _sleepers, _collects
    with _lock:
        if _sleepers == 0:
            _collects = gc.isenabled()
            gc.disable()
        _sleepers += 1


def wake() -> None:
    global _sleepers
    with _lock:
        _sleepers -= 1
        if _sleepers == 0 and _collects:
            gc.enable()


def _wake_for_good() -> None:
    """In a forked child nobody compiles."""
    global _sleepers, _lock
    _lock = threading.Lock()
    if _sleepers > 0 and _collects:
        gc.enable()
    _sleepers = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wake_for_good)


@functools.cache
def load_numba() -> None:
    """Loads Numba, once, with all that it would load at its first compilation."""
    rest()
    try:
        from numba.core import event
        from numba.core.registry import cpu_target

        cpu_target.target_context.refresh()
        cpu_target.typing_context.refresh()
    finally:
        wake()

    def is_ours(compilation: Any) -> bool:
        function = getattr(compilation.data["dispatcher"], "py_func", None)
        return str(getattr(function, "__module__", "")).startswith("pullback.")

    class Listener(event.Listener):
        def on_start(self, compilation: Any) -> None:
            if is_ours(compilation):
                rest()

        def on_end(self, compilation: Any) -> None:
            if is_ours(compilation):
                wake()

    event.register("numba:compile", Listener())

"""Gives the garbage collector a rest while Numba loads and while it compiles our kernels.

Both make hundreds of thousands of objects and hardly any garbage.  Searching them, and all of torch's, for it over and
over takes a third of the time to load and a fifth of that to compile.
"""

import gc
from typing import Any

_sleepers = 0
_collects = True


def rest() -> None:
    """No collections until `wake` has been called as often."""
    global _sleepers, _collects
    if _sleepers == 0:
        _collects = gc.isenabled()
        gc.disable()
    _sleepers += 1


def wake() -> None:
    global _sleepers
    _sleepers -= 1
    if _sleepers == 0 and _collects:
        gc.enable()


def load_numba() -> None:
    """Loads Numba with all that it would load at its first compilation."""
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

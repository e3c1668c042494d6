"""Pauses the garbage collector while Numba loads and while it compiles our kernels.

Both make hundreds of thousands of objects and hardly any garbage.  Searching them, and all of torch's, for it over and
over takes a third of the time to load and a fifth of that to compile.
"""

import gc
import os
import threading

_pauses = 0
_was_enabled = True
_lock = threading.Lock()


def pause_collector() -> None:
    """No collections until `resume_collector` has been called as often."""
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1


def resume_collector() -> None:
    global _pauses
    with _lock:
        _pauses -= 1
        if _pauses == 0 and _was_enabled:
            gc.enable()


def _resume_in_child() -> None:
    """A forked child does not compile what its parent was compiling."""
    global _pauses, _lock
    _lock = threading.Lock()
    if _pauses > 0 and _was_enabled:
        gc.enable()
    _pauses = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_in_child)

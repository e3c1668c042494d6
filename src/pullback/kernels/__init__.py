"""Algorithms over arrays: NumPy and Numba, one folder per family of algorithms, no torch.

A kernel takes contiguous arrays and the range of instances to work on, writes into arrays its caller has sized, and
returns the first instance it could not solve, or -1.  It never needs to know what a tensor, a batch shape or a gradient
is.  The modules load at first use, so that importing the library does not import Numba.
"""

import importlib
import importlib.util
from types import ModuleType

from pullback.kernels._collector import pause_collector, resume_collector
from pullback.kernels._numba import load_numba


def __getattr__(name: str) -> ModuleType:
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    pause_collector()
    try:
        load_numba()
        return importlib.import_module(f"{__name__}.{name}")
    finally:
        resume_collector()

"""Algorithms over arrays: NumPy and Numba, one file per algorithm, no torch.

A kernel takes contiguous arrays and the range of instances to work on, writes into arrays its caller has sized, and
returns the first instance it could not solve, or -1.  It never needs to know what a tensor, a batch shape or a gradient
is.  The modules load at first use, so that importing the library does not import Numba.
"""

import importlib
from types import ModuleType

_MODULES = ("active_set", "arborescence", "eisner", "inside_outside", "matrix_tree", "simplex", "subset", "tree_projection")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Algorithms over arrays: NumPy and Numba, one folder per family of algorithms, no torch.

A kernel takes contiguous arrays and the range of instances to work on, and writes into arrays its caller has sized.  It
returns the first instance it could not solve, −2 − b where the search of instance b did not converge, or −1.  It never
needs to know what a tensor, a batch shape or autograd is.

A folder loads when one of its kernels is called for the first time, so that importing the library does not import
Numba: `kernels.subset.argmax` is a `LazyKernel` before, and the compiled function after.
"""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pullback.kernels._collector import pause_collector, resume_collector
from pullback.kernels._numba import load_numba


def caching() -> ModuleType:
    """The module that keeps compiled kernels on disk."""
    return _load("tools.caching")


class LazyKernel:
    """A kernel by name, whose folder loads at the first call."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name

    @functools.cached_property
    def function(self) -> Callable[..., int]:
        function: Callable[..., int] = getattr(_load(self.folder), self.name)
        return function

    def __call__(self, *arguments: Any) -> int:
        return self.function(*arguments)


class _LazyFolder:
    """A folder of kernels that has not been loaded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, kernel: str) -> LazyKernel:
        lazy = LazyKernel(self.name, kernel)
        setattr(self, kernel, lazy)  # so that it is made once, and loads its folder once
        return lazy


def __getattr__(name: str) -> _LazyFolder:
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _LazyFolder(name)


def _load(name: str) -> ModuleType:
    pause_collector()
    try:
        load_numba()
        return importlib.import_module(f"{__name__}.{name}")
    finally:
        resume_collector()

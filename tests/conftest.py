"""What holds for every test: reproducible examples, no clocks, one thread, and one place for compiled kernels."""

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Compiled kernels are shared by all processes that test, and stay apart from the user's own.
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "kernels"))

# Processes that test at once share the cores.  With two threads each they would mostly wait for each other, and threads
# of OpenMP keep a core busy while they wait.  What is tested with several threads asks for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The first example may have to compile a kernel, and a busy machine is not a bug.
settings.register_profile("pullback", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullback")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collects without searches for garbage, which would go through all tests, and all of torch, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # nor are they searched while they run
        gc.enable()

"""What holds for every test: reproducible examples, no clocks, and a kernel cache for each worker."""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Numba's cache is not safe against two processes that add to the same file, so each pytest-xdist worker has its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    cache = Path(__file__).parents[1] / ".pytest_cache" / "numba" / worker
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache))

# The first example may have to compile a kernel, and a busy machine is not a bug.
settings.register_profile("pullback", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullback")

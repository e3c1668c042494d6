"""What holds for every test: reproducible examples, no clocks, and a kernel cache for each worker."""

import hashlib
import os
from pathlib import Path

from hypothesis import HealthCheck, settings

# Numba's cache does not see changes in the functions that a kernel calls, and is not safe against two processes that
# add to the same file: so there is one for each state of the kernels' sources and each pytest-xdist worker.
ROOT = Path(__file__).parents[1]
SOURCES = b"".join(path.read_bytes() for path in sorted((ROOT / "src" / "pullback" / "kernels").rglob("*.py")))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
CACHE = ROOT / ".pytest_cache" / "numba" / hashlib.sha256(SOURCES).hexdigest()[:12] / WORKER
os.environ.setdefault("NUMBA_CACHE_DIR", str(CACHE))

# The first example may have to compile a kernel, and a busy machine is not a bug.
settings.register_profile("pullback", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pullback")

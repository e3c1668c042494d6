"""Speed, measured side by side: `python -m benchmarks` runs every case, `python -m benchmarks trees.argmax` some."""

import os

# BLAS and OpenMP read these once, while they load: one thread is the rule here, and cases that want two say so.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

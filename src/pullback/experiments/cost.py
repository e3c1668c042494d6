"""What training costs: seconds, and runs of the decoder."""

import time
from typing import Any

import torch

from pullback.experiments.task import Model


class Cost:
    """Seconds and runs of the decoder in training steps, without evaluations.

    Seconds are those of the processor, so that other work on the machine does not count.  Those of a
    process's first step do not count either: kernels may be compiled in it.
    """

    def __init__(self, model: Model) -> None:
        self.seconds, self.decodings, self._is_running, self._is_first = 0.0, 0, False, True
        model.get_submodule("decoder").register_forward_hook(self._count)

    def __enter__(self) -> None:
        self._is_running, self._started = True, time.process_time()

    def __exit__(self, *error: object) -> None:
        self._is_running = False
        self.seconds += 0.0 if self._is_first else time.process_time() - self._started
        self._is_first = False

    def _count(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self.decodings += self._is_running

"""What is shown while runs are trained, in terminals of several widths."""

import io

import pytest
import torch
from rich.console import Console

from pullback.experiments.display import RunDisplay
from small_runs import SETUPS


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_steps_and_the_time_left_can_be_read_in_a_terminal_of_any_width(width):
    console = Console(width=width, file=io.StringIO(), force_terminal=True, record=True)
    display = RunDisplay(console, 2500)
    display.on_start(SETUPS["clusters-10"], 0)
    display.on_record({"validation": {"accuracy": 0.9876, "v_measure": 0.9123}})
    for step in range(1, 4001):
        display.on_step(step, torch.tensor(0.5))
    console.print(display.progress.get_renderable())
    (line,) = console.export_text().splitlines()
    assert " 4000/9000 0:00:" in line and "loss 0.5" in line
    assert line.rstrip().endswith("v measure 91.2") == (width == 120) and ("…" in line) == (width < 120)

"""Ctrl-C in a real run and in a real sweep: all processes end, one line says how to go on, and it goes on."""

import os
import signal
import subprocess
import sys
import time

import pytest

from pullback.command import main
from small_runs import history

# Whoever starts the tests may ignore Ctrl-C, as shells do for what they start in the background.
PULLBACK = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from pullback.command import main
main()
"""
QUICK = ["--features", "8", "--batch-size", "50", "--steps", "300", "--evaluate-every", "10"]
SWEEP = ["--estimators", "ste,spigot", "--seeds", "1", "--workers", "2"]


@pytest.mark.parametrize(("command", "runs"), [(["run", "clusters"], 1), (["sweep", "clusters", *SWEEP], 2)])
def test_ctrl_c_is_one_line_and_the_same_command_goes_on(command, runs, tmp_path):
    words = [*command, *QUICK, "--out", str(tmp_path)]
    program = [sys.executable, "-c", PULLBACK, *words]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not list(tmp_path.glob("*/checkpoint.pt")):  # in a sweep, the other worker may still be starting
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, printed = process.communicate()
    assert process.returncode == 130
    assert printed.strip() == "pullback: stopped.  The same command goes on from the last checkpoint."
    assert len(list(tmp_path.glob("*/done"))) < runs
    main(words)  # here, where all packages are imported already
    folders = [done.parent for done in tmp_path.glob("*/done")]
    assert [len(history(folder)) for folder in folders] == [30] * runs

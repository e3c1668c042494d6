"""The published results: tables and report are those of the records, and the commands behind them can be given."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from pullback.experiments import arguments, records
from pullback.experiments.report import markdown, page
from pullback.experiments.tasks import TASKS

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def found():
    results, complaints = records.read(RESULTS / "runs.tar.xz", TASKS)
    assert complaints == []
    return results


def test_the_tables_are_those_of_the_records(found):
    assert all(result.is_done or result.failure for result in found)
    assert markdown.markdown(found) == (RESULTS / "tables.md").read_text("utf-8")


def test_the_report_is_small_and_is_that_of_the_records(found):
    written = (RESULTS / "report.html").read_bytes()
    assert len(written) < 3_000_000
    is_current = written == page.html(found, []).encode()  # the pages themselves are too long to be printed
    assert is_current, "results/report.html is outdated: see results/publish.sh"


def test_every_published_run_is_one_of_the_sweeps(found, tmp_path):
    """The script is run with a `pullback` that only writes down what it is asked for."""
    asked, command = tmp_path / "asked", tmp_path / "pullback"
    command.write_text(
        f'#!/usr/bin/env python3\nimport json, sys\nopen({str(asked)!r}, "a").write(json.dumps(sys.argv[1:]) + "\\n")\n'
    )
    command.chmod(0o755)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([RESULTS / "sweeps.sh", "FOLDER", tmp_path / "runs"], env=path, check=True)
    keys = set()
    for line in asked.read_text().splitlines():
        verb, *words = json.loads(line)
        assert verb == "sweep"
        given = arguments.parse_of_task(arguments.SweepCommand, "sweep", words)
        keys |= {run.key for run in given.runs()}
    assert {result.run.key for result in found} <= keys

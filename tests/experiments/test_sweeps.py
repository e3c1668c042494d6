"""Engines of sweeps: processes of this machine, and a Ray cluster; neither loses work when a process is killed."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
import ray

from pullback.experiments import records
from pullback.experiments import sweep as sweeping
from pullback.experiments.mistakes import Mistake
from pullback.experiments.records import Log
from small_runs import SMALL, TASKS


@pytest.fixture
def cluster(monkeypatch):
    """A Ray instance on this machine, whose workers find what this process finds."""
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


def check_that_a_killed_cell_is_finished(engine, folder, monkeypatch):
    train_cell, died = sweeping.train_cell, folder / "died"

    def train_cell_and_die(run, where, *options):
        def die_after_the_first_record():
            while not where.joinpath(run.key, "records.jsonl").exists():
                time.sleep(0.01)
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

        if run.estimator == "ste" and not died.exists():
            threading.Thread(target=die_after_the_first_record, daemon=True).start()
        return train_cell(run, where, *options)

    monkeypatch.setattr(sweeping, "train_cell", train_cell_and_die)
    runs = [replace(SMALL["clusters"], estimator=name, steps=100, evaluate_every=10) for name in ("ste", "spigot")]
    assert sweeping.sweep(runs, folder / "runs", engine) == {}
    assert died.exists()
    results, _ = records.read(folder / "runs", TASKS)
    assert len(results) == 2 and all(result.is_done for result in results)


def test_a_cell_whose_process_is_killed_is_finished_all_the_same(tmp_path, monkeypatch):
    check_that_a_killed_cell_is_finished("processes", tmp_path, monkeypatch)


@pytest.mark.usefixtures("cluster")
def test_a_cell_whose_worker_on_a_ray_cluster_is_killed_is_finished_all_the_same(tmp_path, monkeypatch):
    check_that_a_killed_cell_is_finished("ray", tmp_path, monkeypatch)


def test_without_ray_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray.util.joblib", None)
    with pytest.raises(Mistake, match=r"pip install .pullback\[ray\]"):
        sweeping.sweep([SMALL["clusters"]], tmp_path, "ray")


def test_a_cell_waits_for_the_process_that_still_holds_its_run(tmp_path, monkeypatch):
    run, waited = SMALL["clusters"], []
    holding = Log(tmp_path / run.key).held()
    holding.__enter__()

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 2:
            holding.__exit__(None, None, None)

    monkeypatch.setattr(sweeping.time, "sleep", sleep)
    assert sweeping.train_cell(run, tmp_path) == "" and len(waited) == 2
    assert Log(tmp_path / run.key).is_done


def test_a_cell_that_another_process_goes_on_training_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping.time, "sleep", lambda seconds: None)
    with Log(tmp_path / SMALL["clusters"].key).held():
        assert "being trained by another process" in sweeping.train_cell(SMALL["clusters"], tmp_path)

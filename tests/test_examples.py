"""What the example programs show, in fewer steps than they take."""

import runpy
import subprocess
import sys
from pathlib import Path

from pullback.experiments import records, tasks

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return runpy.run_path(str(EXAMPLES / name))["main"](arguments)


def test_reinmax_solves_the_polynomial_program_and_first_order_methods_do_not():
    found = run("polynomial_programming.py", "--steps", "100")
    assert 0.2025 < found.pop("reinmax") < 0.22
    assert all(loss > 0.24 for loss in found.values())


def test_methods_that_average_find_the_best_subset_and_those_that_ask_at_one_vertex_do_not():
    found = run("subset_toy.py", "--steps", "60")
    assert found["spigot_ce"] < 0.01
    assert found["simple, 8 draws"] < found["simple"] < 0.15
    for name in ("imle", "imle, two-sided", "imle, adaptive", "perturbed"):
        assert found[name] < 0.12, name
    assert found["ste"] > 0.2 and found["spigot"] > 0.2


def test_a_solver_of_ones_own_is_trained_through():
    assert runpy.run_path(str(EXAMPLES / "own_solver.py"))["main"]() < 0.05


def test_a_task_of_ones_own_is_trained_swept_and_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    for known in (tasks.TASKS, tasks.SETUPS):
        monkeypatch.setitem(known, "marked", None)  # and taken away again at the end
    run("own_task.py", "tasks", "marked")
    assert "Categorical" in capsys.readouterr().out
    run("own_task.py", "run", "marked", "--out", str(tmp_path))
    rows = ["--estimators", "frozen,spigot,structured_attention", "--seeds", "1", "--engine", "here"]
    run("own_task.py", "sweep", "marked", *rows, "--out", str(tmp_path))
    results, complaints = records.read(tmp_path, tasks.TASKS)
    found = {result.run.estimator: result.records[-1]["test"]["found"] for result in results}
    assert complaints == [] and len(found) == 3
    assert found["structured_attention"] > 0.95 and found["spigot"] > 0.7 > found["frozen"]


def test_a_task_of_ones_own_is_known_in_worker_processes(tmp_path):
    words = ["sweep", "marked", "--estimators", "gold,spigot", "--seeds", "1", "--steps", "2", "--out", str(tmp_path)]
    subprocess.run([sys.executable, str(EXAMPLES / "own_task.py"), *words], check=True, timeout=600)
    assert len(list(tmp_path.glob("marked-*/done"))) == 2

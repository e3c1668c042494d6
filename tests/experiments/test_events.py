"""Event files for TensorBoard: the same numbers as in the records."""

import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from pullback.experiments.cli import main
from pullback.experiments.events import Events
from pullback.experiments.records import Log
from pullback.experiments.training import train
from pullback.experiments.watcher import Together
from small_runs import Interrupting, clusters, history

QUICK = ["--features", "8", "--batch-size", "50", "--steps", "4", "--evaluate-every", "2"]


def events_of(folder):
    """Names and their values by step."""
    (file,) = folder.joinpath("tensorboard").glob("events.*")
    found = EventAccumulator(str(file)).Reload()
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in found.Tags()["scalars"]}


def check_events(folder):
    found, records = events_of(folder), history(folder)
    for name in ("validation", "test", "gradient"):
        for inside in records[0][name]:
            expected = [(record["step"], pytest.approx(record[name][inside], rel=1e-6)) for record in records]
            assert found[f"{name}/{inside}"] == expected
    assert [step for step, _ in found["loss"]] == [record["step"] for record in records] == [2, 4]


def test_events_are_the_numbers_of_the_records(tmp_path):
    main(["run", "clusters", "--estimator", "ste", *QUICK, "--out", str(tmp_path), "--tensorboard"])
    (folder,) = tmp_path.iterdir()
    check_events(folder)


def test_events_of_an_interrupted_run_are_those_of_its_records(tmp_path):
    run = clusters("ste")
    events = Events(Log(tmp_path / run.key))
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path, Together([events, Interrupting(3)]))
    train(run, tmp_path, Events(Log(tmp_path / run.key)))
    check_events(tmp_path / run.key)


def test_a_sweep_writes_events_also_of_runs_that_are_done(tmp_path):
    words = ["sweep", "clusters", "--estimators", "ste", "--seeds", "1", "--engine", "here", *QUICK]
    main([*words, "--out", str(tmp_path)])
    (folder,) = tmp_path.iterdir()
    assert not folder.joinpath("tensorboard").exists()
    main([*words, "--seeds", "2", "--out", str(tmp_path), "--tensorboard"])
    assert len(list(tmp_path.iterdir())) == 2
    for folder in tmp_path.iterdir():
        check_events(folder)


def test_without_the_package_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for command in (["run", "clusters"], ["sweep", "clusters", "--estimators", "ste", "--engine", "here"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, *QUICK, "--out", str(tmp_path), "--tensorboard"])
        (line,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2 and 'pip install "pullback[tensorboard]"' in line
    assert not list(tmp_path.rglob("records.jsonl"))

"""The command line, from settings to a report."""

import json

import pytest
import torch

import pullback as pb
from pullback.experiments import records, report
from pullback.experiments.cli import DEMO, main
from pullback.experiments.settings import Settings
from pullback.experiments.tasks import clusters
from pullback.experiments.training import make_estimator, train

QUICK = ["--steps", "4", "--evaluate-every", "2"]


def test_labels_are_balanced_inside_each_cluster():
    parts = clusters.make_data(3, 20, seed=0)
    assert [len(part.x) for part in parts] == [5000, 1000, 1000]
    train_part = parts[0]
    for cluster in range(3):
        share = train_part.y[train_part.z == cluster].float().mean()
        assert 0.45 < share < 0.55
    again = clusters.make_data(3, 20, seed=0)[0]
    assert torch.equal(again.x, train_part.x) and torch.equal(again.y, train_part.y)


def test_the_decoder_is_a_bilinear_layer():
    decoder = clusters.Decoder(3, 20)
    x, z = torch.randn(7, 20), torch.rand(7, 3)
    torch.testing.assert_close(decoder(x, z), decoder.bilinear(z, x))


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if not entry.given])
def test_every_estimator_trains_the_task(name):
    settings = Settings(estimator=name, steps=2, features=10, evaluate_every=1)
    history = list(train(settings))
    assert [record["step"] for record in history] == [1, 2]
    assert history[-1]["evaluations"] >= 1
    assert 0 <= history[-1]["test_accuracy"] <= 1
    assert ("test_relaxed_accuracy" in history[-1]) == (
        name in ("structured_attention", "sparsemap", "entmax", "perturbed")
    )


def test_runs_are_reproducible():
    settings = Settings(estimator="reinforce", steps=3, features=10)
    first, second = ([r["train_loss"] for r in train(settings)] for _ in range(2))
    assert first == second


def test_settings_reach_the_estimator():
    descent = make_estimator(Settings(estimator="spigot", step_size=0.25, pull_steps=3)).descent
    assert (descent.step_size, descent.steps) == (0.25, 3)


def test_a_sweep_is_recorded_and_reported(tmp_path, capsys):
    main(
        [
            "sweep",
            "--estimator",
            "ste",
            "sparsemap",
            "--seed",
            "1",
            "2",
            "--features",
            "10",
            *QUICK,
            "--out",
            str(tmp_path),
        ]
    )
    runs = records.read(tmp_path)
    assert len(runs) == 4 and all(len(run) == 2 for run in runs)
    assert {run[-1]["estimator"] for run in runs} == {"ste", "sparsemap"}
    assert all(run[-1]["version"] == pb.__version__ for run in runs)
    columns, table = report.rows(runs)
    assert columns == ["estimator", *report.MEASURES]
    assert [row[0] for row in table] == ["ste", "sparsemap"]
    assert "±" in table[0][1] and table[0][2] == "" and table[1][2] != ""
    assert "| sparsemap |" in (tmp_path / "report.md").read_text()
    assert "Report written to" in capsys.readouterr().out


def test_settings_that_differ_have_a_column_each():
    base = {**{field: getattr(Settings(), field) for field in (*report.SETTINGS, "seed")}}
    measures = {"test_accuracy": 0.5, "test_v_measure": 0.1, "evaluations": 1, "seconds": 1}
    runs = [[{**base, **measures, "features": features, "seed": seed}] for features in (10, 20) for seed in (1, 2)]
    columns, table = report.rows(runs)
    assert columns[:2] == ["estimator", "features"] and [row[1] for row in table] == ["10", "20"]


def test_one_run_writes_plain_json_lines(tmp_path):
    main(["run", "--estimator", "spigot", "--features", "10", *QUICK, "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["step"] == 4 and last["estimator"] == "spigot" and last["evaluations"] == 1


def test_the_catalog_can_be_listed(capsys):
    main(["estimators"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("spigot_eg", "sparse_marginalization"))


def test_an_empty_folder_has_no_report(tmp_path):
    with pytest.raises(SystemExit, match="no runs"):
        main(["report", "--out", str(tmp_path)])


def test_the_demo_compares_at_least_the_six_named_methods():
    names = {"ste", "spigot", "spigot_ce", "spigot_eg", "structured_attention", "sparsemap"}
    assert names <= {settings.estimator for settings in DEMO}

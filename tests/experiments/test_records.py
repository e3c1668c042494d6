"""Files of runs: what is torn, old or foreign is named, and the rest is read."""

import json
import pickle
import tarfile

import pytest
import torch

from pullback.experiments import records
from pullback.experiments.mistakes import Mistake
from pullback.experiments.records import Log
from pullback.experiments.sweep import sweep
from pullback.experiments.training import train
from small_runs import TASKS, clusters


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = clusters("ste")
    train(run, folder)
    return run, folder / run.key


def copy_of(finished, folder):
    run, source = finished
    (folder / run.key).mkdir(parents=True)
    for name in ("run.json", "records.jsonl", "pictures.json", "done"):
        (folder / run.key / name).write_bytes((source / name).read_bytes())
    return run, folder / run.key


def test_a_folder_is_read_back_as_it_was_written(finished):
    run, folder = finished
    (result,), complaints = records.read(folder.parent, TASKS)
    assert complaints == [] and result.run == run and result.is_done and result.failure is None
    assert [record["step"] for record in result.records] == [2, 4]
    assert all(picture.svg.startswith("<svg") for picture in result.pictures) and result.pictures


def test_a_run_tells_the_sources_it_was_trained_with_from_others(finished, tmp_path, monkeypatch):
    about = json.loads((finished[1] / "run.json").read_text())
    package = tmp_path / "pullback"
    package.mkdir()
    monkeypatch.setattr(records.pb, "__file__", str(package / "__init__.py"))
    found = {about["sources"]}
    for text in ("a = 1\n", "a = 2\n"):
        (package / "__init__.py").write_text(text)
        records._fingerprint.cache_clear()
        found.add(records._fingerprint())
    records._fingerprint.cache_clear()
    assert len(found) == 3 and all(len(name) == 12 for name in found)


def test_an_archive_of_a_folder_says_what_the_folder_says(finished, tmp_path):
    folder = finished[1].parent
    with tarfile.open(tmp_path / "runs.tar.xz", "w:xz") as archive:
        archive.add(folder, arcname="runs")
    (packed,), complaints = records.read(tmp_path / "runs.tar.xz", TASKS)
    (result,), _ = records.read(folder, TASKS)
    assert complaints == []
    assert (packed.run, packed.records, packed.pictures, packed.is_done) == (
        result.run,
        result.records,
        result.pictures,
        True,
    )


def test_an_archive_that_is_torn_or_none_is_named(finished, tmp_path):
    with tarfile.open(tmp_path / "runs.tar.gz", "w:gz") as archive:
        archive.add(finished[1].parent, arcname="runs")
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes((tmp_path / "runs.tar.gz").read_bytes()[:2000])
    with pytest.raises(Mistake, match=r"torn\.tar\.gz cannot be unpacked"):
        records.read(torn, TASKS)
    with pytest.raises(Mistake, match=r"run\.json is not a folder; expected that of an earlier"):
        records.read(finished[1] / "run.json", TASKS)


def test_a_torn_last_line_is_left_out_and_reported(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"version": 2, "ste')
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert len(result.records) == 2 and "the last line is torn" in complaint


def test_foreign_and_old_files_are_named(finished, tmp_path):
    copy_of(finished, tmp_path)
    for name, content in {
        "old": {"format": "pullback run", "version": 1},
        "foreign": [1, 2],
        "newer": {"format": "pullback run", "version": 2, "run": {"task": {"name": "juggling"}}},
        "empty": {"format": "pullback run", "version": 2},
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(content))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "ste-k3-s1-00000000.jsonl").write_text("{}")
    results, complaints = records.read(tmp_path, TASKS)
    assert len(results) == 1 and len(complaints) == 6
    for name in ("old", "foreign", "newer", "empty", "broken", "ste-k3-s1-00000000.jsonl"):
        assert any(name in complaint for complaint in complaints)


def test_a_record_of_another_version_is_not_taken_for_ours(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"version": 1, "step": 6}\n')
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert len(result.records) == 2 and "line 3 is not a record of version 2" in complaint


@pytest.mark.parametrize("content", ["{}", "[1]", '[{"title": "a"}]', "{", "3"])
def test_pictures_that_are_not_ours_are_named(content, finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    folder.joinpath("pictures.json").write_text(content)
    (result,), complaints = records.read(tmp_path, TASKS)
    assert result.pictures == [] and (content == "{}" or "pictures.json: not readable" in complaints[0])


@pytest.mark.parametrize("record", ['{"version": 2, "step": 6}', '{"version": 2, "step": "six"}', "6", "null"])
def test_a_line_that_is_no_whole_record_is_named(record, finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    with (folder / "records.jsonl").open("a") as file:
        file.write(record + "\n")
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert len(result.records) == 2 and "line 3 is not a record" in complaint


@pytest.mark.parametrize("numbers", [{"validation": {"accuracy": "high"}}, {"test": {"a": [1]}}, {"gradient": [1]}])
def test_measures_that_are_not_numbers_are_named(numbers, finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    record = json.loads((folder / "records.jsonl").read_text().splitlines()[-1])
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps(record | numbers) + "\n")
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert len(result.records) == 2 and "line 3 is not a record" in complaint


def test_a_file_that_cannot_be_opened_is_named(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    folder.joinpath("records.jsonl").unlink()
    folder.joinpath("records.jsonl").mkdir()
    results, (complaint,) = records.read(tmp_path, TASKS)
    assert results == [] and "records.jsonl: Is a directory" in complaint


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"hello", b"PK\x03\x04 torn", pickle.dumps({"a": 1})])
def test_a_checkpoint_that_cannot_be_read_is_named(content, finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    folder.joinpath("checkpoint.pt").write_bytes(content)
    with pytest.raises(Mistake, match=r"checkpoint\.pt cannot be read.*without this file it begins anew"):
        Log(folder).checkpoint(evaluate_every=2)


@pytest.mark.parametrize("content", [torch.ones(3), {"a": 1}, {"step": 2}, {"step": "2"}, {"step": 2, "model": {}}])
def test_a_checkpoint_of_something_else_is_named(content, finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    (folder / "done").unlink()
    torch.save(content, folder / "checkpoint.pt")
    with pytest.raises(Mistake, match=r"checkpoint\.pt cannot be read.*without this file it begins anew"):
        train(run, tmp_path)


def test_what_a_killed_process_left_beside_its_place_is_removed(finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    (folder / "done").unlink()
    for name in ("checkpoint.pt.123", "records.jsonl.77", "run.json.mine"):
        (folder / name).write_text("torn")
    train(run, tmp_path)
    assert [path.name for path in folder.glob("*.*.*")] == ["run.json.mine"]  # that one is not ours


def test_an_unfinished_run_is_known_as_such(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    (folder / "done").unlink()
    (result,), _ = records.read(tmp_path, TASKS)
    assert not result.is_done


@pytest.mark.parametrize("kept", [0, 1])
def test_a_finished_run_whose_last_record_is_lost_is_not_taken_for_a_result(kept, finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:kept]) + lines[kept][:20])
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert not result.is_done and len(result.records) == kept
    assert f"its last record is that of step {2 * kept} of 4" in complaint
    with pytest.raises(Mistake, match=r"its last record is that of step .* Without its folder it is trained anew"):
        train(run, tmp_path)


@pytest.mark.parametrize("content", ["", "{", '{"format": "pullback run", "version": 1}'])
def test_a_finished_run_without_its_description_is_not_taken_for_done(content, finished, tmp_path):
    """The report leaves it out, so whoever trains it again has to hear of it."""
    run, folder = copy_of(finished, tmp_path)
    (folder / "run.json").write_text(content)
    with pytest.raises(Mistake, match=r"run\.json: not (readable|a run of version 2)"):
        train(run, tmp_path)


@pytest.mark.parametrize("name", ["run.json", "records.jsonl"])
def test_a_sweep_names_a_finished_run_that_cannot_be_read_any_more(name, finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    (folder / name).write_text("{")
    failures = sweep([run], tmp_path, "here")
    assert failures.keys() == {run.key} and name in failures[run.key]


def test_a_copy_of_a_run_is_not_another_seed(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    copy_of(finished, tmp_path / "backup")
    (folder / "done").unlink()
    (result,), (complaint,) = records.read(tmp_path, TASKS)
    assert result.is_done and complaint.startswith(f"{folder}: the same run as {tmp_path / 'backup'}")


@pytest.mark.parametrize("content", ["{}", "{", '{"format": "pullback run", "version": 1}'])
def test_a_folder_that_holds_something_else_is_not_trained_in(content, finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    (folder / "done").unlink()
    (folder / "run.json").write_text(content)
    with pytest.raises(Mistake, match=r"run\.json: not (readable|a run of version 2)"):
        train(run, tmp_path)


def test_a_folder_of_another_run_is_not_trained_in(finished, tmp_path):
    run, folder = copy_of(finished, tmp_path)
    (folder / "done").unlink()
    (folder / "run.json").write_text((folder / "run.json").read_text().replace('"steps": 4', '"steps": 8'))
    with pytest.raises(Mistake, match=r"run\.json describes another run"):
        train(run, tmp_path)


def test_a_file_that_cannot_be_written_is_named_and_the_last_one_stays(finished, tmp_path, monkeypatch):
    _, folder = copy_of(finished, tmp_path)
    torch.save({"step": 2}, folder / "checkpoint.pt")

    def full(*arguments, **options):
        raise RuntimeError("unexpected pos 64 vs 0\nmore")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(Mistake, match=r"checkpoint\.pt cannot be written, and the last one stays: unexpected pos"):
        Log(folder).save({"step": 4})
    assert torch.load(folder / "checkpoint.pt", weights_only=True) == {"step": 2}
    assert not list(folder.glob("checkpoint.pt.*"))


def test_checkpoints_hold_nothing_but_data(finished):
    _, folder = finished
    checkpoint = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert {"model", "optimizer", "step", "random"} <= checkpoint.keys()
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.pt",
        "done",
        "lock",
        "pictures.json",
        "records.jsonl",
        "run.json",
    ]


def test_records_after_the_last_checkpoint_are_dropped(finished, tmp_path):
    _, folder = copy_of(finished, tmp_path)
    torch.save({"step": 2}, folder / "checkpoint.pt")
    Log(folder).checkpoint(evaluate_every=2)
    assert [record["step"] for record in records.read_records(folder / "records.jsonl")[0]] == [2]

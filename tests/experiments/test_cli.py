"""The command line: what it trains, what it prints, and how it answers mistakes."""

import dataclasses
import inspect
import io
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.experiments import arguments, cli, demo, listings, records, sweep
from pullback.experiments.cli import main
from pullback.experiments.rows import standard_options
from pullback.experiments.run import Run
from pullback.experiments.sweep import cells, parse_assignment, rows_of
from pullback.experiments.task import Task
from pullback.experiments.training import train
from small_runs import SETUPS, TASKS, clusters

QUICK = ["--features", "8", "--batch-size", "50", "--steps", "4", "--evaluate-every", "2"]


def fails(capsys, *arguments):
    """What is printed about a mistake: one line, and exit code 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    printed = capsys.readouterr().err
    assert ended.value.code == 2 and "Traceback" not in printed
    (line,) = printed.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ("rum", "command 'rum' is not known; did you mean 'run'?"),
        ("run", "run: which task?"),
        ("run clutsers", "task 'clutsers' is not known; did you mean 'clusters'?"),
        ("run clusters --estimator sparsmap", "did you mean 'sparsemap'?"),
        ("run clusters --step 3", "run clusters: option '--step' is not known; did you mean '--steps'?"),
        ("run polarity --dat=here", "run polarity: option '--dat' is not known; did you mean '--data'?"),
        ("report --too here", "report: option '--too' is not known; did you mean '--to'?  There are: --to."),
        ("run clusters --steps many", "--steps is 'many'; expected an integer."),
        ("run clusters --steps", "Missing value for argument '--steps'"),
        ("run clusters --algorithm adan", "invalid choice 'adan'"),
        ("run clusters --learning-rate -1", "learning_rate is -1.0; expected a finite number > 0"),
        ("run clusters --set step_size=-1", "pullback: spigot: step_size is -1; expected a finite number ≥ 0"),
        ("run clusters --set stepsize=1", "did you mean 'step_size'?"),
        ("run clusters --set step_size=1,2", "`pullback sweep` trains one model for each"),
        ("run clusters --set step_siz=1", "step_size, steps, estimator, noise, noise_until, evaluate_every, seed"),
        ("run clusters --set backtrack=no", "spigot: backtrack is 'no'; expected true or false"),
        ("run clusters --estimator reinforce --set distribution=3", "reinforce: distribution is 3; expected a name"),
        ("run clusters --estimator best_vertex --set prediction=3", "prediction is 3; expected a Regularizer"),
        ("run clusters --clusters 0", "clusters is 0"),
        ("run subset --instances 0", "instances is 0"),
        ("run clusters --data-seed 99999999999999999999", "expected an integer from 0 to 2^32 − 1"),
        ("run listops --data nowhere --estimator gold", "nowhere/listops/test_d20a.tsv is not there"),
        ("run clusters --learning-rate fast", "--learning-rate is 'fast'; expected a number."),
        ("run clusters --learning-rate inf", "learning_rate is inf; expected a finite number > 0"),
        ("run clusters --noise=1 --estimator ste_marginals", "ste_marginals takes no noise of the run"),
        ("run clusters --noise -1 --estimator gold", "noise is -1.0; expected a finite number ≥ 0"),
        ("run clusters --estimator reinforce --set samples=4 --set samples=2", "samples is given twice"),
        ("sweep clusters --estimators ste(step_size=1,step_size=2)", "gives step_size twice"),
        ("run clusters --estimator ste,spigot", "these are 2 runs; `pullback sweep` trains one model for each"),
        ("run clusters --set steps=3", 'write "spigot(steps=…)" for the option, --steps for the setting'),
        ("run clusters --estimator spigot(step_size=-1)", "spigot: step_size is -1; expected a finite number ≥ 0"),
        ("run clusters --set learning_rate=-1", "learning_rate is -1.0; expected a finite number > 0"),
        ("run listops --arguments 1", "arguments is 1; expected an integer ≥ 2"),
        ("sweep clusters --estimators ,,", "estimators is ',,'; expected names between commas, or all"),
        ("sweep clusters --estimators ste --seeds 0", "seeds is 0"),
        ("sweep clusters --estimators ste --set temperature=1", "'temperature' is not known"),
        ("sweep clusters --engine rayy", "invalid choice 'rayy'"),
        ("sweep clusters --estimators ste --workers 0", "workers is 0; expected an integer ≥ 1"),
        ("report nowhere", "nowhere is not a folder"),
        ("tasks clutsers", "task 'clutsers' is not known; did you mean 'clusters'?"),
        ("tasks clusters listops", "'listops' is not expected"),
        ("estimators all", "it has no options"),
        ("demo --workers 0", "workers is 0"),
        ("compare clusters --estimators spigott", "did you mean 'spigot'?"),
        ("compare clusters --examples 0", "examples is 0"),
        ("compare clusters --draws 0", "draws is 0"),
        ("compare clusters --samples -1", "samples is -1"),
        ("compare digits", "Matching, has no partition function"),
        ("compare polarity-bilstm", "polarity has yardsticks alone (frozen): nothing to compare"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, answer, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert answer in fails(capsys, *arguments.split())
    assert not list(tmp_path.rglob("run.json"))


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_mistake_has_no_box_around_it(encoding, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    assert fails(capsys, "run", "clusters", "--algorithm", "adan") == (
        "pullback: run clusters: invalid choice 'adan' for argument '--algorithm'. "
        "Expected one of ('adam', 'adamw', 'sgd')."
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_mistake(capsys, tmp_path):
    words = ["run", "clusters", *QUICK, "--accelerator", "gpu", "--out", str(tmp_path)]
    assert "--accelerator gpu cannot be used here" in fails(capsys, *words)


def options_of(command):
    """The options of a command and of its parts, with the words that explain each in a docstring."""
    of_commands = {"estimator", "options", "noise", "noise_until"} if isinstance(command, Run) else set()
    for name in (field.name for field in dataclasses.fields(command)):
        if name in of_commands:
            continue
        if dataclasses.is_dataclass(getattr(command, name)):
            yield from options_of(getattr(command, name))
        else:
            (words,) = re.findall(rf"^    {name}: (.*(?:\n        .*)*)", inspect.getdoc(type(command)), re.MULTILINE)
            yield f"--{name.replace('_', '-')}", " ".join(words.split())


@pytest.mark.parametrize("task", SETUPS)
@pytest.mark.parametrize("kind", [arguments.RunCommand, arguments.SweepCommand, arguments.CompareCommand])
def test_help_explains_every_option(kind, task, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    name, standard = kind.__name__.removesuffix("Command").lower(), SETUPS[task]
    with pytest.raises(SystemExit) as ended:
        main([name, task, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    command = kind(standard.task) if name == "compare" else kind(standard, standard.estimator)
    for option, words in options_of(command):
        assert option in shown and words in shown, option


def test_a_run_is_trained_recorded_and_found_again(capsys, tmp_path):
    words = ["run", "clusters", "--estimator", "spigot", "--set", "step_size=0.5", *QUICK, "--out", str(tmp_path)]
    main(words)
    (result,), complaints = records.read(tmp_path, TASKS)
    assert complaints == [] and result.is_done and result.run.options == (("step_size", 0.5),)
    printed = capsys.readouterr().out
    assert "test: accuracy" in printed and "examples/s" in printed
    main(words)
    assert "already done" in capsys.readouterr().out


def test_the_command_of_a_run_is_that_run():
    run = clusters("ste", noise=0.5, noise_until=0.5).with_option("step_size", 0.1).with_option("steps", 2)
    words = shlex.split(run.command("clusters", SETUPS["clusters"]))
    command = arguments.parse_of_task(arguments.RunCommand, "run", words[2:])
    assert words[2] == "clusters" and command.set == ("step_size=0.1",) and command.estimator == "ste(steps=2)"
    assert command.the_run() == run


def test_noise_is_that_of_the_set_up_the_command_or_the_row():
    def noises(*words):
        given = ["clusters-10", "--estimators", "ste,gold,spigot(noise=1)", "--seeds", "1", *words]
        return [
            (run.noise, run.noise_until)
            for run in arguments.parse_of_task(arguments.SweepCommand, "sweep", given).runs()
        ]

    assert noises() == [(3.0, 0.7), (0.0, 0.0), (1.0, 0.7)]
    assert noises("--noise", "2", "--noise-until", "0.5") == [(2.0, 0.5), (0.0, 0.0), (1.0, 0.5)]
    words = ["listops", "--noise", "1", "--noise-until", "0.5"]  # a set-up without noise
    run = arguments.parse_of_task(arguments.RunCommand, "run", words).the_run()
    assert (run.noise, run.noise_until) == (1.0, 0.5)


def test_one_list_of_step_sizes_serves_every_row_that_pulls_a_label_back():
    rows = [name for name, entry in pb.CATALOG.items() if name == "imle" or entry.kind == "pulled back"]
    rows.remove("identity")  # has nothing to tune
    given = ["clusters", "--estimators", ",".join(rows), "--seeds", "1", "--set", "step_size=0.3,2"]
    runs = arguments.parse_of_task(arguments.SweepCommand, "sweep", given).runs()
    assert [(run.estimator, dict(run.options)["step_size"]) for run in runs] == list(itertools.product(rows, (0.3, 2)))


def test_a_run_takes_settings_and_rows_as_a_sweep_does():
    row, chosen = "imle(noise=normal, learning_rate=0.5)", ["--set", "step_size=2", "--set", "steps=7"]
    words = ["clusters", "--estimator", row, *chosen]
    run = arguments.parse_of_task(arguments.RunCommand, "run", words).the_run()
    assert run.options == (("noise", "normal"), ("step_size", 2))
    assert run.steps == 7 and run.optimizer.learning_rate == 0.5


PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text("utf-8")
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.split()[1] in ("run", "sweep", "compare")])
def test_a_command_of_the_docs_can_be_given(line):
    _, command, *words = shlex.split(line)
    kind = {"run": arguments.RunCommand, "sweep": arguments.SweepCommand, "compare": arguments.CompareCommand}[command]
    given = arguments.parse_of_task(kind, command, words)
    if command == "compare":
        assert cells(Run(given.task, given.task.estimators()[0]), rows_of(given.estimators, given.task), 1, ())
    else:
        assert given.runs() if command == "sweep" else given.the_run()


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(capsys, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train", interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["run", "clusters", *QUICK, "--out", str(tmp_path)])
    assert ended.value.code == 130
    assert "same command goes on from the last checkpoint" in capsys.readouterr().err


def test_a_sweep_skips_what_is_done_and_prints_a_table(capsys, tmp_path):
    words = [
        *("sweep", "clusters", "--estimators", "gold,ste,sparsemap", "--seeds", "2", "--set", "step_size=0.1,1"),
        *("--engine", "here", *QUICK, "--out", str(tmp_path)),
    ]
    main(words)
    results, _ = records.read(tmp_path, TASKS)
    assert len(results) == 2 * (1 + 2 + 1) and all(result.is_done for result in results)
    printed = capsys.readouterr().out
    assert "ste (step_size=0.1)" in printed and "is best with accuracy" in printed
    before = {result.folder: result.folder.joinpath("records.jsonl").stat().st_mtime_ns for result in results}
    results[0].folder.joinpath("done").unlink()
    main(words)
    after = {result.folder: result.folder.joinpath("records.jsonl").stat().st_mtime_ns for result in results}
    assert [folder for folder in before if before[folder] != after[folder]] == [results[0].folder]


def first_words(printed):
    return [line.split()[0] for line in printed.splitlines() if line.strip()]


def test_estimators_are_listed_with_what_can_be_set(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["estimators"])
    printed = capsys.readouterr().out
    assert set(pb.CATALOG) <= set(first_words(printed))
    assert "step_size=1, steps=1, backtrack=false" in printed and "distribution=gibbs" in printed
    assert "decodes_from" not in printed  # no task takes an option for frozen
    for letter in {letter for entry in pb.CATALOG.values() for letter in entry.formula if letter in "JμCs′ηλεybP"}:
        assert re.search(rf"\b{letter}", listings.LEGEND), letter


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if entry.kind != "yardstick"])
def test_what_is_listed_can_be_set(name):
    listed = [listings._assigned(option, value) for option, value in standard_options(name).items()]
    for option, (value,) in map(parse_assignment, listed):
        assert pb.get_estimator(name, **{option: value})


def test_tasks_are_listed(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["tasks"])
    printed = capsys.readouterr().out
    assert set(SETUPS) <= set(first_words(printed)) and len(printed.splitlines()) < 40
    (line,) = [line for line in printed.splitlines() if line.split()[:1] == ["listops-published"]]
    assert "listops with depth=5, shortest=10, longest=50, arguments=10" in line and "DependencyTree" in line
    (line,) = [line for line in printed.splitlines() if line.split()[:1] == ["clusters-published"]]
    assert "clusters with other settings of training" in line


@pytest.mark.parametrize("name", SETUPS)
def test_a_task_is_listed_with_its_estimators_and_settings(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    main(["tasks", name])
    words = re.split(r"[\s,]+", capsys.readouterr().out)
    assert {*SETUPS[name].task.estimators(), f"steps={SETUPS[name].steps}"} <= set(words)


@pytest.mark.parametrize("name", SETUPS)
def test_a_task_says_which_rows_know_the_true_structure_or_why_none_does(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    task = SETUPS[name].task
    main(["tasks", name])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("true structure")]
    if "gold" in task.estimators():
        assert "gold is given it" in line and all(row in line for row in task.losses()) and task.losses()
    else:
        assert line.rstrip().endswith(f"{task.without_gold}, so there are no rows gold and supervised")
        assert task.without_gold != Task.without_gold


def test_help_says_what_this_is_and_where_to_begin(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["--help"])
    printed = capsys.readouterr().out
    assert printed.startswith("Trains models") and "Begin with `pullback demo`" in printed
    assert set(cli.COMMANDS) <= set(first_words(printed))


def test_a_sweep_whose_data_are_missing_says_so_before_workers_start(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "_engine", lambda engine: pytest.fail("workers were started"))
    words = ["sweep", "parsing", "--data", str(tmp_path), "--estimators", "flat,chain", "--seeds", "2"]
    assert f"{tmp_path}/ud_english_ewt" in fails(capsys, *words, "--out", str(tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()


def test_what_keeps_many_runs_from_being_trained_is_said_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")
    monkeypatch.setattr(sweep, "train", lambda *given: 1 / 0)
    words = ["sweep", "clusters", *QUICK, "--estimators", "ste,spigot", "--seeds", "2", "--engine", "here"]
    with pytest.raises(SystemExit) as end:
        main([*words, "--out", str(tmp_path / "runs")])
    assert end.value.code == 2
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "not finished" in line]
    assert "clusters-ste-s1-" in line and "and 3 more: ZeroDivisionError: division by zero" in line


def test_a_run_that_failed_does_not_count_as_done(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["sweep", "clusters", "--features", "8", "--estimators", "ste", "--steps", "4", "--seeds", "1"]
    words += ["--algorithm", "sgd", "--encoder-learning-rate", "0", "--set", "learning_rate=0.001,1e30"]
    words += ["--engine", "here", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        main(words)
    assert "1 of 2 runs done, 1 failed" in capsys.readouterr().out


def test_gradients_of_a_task_are_compared(capsys):
    words = ["compare", "subset", "--n", "4", "--k", "2", "--instances", "4", "--estimators"]
    main([*words, "ste,minimum_risk,spigot(step_size=0.5)", "--examples", "4", "--draws", "3"])
    printed = capsys.readouterr().out
    assert "minimum_risk" in printed and "cosine" in printed and "spigot(step_size=0.5)" in printed


def test_a_row_of_a_comparison_is_one_line_however_long_it_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    main(["compare", "subset", "--estimators", "ste,spigot", "--examples", "2", "--draws", "2"])
    assert len(capsys.readouterr().out.splitlines()) == 4  # names of columns, two rows, and how it was compared


@pytest.mark.parametrize(
    "words",
    [
        ["run", "clusters", *QUICK, "--out", "file"],
        ["sweep", "clusters", *QUICK, "--estimators", "ste", "--out", "file"],
        ["report", "runs", "--to", "file/page"],
    ],
)
def test_a_place_that_cannot_be_written_to_is_named(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(clusters(), tmp_path / "runs")
    (tmp_path / "file").touch()
    monkeypatch.setattr(sweep, "_engine", lambda engine: pytest.fail("workers were started"))
    assert "file" in fails(capsys, *words)


def test_losses_of_a_supervised_task_are_compared(capsys):
    main(["compare", "parsing", "--hidden", "8", "--estimators", "perceptron,crf", "--examples", "2", "--draws", "2"])
    printed = capsys.readouterr().out
    assert "perceptron" in printed and "crf" in printed


def test_an_empty_folder_has_no_report(capsys, tmp_path):
    assert "no runs in" in fails(capsys, "report", str(tmp_path))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "run.json").write_text(json.dumps({"format": "something else"}))
    assert "not a run of version" in fails(capsys, "report", str(tmp_path))


def test_the_demo_compares_eight_estimators_on_clusters_and_four_on_trees():
    runs = demo.runs()
    for task, count, seeds in (("clusters", 8, 3), ("listops", 4, 1)):
        rows = {run.estimator for run in runs if run.task.name == task}
        assert len(rows - set(TASKS[task]().yardsticks())) == count
        assert {run.seed for run in runs if run.task.name == task} == set(range(1, seeds + 1))

"""Training runs: every task with its rows, resumed runs, and processes that were killed."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pullback as pb
from pullback.experiments.batches import Order
from pullback.experiments.evaluation import evaluate
from pullback.experiments.mistakes import Mistake
from pullback.experiments.optimizers import make_optimizer
from pullback.experiments.records import Log, read_records
from pullback.experiments.rows import make_estimator
from pullback.experiments.training import Diverged, train
from pullback.experiments.watcher import Watcher
from small_runs import SMALL, Interrupting, clusters, history

ROWS = [(name, row) for name in ("clusters", "subset") for row in SMALL[name].task.estimators()]
ROWS += [("listops", row) for row in ("gold", "flat", "chain", "random", "supervised", "frozen", "spigot", "sparsemap")]
ROWS += [("polarity", row) for row in ("flat", "chain", "random", "frozen", "spigot", "structured_attention")]
ROWS += [("rationales", row) for row in ("every_word", "random", "ste", "spigot", "sparsemap")]
ROWS += [("rationales-spans", row) for row in ("every_word", "random", "ste_marginals", "sparsemap")]
ROWS += [("polarity-bilstm", "frozen")]
ROWS += [("digits", row) for row in ("gold", "random", "supervised", "frozen", "spigot", "sparsemap", "imle")]
ROWS += [("digits-ranking", row) for row in ("gold", "supervised", "frozen", "spigot", "sparsemap")]
ROWS += [("alignment", row) for row in ("diagonal", "random", "frozen", "spigot", "structured_attention")]
ROWS += [("vae", row) for row in SMALL["vae"].task.estimators()]
ROWS += [
    ("vae-bits", row) for row in ("random", "frozen", "ste", "sparsemap", "minimum_risk", "sparse_marginalization")
]
ROWS += [
    ("morphseg", row) for row in ("gold", "whole", "letters", "random", "supervised", "frozen", "spigot", "sparsemap")
]
ROWS += [(name, row) for name in ("parsing", "tagging") for row in SMALL[name].task.estimators()]


@pytest.mark.parametrize(("name", "row"), ROWS)
def test_every_row_of_a_task_trains(name, row, tmp_path):
    run = replace(SMALL[name], estimator=row, noise=0.5, steps=2, evaluate_every=2)
    train(run, tmp_path)
    (record,) = history(tmp_path / run.key)
    assert Log(tmp_path / run.key).is_done
    assert record["step"] == 2 and record["decodings"] >= 1
    assert run.task.measure in record["validation"] and record["validation"].keys() == record["test"].keys()


@pytest.mark.parametrize(
    ("estimator", "options", "noise"),
    [
        ("spigot", {}, 1.0),
        ("ste", {"step_size": "adaptive"}, 0.0),
        ("reinforce", {"baseline": "running_average"}, 0.0),
        ("structured_attention", {}, 0.0),
        ("frozen", {}, 0.0),
        ("random", {}, 0.0),
    ],
)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(estimator, options, noise, tmp_path):
    run = clusters(estimator, options=tuple(options.items()), noise=noise)
    train(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "interrupted", Interrupting(3))
    assert not Log(tmp_path / "interrupted" / run.key).is_done
    torch.rand(3)  # other random numbers were drawn meanwhile
    train(run, tmp_path / "interrupted")
    whole, interrupted = (history(tmp_path / name / run.key) for name in ("whole", "interrupted"))
    assert interrupted == whole and len(whole) == 2
    same_parameters(*(tmp_path / name / run.key for name in ("whole", "interrupted")))


def test_noise_that_falls_is_resumed_where_it_was_and_changes_what_is_learned(tmp_path):
    run = clusters("ste", noise=2.0, noise_until=1.0)
    train(run, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "interrupted", Interrupting(3))
    train(run, tmp_path / "interrupted")
    assert history(tmp_path / "whole" / run.key) == history(tmp_path / "interrupted" / run.key)
    steady = replace(run, noise_until=0.0)
    train(steady, tmp_path / "steady")
    assert history(tmp_path / "steady" / steady.key) != history(tmp_path / "whole" / run.key)


def same_parameters(*folders):
    first, second = (torch.load(folder / "checkpoint.pt", weights_only=True)["model"] for folder in folders)
    assert all(torch.equal(first[name], second[name]) for name in first)


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, {tests!r})
from small_runs import clusters
from pullback.experiments.records import Log
from pullback.experiments.training import train
from pullback.experiments.watcher import Watcher

run, folder, kill = clusters("ste", noise=1.0, steps=6), Path({folder!r}), lambda: os.kill(os.getpid(), signal.SIGKILL)

class AtStep(Watcher):
    def on_step(self, step, loss):
        step == 3 and kill()

def in_the_middle_of_a_record(log, record):
    with log.path("records.jsonl").open("a") as file:
        file.write('{{"version": 2, "st')
    kill()

def before_the_checkpoint(log, checkpoint):
    kill()

def before_a_checkpoint_is_in_place(beside, place):
    place.name == "checkpoint.pt" and kill()
    return move(beside, place)

def before_the_end(log, pictures):
    kill()

move = Path.replace
changes = [("write", in_the_middle_of_a_record), ("save", before_the_checkpoint), (None, None),
           ("replace", before_a_checkpoint_is_in_place), ("finish", before_the_end)]
for name, change in changes:
    child = os.fork()
    if child == 0:
        if name is not None:
            setattr(Path if name == "replace" else Log, name, change)
        train(run, folder, AtStep() if name is None else None)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status))
child = os.fork()
if child == 0:
    train(run, folder)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status)
"""


def test_a_run_that_is_killed_at_any_moment_ends_as_if_it_had_not_been(tmp_path):
    tests = str(Path(__file__).parents[1])
    program = KILLED.format(tests=tests, folder=str(tmp_path / "killed"))
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert finished.stdout.split() == [str(int(signal.SIGKILL))] * 5 + ["0"], finished.stderr
    run = clusters("ste", noise=1.0, steps=6)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of several threads differ in the last digit
    train(run, tmp_path / "whole")
    torch.set_num_threads(threads)
    assert history(tmp_path / "killed" / run.key) == history(tmp_path / "whole" / run.key)
    same_parameters(*(tmp_path / name / run.key for name in ("whole", "killed")))


SHARED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from small_runs import clusters
from pullback.experiments.training import train
import torch
torch.set_num_threads(1)
train(clusters("structured_attention").with_setting("batch_size", 25), Path(sys.argv[1]))
"""


def test_two_processes_that_share_batches_give_the_result_of_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(SHARED)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [*launch, str(program), str(tmp_path / "two"), str(Path(__file__).parents[1])]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
    run = clusters("structured_attention").with_setting("batch_size", 25)  # shares of 13 and 12
    train(run, tmp_path / "one")
    one, two = (
        torch.load(tmp_path / name / run.key / "checkpoint.pt", weights_only=True)["model"] for name in ("one", "two")
    )
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4)
    losses = [
        [record["loss"] for record in read_records(tmp_path / name / run.key / "records.jsonl")[0]]
        for name in ("one", "two")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_batch_that_is_too_small_for_all_processes_is_refused_before_anything_is_written(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("from pullback.experiments.cli import main\n\nmain()\n")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
    words = [*launch, "run", "clusters", "--batch-size", "1", "--out", str(tmp_path / "runs")]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=300)
    said = "pullback: batch_size is 1, and 2 processes share a batch; expected one example each.\n"
    assert finished.returncode != 0 and said in finished.stderr
    assert not (tmp_path / "runs").exists()


def test_a_random_structure_is_another_with_every_seed_and_other_measurements_are_alike():
    run = SMALL["parsing"]
    random, data = make_estimator(run.task, "random", {}), run.task.data()
    uas = [evaluate(replace(run, seed=seed), run.task.model(random), data)["test"]["uas"] for seed in (1, 1, 2, 3)]
    assert uas[0] == uas[1] and len(set(uas)) == 3
    toy = SMALL["subset"]
    model = toy.task.model(make_estimator(toy.task, "perturb_and_map", {}))  # random in training alone
    found = [evaluate(replace(toy, seed=seed), model, toy.task.data()) for seed in (1, 2)]
    assert found[0] == found[1] and found[0]["test"]["variance"] > 0


def test_a_run_whose_records_were_lost_does_not_go_on(tmp_path):
    run = clusters(steps=8, evaluate_every=2)
    train(run, tmp_path)
    (tmp_path / run.key / "done").unlink()
    path = tmp_path / run.key / "records.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], "torn\n", *lines[2:]]))
    with pytest.raises(Mistake, match=r"line 2 is not JSON.*1 records of 4 are there, and the run cannot go on"):
        train(run, tmp_path)


def test_a_run_that_is_done_is_not_trained_again(tmp_path):
    run = clusters()
    train(run, tmp_path)

    class Never(Watcher):
        def on_start(self, run, step):
            raise AssertionError

    train(run, tmp_path, Never())


def test_two_processes_do_not_train_the_same_run(tmp_path):
    run = clusters()
    with Log(tmp_path / run.key).held(), pytest.raises(Mistake, match="being trained by another process"):
        train(run, tmp_path)


def test_a_model_that_diverges_ends_with_a_reason(tmp_path):
    run = clusters("ste").with_setting("algorithm", "sgd").with_setting("learning_rate", 1e30)
    with pytest.raises(Diverged, match="no longer finite"):
        train(run, tmp_path)
    log = Log(tmp_path / run.key)
    assert not log.is_done and "no longer finite" in log.failure


def test_evaluation_leaves_training_alone(tmp_path):
    runs = [clusters("reinforce", options=(("baseline", "running_average"),), evaluate_every=n) for n in (1, 4)]
    for run in runs:
        train(run, tmp_path)
    same_parameters(*(tmp_path / run.key for run in runs))


def test_every_pass_brings_each_example_once():
    order = Order(size=10, batch_size=4, seed=3)
    first = torch.cat([order.indices(step) for step in (0, 1)])
    assert len(first.unique()) == 8
    assert torch.equal(Order(10, 4, 3).indices(1), order.indices(1))
    assert not torch.equal(order.indices(2), order.indices(0))
    shares = [Order(10, 4, 3, rank, 2).indices(1) for rank in (0, 1)]
    assert torch.cat(shares).sort().values.tolist() == order.indices(1).sort().values.tolist()
    assert torch.equal(Order(10, 0, 3).indices(5), torch.arange(10))


def test_encoder_and_decoder_have_learning_rates_of_their_own():
    run = clusters().with_setting("encoder_learning_rate", 0.5)
    model = run.task.model(pb.ste())
    groups = make_optimizer(run.optimizer, model).param_groups
    assert [group["lr"] for group in groups] == [0.5, 1e-3]
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))

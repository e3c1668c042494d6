"""The command line: `pullback run`, `sweep`, `report`, `compare`, `tasks`, `estimators` and `demo`."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import pullback as pb
from pullback.experiments import arguments, demo, events, listings, records
from pullback.experiments.display import RunDisplay, measures_in_words, watching
from pullback.experiments.mistakes import Mistake, unknown
from pullback.experiments.report import markdown, page
from pullback.experiments.rows import make_estimator
from pullback.experiments.run import Run
from pullback.experiments.sweep import Engine, cells, rows_of, sweep
from pullback.experiments.task import Labelled, Task, batch_of
from pullback.experiments.tasks import SETUPS, TASKS
from pullback.experiments.training import Diverged, train
from pullback.experiments.watcher import Together


@dataclass(frozen=True)
class Command:
    """A command: what it is about, what it does with the words after it, and whether the first of them is a task.

    One that `trains` goes on where it was stopped.
    """

    about: str
    call: Callable[[Sequence[str], Console], int]
    of_a_task: bool = False
    trains: bool = False


def main(given: Sequence[str] | None = None) -> None:
    """What the `pullback` command does beside `warm` and `--version`."""
    words = list(sys.argv[1:] if given is None else given)
    is_first = os.environ.get("RANK", "0") == "0"  # under torchrun, one process speaks for all
    try:
        code = _dispatch(words, Console(quiet=not is_first))
    except (Mistake, Diverged) as mistake:
        print(f"pullback: {mistake}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # whoever read what we print has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except OSError as error:  # a folder that cannot be made, a disk that is full
        print(f"pullback: {error.filename or 'files'}: {error.strerror or error}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        is_resumed = words and words[0] in COMMANDS and COMMANDS[words[0]].trains
        said = "stopped.  The same command goes on from the last checkpoint." if is_resumed else "stopped."
        print(f"\npullback: {said}", file=sys.stderr)
        code = 130
    if code:
        sys.exit(code)


def _dispatch(given: list[str], console: Console) -> int:
    if not given or given[0] in ("-h", "--help"):
        console.print(ABOUT, highlight=False)
        console.print(_overview())
        return 0
    if given[0] not in COMMANDS:
        raise unknown("command", given[0], [*COMMANDS, "warm"])
    return COMMANDS[given[0]].call(given[1:], console)


ABOUT = (
    "Trains models with a discrete structure inside, such as a tree, a tagging or a matching, and compares estimators "
    "of their gradients.  Begin with `pullback demo`, or with `pullback run clusters`.\n"
)


def _overview() -> Table:
    table = Table(title="pullback COMMAND", title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, entry in COMMANDS.items():
        table.add_row(f"{name} TASK" if entry.of_a_task else name, entry.about)
    table.add_row("warm", "compile the kernels ahead of time")
    table.add_row("--version", "print the version")
    table.add_row("COMMAND --help", "explain every option of a command")
    return table


# ---- training


def _run(given: Sequence[str], console: Console) -> int:
    command = arguments.parse_of_task(arguments.RunCommand, "run", given)
    run = command.the_run()
    log = records.Log(command.out / run.key)
    watchers = [events.Events(log)] if command.tensorboard else []
    if log.is_done:
        log.check(run)
        console.print(f"already done: {log.folder}", soft_wrap=True)
        for watcher in watchers:
            watcher.rewrite()
    else:
        torch.set_num_threads(1)  # the tensors are small: a second thread waits more than it helps
        examples = len(run.task.data()["train"])
        display = RunDisplay(console, min(run.optimizer.batch_size or examples, examples))
        with display.progress:
            train(run, command.out, Together([display, *watchers]), command.accelerator)
    found, _ = records.read_records(log.path("records.jsonl"))
    if found:
        console.print(f"test: {measures_in_words(run.task, found[-1]['test'], 8)}")
    console.print(f"Records in {log.folder}", soft_wrap=True)
    return 0


def _sweep(given: Sequence[str], console: Console) -> int:
    command = arguments.parse_of_task(arguments.SweepCommand, "sweep", given)
    runs = command.runs()
    if command.noise:
        without = dict.fromkeys(run.estimator for run in runs if not run.noise)
        if without:
            console.print(f"--noise is for labels that are pulled back: none for {', '.join(without)}.")
    failures = _train_all(runs, command.out, console, command.engine, command.workers, command.tensorboard)
    if failures and not command.out.exists():
        return 2  # nothing could be begun, and it was said why
    results, _ = _read_runs(command.out)
    keys = {run.key for run in runs}
    listings.say_sections([result for result in results if result.run.key in keys], console)
    console.print(f"Runs in {command.out}; `pullback report {command.out}` makes a page of them.", soft_wrap=True)
    return 1 if failures else 0


def _demo(given: Sequence[str], console: Console) -> int:
    command = arguments.parse(arguments.DemoCommand, "demo", given)
    runs = demo.runs(command.steps)
    console.print(f"{len(runs)} runs in {command.out}; Ctrl-C stops, and the same command goes on.", soft_wrap=True)
    failures = _train_all(runs, command.out, console, workers=command.workers)
    _write_report(command.out, command.out / "report.html", console)
    return 1 if failures else 0


def _train_all(
    runs: list[Run[Any]],
    folder: Path,
    console: Console,
    engine: Engine = "processes",
    workers: int = 2,
    tensorboard: bool = False,
) -> dict[str, str]:
    """Trains runs, shows how far they are, and says which could not be finished."""
    with watching(runs, folder, console):
        failures = sweep(runs, folder, engine, workers, tensorboard)
    by_reason: dict[str, list[str]] = {}
    for key, reason in failures.items():
        by_reason.setdefault(reason, []).append(key)
    for reason, keys in by_reason.items():
        others = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        console.print(f"not finished: {keys[0]}{others}: {reason}", soft_wrap=True)
    return failures


# ---- looking


def _compare(given: Sequence[str], console: Console) -> int:
    command = arguments.parse_of_task(arguments.CompareCommand, "compare", given)
    task: Task = command.task
    if not task.structure.offers(pb.LogLinear):
        raise Mistake(
            f"compare: {task.name} has no exact gradient to compare with, since its structure, "
            f"{type(task.structure).__name__}, has no partition function."
        )
    fitting = [name for name in task.estimators() if name not in task.yardsticks()]
    chosen = fitting if command.estimators == "all" else rows_of(command.estimators, task)
    if not chosen:
        only = ", ".join(task.estimators())
        raise Mistake(f"compare: with these settings {task.name} has yardsticks alone ({only}): nothing to compare.")
    estimators = {}
    for text in chosen:
        (run,) = cells(Run(task, task.estimators()[0]), [text], 1, ())
        estimators[text] = make_estimator(task, run.estimator, dict(run.options), run.noise)
    torch.manual_seed(command.seed)
    model = task.model(pb.ste()).eval()  # no dropout: the exact gradient is that of one loss
    batch = batch_of(task.data()["train"], command.examples)
    for estimator in estimators.values():
        if isinstance(estimator, Labelled):
            estimator.look_at(batch)
    with torch.no_grad():
        scores = model.encoder(batch)
    comparison = pb.compare_gradients(
        model.structure_of(batch),
        scores,
        lambda point: model.criterion(model.decoder(batch, point), batch.y),
        estimators,
        draws=command.draws,
        samples=command.samples,
    )
    console.print(str(comparison), highlight=False, soft_wrap=True)
    return 0


def _report(given: Sequence[str], console: Console) -> int:
    command = arguments.parse(arguments.ReportCommand, "report", given)
    beside = command.runs / "report.html" if command.runs.is_dir() else command.runs.with_name("report.html")
    _write_report(command.runs, command.to or beside, console)
    return 0


def _write_report(folder: Path, to: Path, console: Console) -> None:
    results, complaints = _read_runs(folder)
    for complaint in complaints:
        console.print(complaint, soft_wrap=True)
    listings.say_sections(results, console)
    if to.suffix == ".md":
        markdown.write(results, to)
    else:
        page.write(results, complaints, to)
    console.print(f"Report written to {to}", soft_wrap=True)


def _read_runs(folder: Path) -> tuple[list[records.Result], list[str]]:
    results, complaints = records.read(folder, TASKS)
    if not results:
        found = f"  ({'; '.join(complaints)})" if complaints else ""
        raise Mistake(f"no runs in {folder}; expected the folder of an earlier `run`, `sweep` or `demo`.{found}")
    return results, complaints


def _tasks(given: Sequence[str], console: Console) -> int:
    if given and not given[0].startswith("-"):
        _nothing_more("tasks", given[1:])
        if given[0] not in SETUPS:
            raise unknown("task", given[0], SETUPS)
        console.print(listings.table_of_task(given[0]), highlight=False)
        console.print(
            f"\n`pullback run {given[0]} --help` explains the settings, `pullback estimators` the estimators."
        )
    else:
        _nothing_more("tasks", given, "[TASK]")
        console.print(listings.table_of_tasks())
        console.print("`pullback tasks TASK` names the estimators and settings of one; `pullback run TASK` trains it.")
    return 0


def _estimators(given: Sequence[str], console: Console) -> int:
    _nothing_more("estimators", given)
    console.print(listings.table_of_estimators())
    console.print(listings.LEGEND, highlight=False)
    return 0


def _nothing_more(command: str, given: Sequence[str], usage: str = "") -> None:
    if given and given[0] in ("-h", "--help"):
        print(f"usage: pullback {command} {usage}".rstrip() + f"\n\n{COMMANDS[command].about}")
        raise SystemExit(0)
    if given:
        raise Mistake(f"{command}: {' '.join(given)!r} is not expected; it has no options.")


COMMANDS = {
    "run": Command("train one model", _run, of_a_task=True, trains=True),
    "sweep": Command("train one model for each estimator, combination of settings and seed", _sweep, True, trains=True),
    "compare": Command("compare the gradients of estimators on a batch", _compare, of_a_task=True),
    "report": Command("write one page about the runs of a folder", _report),
    "tasks": Command("list the tasks; with the name of one, what can be chosen in it", _tasks),
    "estimators": Command("list the estimators of the catalog", _estimators),
    "demo": Command("compare estimators on two tasks in a few minutes, and write a report", _demo, trains=True),
}

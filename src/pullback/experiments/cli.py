"""The command line: `pullback run`, `sweep`, `report`, `compare`, `tasks`, `estimators` and `demo`.

A command is a frozen dataclass, and its options are the fields; `tyro` makes one from the other.
"""

import contextlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import torch
import tyro
from rich import box
from rich.console import Console
from rich.table import Table

import pullback as pb
from pullback.experiments import demo, records
from pullback.experiments.display import RunDisplay, measures_in_words, watching
from pullback.experiments.estimators import make_estimator, options_of
from pullback.experiments.mistakes import Mistake, unknown
from pullback.experiments.report import page
from pullback.experiments.report.summary import Row, Section, sections
from pullback.experiments.run import AnyTask, Run
from pullback.experiments.sweep import Engine, cells, parse_assignment, split_rows, sweep
from pullback.experiments.task import Informed, Task, batch_of
from pullback.experiments.tasks import SETUPS, TASKS
from pullback.experiments.training import Diverged, train

Settings = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
Command = TypeVar("Command")


@dataclass(frozen=True)
class RunCommand(Generic[AnyTask]):
    """Train one model.  The same command goes on with a run that was interrupted.

    Attributes:
        set: an option of the estimator, such as step_size=0.1; may be given several times.
        out: the folder for runs; each has a folder of its own in it.
        accelerator: cpu, gpu or auto; under torchrun, processes share each batch.
    """

    run: tyro.conf.OmitArgPrefixes[Run[AnyTask]]
    set: Settings = ()
    out: Path = Path("runs")
    accelerator: str = "cpu"


@dataclass(frozen=True)
class SweepCommand(Generic[AnyTask]):
    """Train one model for each estimator, combination of settings and seed.  Finished cells are skipped.

    Attributes:
        estimators: names between commas, with settings of their own if need be: "ste,spigot(step_size=0.1)"; or all.
        seeds: how many seeds, counted from --seed.
        set: values of an option or setting, such as step_size=0.1,1,10; may be given several times.
        engine: processes on this machine, here (one after the other), or ray.
        workers: how many runs at a time.
        out: the folder for runs; each has a folder of its own in it.
    """

    run: tyro.conf.OmitArgPrefixes[Run[AnyTask]]
    estimators: str = ""
    seeds: int = 3
    set: Settings = ()
    engine: Engine = "processes"
    workers: int = 2
    out: Path = Path("runs")


@dataclass(frozen=True)
class CompareCommand(Generic[AnyTask]):
    """Print how the gradients of estimators compare with the exact one, on a batch of the task.

    Attributes:
        estimators: names between commas; all that fit if not given.
        examples: in the batch.
        draws: how often a random estimator is run.
        samples: for the exact gradient, where there are too many structures to list.
    """

    run: tyro.conf.OmitArgPrefixes[Run[AnyTask]]
    estimators: str = ""
    examples: int = 16
    draws: int = 50
    samples: int = 1024


@dataclass(frozen=True)
class ReportCommand:
    """Write one page about all runs of a folder.

    Attributes:
        runs: the folder of earlier runs.
        to: the page; report.html in the folder if not given.
    """

    runs: tyro.conf.Positional[Path] = Path("runs")
    to: Path = Path()


@dataclass(frozen=True)
class DemoCommand:
    """Compare eight estimators on latent clusters and four on latent trees, in a few minutes.

    Attributes:
        out: the folder for runs.
        workers: how many runs at a time.
        steps: of each run; 0 for what the demo is meant to take.
    """

    out: Path = Path("runs") / "demo"
    workers: int = 2
    steps: int = 0


@dataclass(frozen=True)
class _Entry:
    about: str
    call: Callable[[Sequence[str], Console], int]
    of_a_task: bool = field(default=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `pullback` command does beside `warm` and `--version`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _dispatch(given, Console())
    except (Mistake, Diverged) as mistake:
        print(f"pullback: {mistake}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("\npullback: stopped.  Nothing is lost: the same command goes on from here.", file=sys.stderr)
        code = 130
    if code:
        sys.exit(code)


def _dispatch(given: list[str], console: Console) -> int:
    if not given or given[0] in ("-h", "--help"):
        console.print(_overview())
        return 0
    if given[0] not in COMMANDS:
        raise unknown("command", given[0], [*COMMANDS, "warm"])
    return COMMANDS[given[0]].call(given[1:], console)


def _overview() -> Table:
    table = Table(title="pullback COMMAND", title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, entry in COMMANDS.items():
        table.add_row(f"{name} TASK" if entry.of_a_task else name, entry.about)
    table.add_row("warm", "compile the kernels ahead of time")
    table.add_row("--version", "print the version")
    table.add_row("COMMAND --help", "explain every option of a command")
    return table


# ---- parsing


def _parse(kind: Any, name: str, given: Sequence[str], default: Any = None) -> Any:
    """The command that was given; what is wrong with it, as a `Mistake` of one line."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(kind, prog=f"pullback {name}", args=list(given), default=default)
    except SystemExit as ended:
        if not ended.code:
            raise
        raise Mistake(f"{name}: {_one_line(errors.getvalue())}") from None


def _one_line(box_of_text: str) -> str:
    """What tyro says in a box, without the box."""
    without_title = [line for line in box_of_text.splitlines() if not line.startswith("╭")]
    lines = [re.sub(r"\x1b\[[0-9;]*m|[─│╰╯├┤]", "", line).strip() for line in without_title]
    words = " ".join(line for line in lines if line and "--help" not in line)
    return words.partition(" Argument helptext:")[0] or "this cannot be read"


def _of_task(kind: Any, command: str, given: Sequence[str], **more: Any) -> tuple[Any, str]:
    """A command about a task, and the name of the set-up, which comes first."""
    about = f"pullback {command} TASK"
    if not given:
        raise Mistake(f"{command}: which task?  There are: {', '.join(SETUPS)}.")
    if given[0] in ("-h", "--help"):
        print(f"usage: {about} [options]\n\nTASK is one of {', '.join(SETUPS)}; `{about} --help` explains the options.")
        raise SystemExit(0)
    if given[0] not in SETUPS:
        raise unknown("task", given[0], SETUPS)
    standard = SETUPS[given[0]]
    made = kind[type(standard.task)]
    return _parse(made, f"{command} {given[0]}", given[1:], made(run=standard, **more)), given[0]


# ---- commands


def _run(given: Sequence[str], console: Console) -> int:
    command, _ = _of_task(RunCommand, "run", given)
    run = command.run
    for text in command.set:
        option, values = parse_assignment(text)
        if len(values) > 1:
            raise Mistake(f"run: --set {text} has {len(values)} values; `pullback sweep` trains one model for each.")
        run = run.with_option(option, values[0])
    log = records.Log(command.out / run.key)
    if log.is_done:
        console.print(f"already done: {log.folder}")
    else:
        torch.set_num_threads(1)  # the tensors are small: a second thread waits more than it helps
        display = RunDisplay(console, run.optimizer.batch_size or len(run.task.data()["train"]))
        with display.progress:
            train(run, command.out, display, command.accelerator)
    _say_result(run, log, console)
    console.print(f"Records in {log.folder}", soft_wrap=True)
    return 0


def _say_result(run: Run[Any], log: records.Log, console: Console) -> None:
    found, _ = records.read_records(log.path("records.jsonl"))
    if found:
        console.print(f"test: {measures_in_words(run.task, found[-1]['test'], 8)}")


def _sweep(given: Sequence[str], console: Console) -> int:
    command, _ = _of_task(SweepCommand, "sweep", given)
    task: Task = command.run.task
    rows = task.estimators() if command.estimators == "all" else split_rows(command.estimators)
    runs = cells(command.run, rows or [command.run.estimator], command.seeds, command.set)
    return _train_all(runs, command.out, command.engine, command.workers, console)


def _train_all(runs: list[Run[Any]], folder: Path, engine: Engine, workers: int, console: Console) -> int:
    with watching(runs, folder, console):
        failures = sweep(runs, folder, engine, workers)
    _say_failures(failures, console)
    results, _ = _read_runs(folder)
    keys = {run.key for run in runs}
    _say_sections([result for result in results if result.run.key in keys], console)
    console.print(f"Runs in {folder}; `pullback report {folder}` makes a page of them.", soft_wrap=True)
    return 1 if failures else 0


def _compare(given: Sequence[str], console: Console) -> int:
    command, _ = _of_task(CompareCommand, "compare", given)
    task: Task = command.run.task
    fitting = [name for name in task.estimators() if name not in task.yardsticks()]
    rows = split_rows(command.estimators) or fitting
    estimators = {}
    for text in rows:
        (run,) = cells(replace(command.run, noise=0.0), [text], 1, ())
        estimators[text] = make_estimator(task, run.estimator, dict(run.options), 0.0)
    torch.manual_seed(command.run.seed)
    model = task.model(pb.ste())
    batch = batch_of(task.data()["train"], command.examples)
    for estimator in estimators.values():
        if isinstance(estimator, Informed):
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
    console.print(str(comparison), highlight=False)
    return 0


def _report(given: Sequence[str], console: Console) -> int:
    command = _parse(ReportCommand, "report", given)
    _write_report(command.runs, command.to if command.to.name else command.runs / "report.html", console)
    return 0


def _write_report(folder: Path, to: Path, console: Console) -> None:
    results, complaints = _read_runs(folder)
    for complaint in complaints:
        console.print(complaint, soft_wrap=True)
    _say_sections(results, console)
    page.write(results, complaints, to)
    console.print(f"Report written to {to}", soft_wrap=True)


def _say_sections(results: Sequence[records.Result], console: Console) -> None:
    """A table and a sentence for each task."""
    for section in sections(results):
        console.print(_terminal_table(section))
        console.print(section.conclusion, highlight=False)
        if section.unfinished:
            console.print(f"{len(section.unfinished)} runs are not finished, and are not in the table.")


def _terminal_table(section: Section) -> Table:
    table = Table(title=section.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("estimator", no_wrap=True)
    shown = section.measures[:3]
    for column in (*(measure.replace("_", " ") for measure in shown), "decodings", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in section.rows:
        cells = [_terminal_cell(section, row, measure) for measure in shown]
        cost = [f"{row.cost('decodings'):.1f}", f"{row.cost('seconds'):.1f}"]
        table.add_row(row.label, *cells, *cost, style="dim" if section.is_yardstick(row) else "")
    return table


def _terminal_cell(section: Section, row: Row, measure: str) -> str:
    value, error, best = row.middle(measure), row.error(measure), section.best(measure)
    if value is None:
        return ""
    text = section.show(measure, value) + (f" ±{section.show_error(measure, error)}" if error is not None else "")
    if row is best:
        return f"[bold]{text}[/bold]"
    return f"{text} =" if best is not None and section.tied(measure, row, best) else text


def _read_runs(folder: Path) -> tuple[list[records.Result], list[str]]:
    if not folder.is_dir():
        raise Mistake(f"{folder} is not a folder; expected that of an earlier `run`, `sweep` or `demo`.")
    results, complaints = records.read(folder, TASKS)
    if not results:
        found = f"  ({'; '.join(complaints)})" if complaints else ""
        raise Mistake(f"no runs in {folder}; expected the folder of an earlier `run`, `sweep` or `demo`.{found}")
    return results, complaints


def _tasks(given: Sequence[str], console: Console) -> int:
    _nothing_more("tasks", given)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("task", "what it is", "estimators that fit"):
        table.add_column(column)
    for name, run in SETUPS.items():
        table.add_row(name, run.task.summary, ", ".join(run.task.estimators()))
    console.print(table)
    return 0


def _estimators(given: Sequence[str], console: Console) -> int:
    _nothing_more("estimators", given)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    for column in ("kind", "gradient of the scores", "needs", "evaluations", "options"):
        table.add_column(column)
    for name, entry in pb.CATALOG.items():
        options = ", ".join(options_of(name))
        table.add_row(name, entry.kind, entry.formula, entry.needs_in_words, str(entry.evaluations), options)
    console.print(table)
    return 0


def _nothing_more(command: str, given: Sequence[str]) -> None:
    if given and given[0] in ("-h", "--help"):
        print(f"usage: pullback {command}\n\n{COMMANDS[command].about}")
        raise SystemExit(0)
    if given:
        raise Mistake(f"{command}: {' '.join(given)!r} is not expected; it has no options.")


def _demo(given: Sequence[str], console: Console) -> int:
    command = _parse(DemoCommand, "demo", given)
    planned = demo.runs(command.steps)
    console.print(f"{len(planned)} runs in {command.out}; Ctrl-C stops, and the same command goes on.", soft_wrap=True)
    with watching(planned, command.out, console):
        failures = sweep(planned, command.out, "processes", command.workers)
    _say_failures(failures, console)
    _write_report(command.out, command.out / "report.html", console)
    return 1 if failures else 0


def _say_failures(failures: dict[str, str], console: Console) -> None:
    for key, reason in failures.items():
        console.print(f"not finished: {key}: {reason}", soft_wrap=True)


COMMANDS = {
    "run": _Entry("train one model", _run, of_a_task=True),
    "sweep": _Entry("train one model for each estimator, combination of settings and seed", _sweep, of_a_task=True),
    "compare": _Entry("compare the gradients of estimators on a batch", _compare, of_a_task=True),
    "report": _Entry("write one page about the runs of a folder", _report),
    "tasks": _Entry("list the tasks", _tasks),
    "estimators": _Entry("list the estimators of the catalog", _estimators),
    "demo": _Entry("compare estimators on two tasks in a few minutes, and write a report", _demo),
}

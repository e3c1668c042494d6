"""The command line: `pullback demo`, `run`, `sweep`, `report` and `estimators`."""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import pullback as pb
from pullback.experiments import records, report
from pullback.experiments.settings import Settings
from pullback.experiments.training import train

DEMO = [
    Settings(estimator=name, step_size=step_size, steps=1200, learning_rate=1e-2, evaluate_every=200, seed=seed)
    for name, step_size in (
        ("ste", 1.0),
        ("spigot", 1.0),
        ("spigot_ce", 0.3),
        ("spigot_eg", 0.3),
        ("structured_attention", 1.0),
        ("sparsemap", 1.0),
        ("minimum_risk", 1.0),
    )
    for seed in (301, 302)
]


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `pullback` command does beside `warm`."""
    parser = argparse.ArgumentParser(prog="pullback", description=pb.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train the latent-cluster model with several estimators and compare them")
    run = commands.add_parser("run", help="train one model")
    sweep = commands.add_parser("sweep", help="train one model per combination of the values given")
    for field in fields(Settings):
        name = "--" + field.name.replace("_", "-")
        options: dict[str, Any] = {"type": type(field.default), "default": field.default}
        if field.name == "estimator":
            options["choices"] = [name for name, entry in pb.CATALOG.items() if not entry.given]
        run.add_argument(name, **options)
        sweep.add_argument(name, **{**options, "nargs": "+", "default": [field.default]})
    summary = commands.add_parser("report", help="tabulate the runs of a folder")
    commands.add_parser("estimators", help="list the catalog")
    commands.add_parser("warm", help="compile the kernels ahead of time", add_help=False)  # see pullback.command
    for command in (demo, run, sweep, summary):
        command.add_argument("--out", type=Path, default=Path("runs") / ("demo" if command is demo else "own"))
    given = parser.parse_args(arguments)
    console = Console()
    if given.command == "estimators":
        console.print(_catalog())
    elif given.command == "report":
        _report(given.out, console)
    else:
        if given.command == "demo":
            plan = DEMO
        else:
            chosen = {field.name: getattr(given, field.name) for field in fields(Settings)}
            values = chosen.values() if given.command == "sweep" else ([value] for value in chosen.values())
            plan = [replace(Settings(), **dict(zip(chosen, combination))) for combination in itertools.product(*values)]
        _train_all(plan, given.out, console)
        _report(given.out, console)


def _train_all(plan: list[Settings], folder: Path, console: Console) -> None:
    torch.set_num_threads(
        1
    )  # the tensors are small: a second thread brings nothing, and waits whenever the machine is busy
    columns = (TextColumn("{task.description:22}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=sum(settings.steps for settings in plan))
        for settings in plan:
            progress.update(bar, description=f"{settings.estimator}, seed {settings.seed}")
            records.write(train(settings, lambda: progress.advance(bar)), records.path_of(settings, folder))


def _report(folder: Path, console: Console) -> None:
    runs = records.read(folder)
    if not runs:
        raise SystemExit(f"pullback: no runs in {folder}; expected the folder of an earlier `run`, `sweep` or `demo`.")
    title = "Latent clusters: test accuracy and cluster recovery"
    console.print(report.table(runs, title))
    path = folder / "report.md"
    report.write_markdown(runs, title, path)
    console.print(f"Report written to {path}")


def _catalog() -> Table:
    table = Table()
    table.add_column("name", no_wrap=True)
    for column in ("kind", "gradient of the scores", "needs", "evaluations"):
        table.add_column(column)
    for name, entry in pb.CATALOG.items():
        table.add_row(name, entry.kind, entry.formula, entry.needs_in_words, str(entry.evaluations))
    return table

"""What is printed as a table: results, tasks, and the catalog of estimators."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import pullback as pb
from pullback.experiments.estimators import options_of
from pullback.experiments.records import Result
from pullback.experiments.report.conclusion import conclusion
from pullback.experiments.report.section import Row, Section
from pullback.experiments.report.summary import sections
from pullback.experiments.run import Run, flag
from pullback.experiments.tasks import SETUPS


def say_sections(results: Sequence[Result], console: Console) -> None:
    """A table and a sentence for each task."""
    for section in sections(results):
        if section.rows:
            console.print(_terminal_table(section))
        console.print(conclusion(section), highlight=False)
        if section.unfinished:
            count = len(section.unfinished)
            are = "1 run is" if count == 1 else f"{count} runs are"
            console.print(f"{are} not finished, and not in the table.")


def _terminal_table(section: Section) -> Table:
    table = Table(title=section.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("estimator")
    learned = [row for row in section.rows if not section.is_yardstick(row)] or section.rows
    shown = [name for name in section.measures if all(row.middle(name) is not None for row in learned)][:3]
    for column in (*(measure.replace("_", " ") for measure in shown), "evaluations", "seconds", "seeds"):
        table.add_column(column, justify="right", no_wrap=True, min_width=len(column))  # the names may be broken
    for row in section.rows:
        cells = [_terminal_cell(section, row, measure) for measure in shown]
        cost = [f"{row.cost('decodings'):.1f}", f"{row.cost('seconds'):.1f}", row.seeds]
        table.add_row(row.label, *cells, *cost, style="dim" if section.is_yardstick(row) else "")
    return table


def _terminal_cell(section: Section, row: Row, measure: str) -> str:
    cell = section.cell(row, measure)
    if cell is None:
        return ""
    text = cell.value + (f" ±{cell.error}" if cell.error else "")
    return f"[bold]{text}[/bold]" if cell.is_best else f"{text} =" if cell.is_tied else text


def table_of_tasks() -> Table:
    """The set-ups, and what can be trained on each."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("task", "what it is", "estimators that fit"):
        table.add_column(column)
    main: dict[str, str] = {}  # the first set-up of each task
    for name, run in SETUPS.items():
        first = main.setdefault(run.task.name, name)
        estimators = ", ".join(run.task.estimators())
        if first == name:
            table.add_row(name, run.task.summary, estimators)
        else:
            is_same = run.task.estimators() == SETUPS[first].task.estimators()
            table.add_row(name, _differences(first, run), "the same" if is_same else estimators)
    return table


def _differences(first: str, run: Run[Any]) -> str:
    """What a set-up changes of the first one of its task."""
    standard = SETUPS[first].settings()
    changed = [flag(name, value) for name, value in run.settings().items() if value != standard[name]]
    return f"{first} {' '.join(changed)}"


def table_of_estimators() -> Table:
    """The catalog."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("gradient of the scores; kind, what it needs, decoder runs in a step, options")
    for name, entry in pb.CATALOG.items():
        facts = [entry.kind, f"needs {entry.needs_in_words}", f"decoder runs: {entry.evaluations}"]
        options = ", ".join(options_of(name))
        table.add_row(name, f"{entry.formula}\n[dim]{'; '.join(facts)}[/dim]{chr(10) + options if options else ''}")
    return table

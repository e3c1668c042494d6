"""What is printed as a table: results, tasks, and the catalog of estimators."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import pullback as pb
from pullback.experiments.records import Result
from pullback.experiments.report.conclusion import conclusion
from pullback.experiments.report.section import Row, Section
from pullback.experiments.report.summary import sections
from pullback.experiments.rows import standard_options
from pullback.experiments.run import Run
from pullback.experiments.task import Task
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


LEGEND = (
    "s are the scores, z their argmax, p their marginals, μ their sparsemap; ∇L is the gradient of the downstream "
    "loss; J_p and J_μ are the Jacobians of p and μ, J that of the map beside it; η and λ are step_size, ε noise, y a "
    "draw, b a baseline; C takes from scores what no structure can see, and u = Cs / ‖Cs‖; s′ are scores near s whose "
    "argmax is y; P is the probability of what is not among the k best.  Options are given as --set name=value."
)


def table_of_tasks() -> Table:
    """The set-ups, each in a line or two."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", no_wrap=True)
    table.add_column("what it is, its structure, and how many estimators fit")
    for name, run in SETUPS.items():
        count = len(run.task.estimators())
        table.add_row(name, f"{_summary(name)}  [dim]{_structure(run)}, {count} estimator{'s' * (count > 1)}[/dim]")
    return table


def table_of_task(name: str) -> Table:
    """One set-up, with all that can be chosen."""
    task, settings = SETUPS[name].task, SETUPS[name].settings()
    yardsticks = task.yardsticks()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_row("task", name)
    table.add_row("what it is", _summary(name))
    table.add_row("structure", _structure(SETUPS[name]))
    table.add_row("true structure", _truth(task))
    table.add_row("yardsticks", ", ".join(yardsticks))
    others = [row for row in task.estimators() if row not in yardsticks]
    if others:
        table.add_row("estimators", ", ".join(others))
    table.add_row("settings", ", ".join(_assigned(setting, value) for setting, value in settings.items()))
    return table


def _truth(task: Task) -> str:
    """Which rows are given the true structure, and which learn it; or why there are none."""
    if "gold" not in task.known():
        return f"{task.without_gold}, so there are no rows gold and supervised"
    rows = list(task.losses())
    learn = f"{rows[0]} learns it" if len(rows) == 1 else f"{', '.join(rows)} are supervised: they learn it"
    return f"gold is given it; {learn}"


def _summary(name: str) -> str:
    """What a set-up is; of one that is not the first of its task, what it changes."""
    run = SETUPS[name]
    first = next(other for other in SETUPS if SETUPS[other].task.name == run.task.name)
    if first == name:
        summary: str = run.task.summary
        return summary
    standard = SETUPS[first].settings()
    changed = {setting: value for setting, value in run.settings().items() if value != standard[setting]}
    shown = [_assigned(setting, value) for setting, value in changed.items() if setting in vars(run.task)]
    return f"{first} with {', '.join(shown) or 'other settings of training'}."


def _structure(run: Run[Any]) -> str:
    structure = run.task.structure
    inner = f"({type(structure.structure).__name__})" if isinstance(structure, pb.Independent) else ""
    return type(structure).__name__ + inner


def table_of_estimators() -> Table:
    """The catalog."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("gradient of the scores; kind, what it needs, decoder runs in a step, options")
    for name, entry in pb.CATALOG.items():
        facts = [entry.kind, f"needs {entry.needs_in_words}", f"decoder runs: {entry.evaluations}"]
        is_made_by_tasks = entry.kind == "yardstick"  # and has no options there
        options = {} if is_made_by_tasks else standard_options(name)
        shown = ", ".join(_assigned(option, value) for option, value in options.items())
        table.add_row(name, f"{entry.formula}\n[dim]{'; '.join(facts)}[/dim]{chr(10) + shown if shown else ''}")
    return table


def _assigned(name: str, value: Any) -> str:
    """`name=value` as --set takes it."""
    if isinstance(value, bool | type):
        value = (value.__name__ if isinstance(value, type) else str(value)).lower()
    return f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"

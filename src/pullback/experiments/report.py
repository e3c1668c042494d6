"""Tables out of records."""

from dataclasses import fields
from pathlib import Path
from statistics import median, stdev
from typing import Any

from rich import box
from rich.table import Table

import pullback as pb
from pullback.experiments.settings import Settings

Record = dict[str, Any]
MEASURES = ("accuracy", "relaxed", "V-measure", "calls", "seconds")
SETTINGS = [field.name for field in fields(Settings) if field.name != "seed"]


def rows(runs: list[list[Record]]) -> tuple[list[str], list[list[str]]]:
    """Column names and one row per group of runs that differ in their seed alone.

    Beside the estimator, the settings that differ between groups have a column each.  Measures are medians ± standard
    errors of the last records.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for run in runs:
        if run:
            groups.setdefault(tuple(run[-1][name] for name in SETTINGS), []).append(run[-1])
    varying = [name for i, name in enumerate(SETTINGS) if i > 0 and len({key[i] for key in groups}) > 1]
    order = {name: position for position, name in enumerate(pb.CATALOG)}
    ordered = [groups[key] for key in sorted(groups, key=lambda key: (order[key[0]], key[1:]))]
    lines = [
        [group[0]["estimator"], *(f"{group[0][name]:g}" for name in varying), *_measures(group)] for group in ordered
    ]
    return ["estimator", *(name.replace("_", " ") for name in varying), *MEASURES], lines


def _measures(group: list[Record]) -> list[str]:
    return [
        _percent([record["test_accuracy"] for record in group]),
        _percent([record["test_relaxed_accuracy"] for record in group if "test_relaxed_accuracy" in record]),
        _percent([record["test_v_measure"] for record in group]),
        f"{median(record['evaluations'] for record in group):.1f}",
        f"{median(record['seconds'] for record in group):.1f}",
    ]


def _percent(values: list[float]) -> str:
    if not values:
        return ""
    spread = f"±{100 * stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{100 * median(values):.1f}{spread}"


def table(runs: list[list[Record]], title: str) -> Table:
    """The rows as a table for the terminal."""
    columns, lines = rows(runs)
    drawn = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in columns:
        drawn.add_column(column, justify="left" if column == "estimator" else "right", no_wrap=True)
    for line in lines:
        drawn.add_row(*line)
    return drawn


def write_markdown(runs: list[list[Record]], title: str, path: Path) -> None:
    """The rows as a Markdown page, with a word on what the columns mean."""
    columns, lines = rows(runs)
    page = [
        f"# {title}",
        "",
        "Test accuracy and V-measure in percent: median over seeds ± standard error, after the last step. `accuracy`",
        "decodes from the argmax, `relaxed` from the point the method trains with; `calls` counts runs of the decoder",
        "per training step.",
        "",
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(line) + " |" for line in lines),
        "",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(page))

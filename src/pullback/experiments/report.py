"""Tables out of records."""

from pathlib import Path
from statistics import median, stdev
from typing import Any

from rich.table import Table

import pullback as pb

Record = dict[str, Any]
COLUMNS = ("estimator", "η", "accuracy", "relaxed", "V-measure", "evaluations", "seconds")


def rows(runs: list[list[Record]]) -> list[tuple[str, ...]]:
    """One row per group of runs that differ in their seed alone: medians (± standard error) of the last records."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for run in runs:
        if run:
            last = run[-1]
            key = tuple(last[name] for name in ("clusters", "estimator", "step_size", "pull_steps", "learning_rate"))
            groups.setdefault(key, []).append(last)
    order = {name: position for position, name in enumerate(pb.CATALOG)}
    return [_row(groups[key]) for key in sorted(groups, key=lambda key: (key[0], order[key[1]], key[2:]))]


def _row(group: list[Record]) -> tuple[str, ...]:
    first = group[0]
    pulled = pb.CATALOG[first["estimator"]].kind == "pulled back"
    return (
        first["estimator"],
        f"{first['step_size']:g}" if pulled else "",
        _percent([record["test_accuracy"] for record in group]),
        _percent([record["test_relaxed_accuracy"] for record in group if "test_relaxed_accuracy" in record]),
        _percent([record["test_v_measure"] for record in group]),
        f"{median(record['evaluations'] for record in group):.1f}",
        f"{median(record['seconds'] for record in group):.1f}",
    )


def _percent(values: list[float]) -> str:
    if not values:
        return ""
    spread = f" ± {100 * stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{100 * median(values):.1f}{spread}"


def table(runs: list[list[Record]], title: str) -> Table:
    """The rows as a table for the terminal."""
    drawn = Table(title=title)
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column == "estimator" else "right")
    for row in rows(runs):
        drawn.add_row(*row)
    return drawn


def write_markdown(runs: list[list[Record]], title: str, path: Path) -> None:
    """The rows as a Markdown page, with a word on what the columns mean."""
    lines = [
        f"# {title}",
        "",
        "Test accuracy and V-measure in percent: median over seeds ± standard error, after the last step. `accuracy`",
        "decodes from the argmax, `relaxed` from the point the method trains with; `evaluations` counts runs of the",
        "decoder per training step.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *("| " + " | ".join(row) + " |" for row in rows(runs)),
        "",
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))

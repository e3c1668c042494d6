"""The tables of many runs as Markdown, for a README or a page of documentation."""

from collections.abc import Sequence
from pathlib import Path

from pullback.experiments.records import Result
from pullback.experiments.report.conclusion import conclusion, constants, words
from pullback.experiments.report.section import Row, Section
from pullback.experiments.report.summary import sections


def write(results: Sequence[Result], path: Path) -> None:
    """Writes the tables."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown(results), encoding="utf-8")


def markdown(results: Sequence[Result]) -> str:
    """A heading, a sentence and a table for each task; rows in italics are yardsticks."""
    return "\n".join(_section(section) for section in sections(results))


def _section(section: Section) -> str:
    measures = [words(measure) for measure in section.measures]
    header = [
        "estimator",
        *measures,
        "evaluations",
        "seconds",
        "seeds",
        f"{words(section.task.measure)}, worst to best",
    ]
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *(_line(section, row) for row in section.rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    below = f"\n{constants(section)}\n" if section.constants else ""
    return f"### {section.title}\n\n{section.task.summary}  {conclusion(section)}\n\n{table}\n{below}"


def _line(section: Section, row: Row) -> list[str]:
    name = f"*{row.label}*" if section.is_yardstick(row) else row.label
    cost = [f"{row.cost('decodings'):.1f}", f"{row.cost('seconds'):.1f}", row.seeds, section.spread(row)]
    return [name, *(_cell(section, row, measure) for measure in section.measures), *cost]


def _cell(section: Section, row: Row, measure: str) -> str:
    cell = section.cell(row, measure)
    if cell is None:
        return ""
    text = cell.value + (f" ± {cell.error}" if cell.error else "")
    return f"**{text}**" if cell.is_best else f"{text} =" if cell.is_tied else text

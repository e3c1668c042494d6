"""One HTML page about many runs.  It needs no network, no script and no other file."""

from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pullback as pb
from pullback.experiments.records import Result
from pullback.experiments.report.conclusion import conclusion, constants, words
from pullback.experiments.report.figures import figures
from pullback.experiments.report.section import FEWEST, Row, Section
from pullback.experiments.report.summary import sections, settings_of_row
from pullback.experiments.task import Picture

_STYLE = (Path(__file__).parent / "page.css").read_text("utf-8")
ROOM_FOR_PICTURES = 2_000_000  # bytes: the page stays below three megabytes
BEST, WORST = 3, 2  # estimators with pictures, beside gold and frozen
_ABOUT = (
    "Estimators of the gradient through a discrete latent structure, such as a tree, a matching or an alignment, "
    "compared by how good the models are that they train; beside them models that are told the true structure, and "
    "models whose encoder is left untrained."
)


def write(results: Sequence[Result], complaints: Sequence[str], path: Path) -> None:
    """Writes the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(results, complaints), encoding="utf-8")


def html(results: Sequence[Result], complaints: Sequence[str]) -> str:
    """The page."""
    found = sections(results)
    pictures = _pictures_by_turns(found)
    done = sum(len(row.results) for section in found for row in section.rows)
    versions = sorted({result.version for result in results}) or [pb.__version__]
    body = [
        f"<header><h1>Training through latent structures</h1><p>{_ABOUT}</p>{_overview(found)}",
        f'<p class="note">{done} finished runs of {len(results)}, with pullback {" and ".join(versions)}.  Numbers are '
        "those of the test data after the last step, medians over seeds ± standard error; each leads to its settings "
        "and to the command that repeats it.  = counts estimators with the same median, or that no paired test finds "
        "worse than one above.  Evaluations are those of the downstream loss in a training step; seconds tell little "
        "where runs were trained on several machines, or beside others.</p>",
        "</header>",
        *(_section(section, i, pictures[i]) for i, section in enumerate(found)),
    ]
    if complaints:
        items = "".join(f"<li>{escape(complaint)}</li>" for complaint in complaints)
        body.append(f"<section><h2>Files that were not what they should be</h2><ul>{items}</ul></section>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>pullback: {done} runs</title><link rel="icon" href="data:,"><style>{_STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>\n"
    )


# ---- the overview


def _overview(found: Sequence[Section]) -> str:
    """A line for each section: the best estimator between the true structure and none."""
    header = ("task", "best estimator", "its value", "true structure", "untrained (frozen)", "seeds")
    lines = "".join(_overview_line(section, i) for i, section in enumerate(found))
    return (
        f'<nav class="scroll"><table class="overview"><thead><tr>{"".join(f"<th>{one}</th>" for one in header)}</tr>'
        f"</thead><tbody>{lines}</tbody></table></nav>"
    )


def _overview_line(section: Section, number: int) -> str:
    measure, best = section.task.measure, next(iter(section.compared), None)
    name = escape(best.label) if best else ""
    if len(section.leading) > 1:
        name += f'<span class="tie" title="not told apart"> = {len(section.leading) - 1} more</span>'
    cells = [name]
    for row in (best, section.yardstick("gold"), section.yardstick("frozen")):
        value = row.middle(measure) if row else None
        shown = None if value is None else section.show(measure, value) + section.unit(measure)
        cells.append(_link(row, shown) if row and shown else "")
    counted = best or next(iter(section.rows), None)
    cells.append(_link(counted, counted.seeds) if counted else "")
    title = f'<a href="#s{number}">{escape(section.title)}</a> <span class="error">{escape(words(measure))}</span>'
    return f'<tr><th scope="row">{title}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _link(row: Row, text: str) -> str:
    """A number that leads to its settings and commands."""
    return f'<a href="#{escape(row.name)}">{text}</a>'


# ---- a section


def _breakable(name: str) -> str:
    """A name that goes on in the next line after an underscore, not within a word, where there is no room for it."""
    return escape(name).replace("_", "_<wbr>")


def _section(section: Section, number: int, pictures: Sequence[str]) -> str:
    parts = [
        f'<section id="s{number}"><h2>{escape(section.title)}</h2>',
        f"<p>{escape(section.task.summary)}</p>",
        f'<p class="conclusion">{escape(conclusion(section))}</p>',
        _table(section),
        figures(section),
        _pictures(section, pictures),
        _details(section),
        _unfinished(section),
        "</section>",
    ]
    return "".join(parts)


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    costs = ("evaluations a step", "seconds", "seeds", f"{section.task.measure}, worst to best")
    header = "".join(f"<th>{escape(words(name))}</th>" for name in ("estimator", *section.measures, *costs))
    lines = []
    for row in section.rows:
        cells = [_cell(section, row, measure) for measure in section.measures]
        cells += [f"{row.cost('decodings'):.1f}", f"{row.cost('seconds'):.1f}", row.seeds, section.spread(row)]
        kind = ' class="yardstick"' if section.is_yardstick(row) else ""
        numbers = "".join(f"<td>{_link(row, cell) if cell else ''}</td>" for cell in cells)
        lines.append(f'<tr{kind}><th scope="row">{_breakable(row.label)}</th>{numbers}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr>{header}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        f'<p class="note">{escape(constants(section))}  {_marks(section)}</p>'
    )


_NUMBERS = "Medians over seeds, ± standard errors of the mean; in the last column the worst and the best seed"


def _marks(section: Section) -> str:
    """What the marks in the table mean, those that it may have."""
    if not section.compared:
        return f"{_NUMBERS}."
    if len(section.compared[0].results) < FEWEST:
        test = "too few seeds for a test"
    else:
        test = "= where no paired test at 5 % (two-sided t-test, one-sided sign test) finds a row worse than one above"
    return (
        f"{_NUMBERS}.  Best in bold; {test}.  Compared is one row for each "
        "estimator, with settings chosen on validation data; a row with a seed that failed, or with fewer seeds than "
        "others, is not.  Rows in gray are yardsticks: they were told the structure, or did not learn it."
    )


def _cell(section: Section, row: Row, measure: str) -> str:
    cell = section.cell(row, measure)
    if cell is None:
        return ""
    text = cell.value
    if cell.error:
        text += f'<span class="error"> ±{cell.error}</span>'
    if cell.is_best:
        text = f"<b>{text}</b>"
    elif cell.is_tied:
        text += '<span class="tie" title="not told apart from the best"> =</span>'
    return text


# ---- pictures and details


def _pictures_by_turns(found: Sequence[Section]) -> list[list[str]]:
    """What was learned, for each section: the first row of every section, then the second …, while there is room."""
    room = ROOM_FOR_PICTURES
    shown: list[list[str]] = [[] for _ in found]
    for turn in zip_longest(*map(_pictured, found)):
        for section, row, mine in zip(found, turn, shown):
            text = "" if row is None else _pictures_of(section, row, is_open=not mine)
            size = len(text.encode())
            if text and size <= room:
                room -= size
                mine.append(text)
    return shown


def _pictured(section: Section) -> list[Row]:
    """The rows with pictures: the best, the worst, and the yardsticks around them."""
    rows = section.compared or section.ranked
    yardsticks = [row for row in map(section.yardstick, ("gold", "frozen")) if row is not None]
    return [*rows[:BEST], *rows[BEST:][-WORST:], *yardsticks]


def _pictures_of(section: Section, row: Row, is_open: bool) -> str:
    """What the row has learned in the run with the median result."""
    seed, pictures = _typical(section, row)
    if not pictures:
        return ""
    text = "".join(f"<figure>{one.svg}<figcaption>{escape(one.title)}</figcaption></figure>" for one in pictures)
    return (
        f"<details{' open' if is_open else ''}><summary>{escape(row.label)}, seed {seed}</summary>"
        f'<div class="pictures">{text}</div></details>'
    )


def _pictures(section: Section, shown: Sequence[str]) -> str:
    if not shown:
        return ""
    left_out = len(section.chosen()) - len(shown)
    note = f"Pictures of {left_out} more rows are left out, to keep the page small; these are the best, the worst and "
    note = f'<p class="note">{note}yardsticks.</p>' if left_out else ""
    return f"<h3>What was learned</h3>{''.join(shown)}{note}"


def _typical(section: Section, row: Row) -> tuple[int, list[Picture]]:
    """The seed with the median result, and what was learned with it."""
    values = row.values(section.task.measure)
    seeds = sorted(values, key=lambda seed: values[seed])
    result = next((one for one in row.results if seeds and one.run.seed == seeds[len(seeds) // 2]), row.results[0])
    return result.run.seed, result.pictures


def _details(section: Section) -> str:
    """Settings, commands and the numbers of each seed: what all runs have in common once, the rest with each row."""
    if not section.rows:
        return ""
    settings = {row.name: settings_of_row(row.run) for row in section.rows}
    every = list(settings.values())
    common = {name: value for name, value in every[0].items() if all(one[name] == value for one in every)}
    shown = [f"<p>In common: {escape(_settings_in_words(common))}.</p>"]
    for row in section.rows:
        own = {name: value for name, value in settings[row.name].items() if name not in common}
        about = [_settings_in_words(own)] if own else []
        if not section.is_yardstick(row):
            options = row.run.every_option()
            about += [f"options of {row.run.estimator}: {_settings_in_words(options)}"] if options else []
        seeds = "".join(
            f"<li>seed {result.run.seed}: {escape(_numbers(section, result))}"
            f"<code>{escape(row.command(result.run.seed))}</code></li>"
            for result in row.results
        )
        shown.append(
            f'<div class="run" id="{escape(row.name)}"><h4>{escape(row.label)}</h4>'
            f"<p>{escape('; '.join(about))}</p><ul>{seeds}</ul></div>"
        )
    return f"<h3>Settings and commands</h3>{''.join(shown)}"


def _settings_in_words(settings: dict[str, Any]) -> str:
    """Names and values; those that say nothing, or that cannot be typed, are left out."""
    shown = []
    for name, value in settings.items():
        if isinstance(value, bool | int | float) or (isinstance(value, str) and value):
            shown.append(f"{words(name)} {value:g}" if isinstance(value, float) else f"{words(name)} {value}")
    return ", ".join(shown)


def _numbers(section: Section, result: Result) -> str:
    measures = result.records[-1]["test"]
    return ", ".join(f"{words(name)} {section.show(name, value)}" for name, value in measures.items())


def _unfinished(section: Section) -> str:
    if not section.unfinished:
        return ""
    items = []
    for result in section.unfinished:
        step = result.records[-1]["step"] if result.records else 0
        why = result.failure or f"stopped at step {step} of {result.run.steps}"
        items.append(f"<li>{escape(result.run.key)}: {escape(why)}</li>")
    return f"<h3>Not finished, and not in the table</h3><ul>{''.join(items)}</ul>"

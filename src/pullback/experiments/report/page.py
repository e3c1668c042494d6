"""One HTML page about many runs.  It needs no network, no script and no other file."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pullback as pb
from pullback.experiments.records import Result
from pullback.experiments.report.figures import figures
from pullback.experiments.report.summary import Row, Section, sections
from pullback.experiments.task import Picture

_STYLE = (Path(__file__).parent / "page.css").read_text("utf-8")
ROOM_FOR_PICTURES = 2_000_000  # letters: the page stays below three megabytes


def write(results: Sequence[Result], complaints: Sequence[str], path: Path) -> None:
    """Writes the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(results, complaints), encoding="utf-8")


def html(results: Sequence[Result], complaints: Sequence[str]) -> str:
    """The page."""
    found = sections(results)
    room = ROOM_FOR_PICTURES // max(len(found), 1)
    done = sum(len(row.results) for section in found for row in section.rows)
    versions = sorted({result.version for result in results}) or [pb.__version__]
    contents = "".join(f'<li><a href="#s{i}">{escape(one.title)}</a></li>' for i, one in enumerate(found))
    body = [
        "<header><h1>Training through latent structures</h1>",
        f"<p>{done} finished runs of {len(results)}, with pullback {' and '.join(versions)}.  Numbers are those of the "
        "test data after the last step, medians over seeds ± standard error; each measure leads to its settings "
        "and to the command that repeats it.  Evaluations are those of the downstream loss in a training step.</p>",
        f"<nav><ul>{contents}</ul></nav></header>",
        *(_section(section, i, room) for i, section in enumerate(found)),
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


def _section(section: Section, number: int, room: int) -> str:
    parts = [
        f'<section id="s{number}"><h2>{escape(section.title)}</h2>',
        f"<p>{escape(section.task.summary)}</p>",
        f'<p class="conclusion">{escape(section.conclusion)}</p>',
        _table(section),
        figures(section),
        _pictures(section, room),
        _details(section),
        _unfinished(section),
        "</section>",
    ]
    return "".join(parts)


# ---- the table


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    header = "".join(f"<th>{escape(measure.replace('_', ' '))}</th>" for measure in section.measures)
    lines = []
    for row in section.rows:
        cells = "".join(_cell(section, row, measure) for measure in section.measures)
        kind = ' class="yardstick"' if section.is_yardstick(row) else ""
        cost = f"<td>{row.cost('decodings'):.1f}</td><td>{row.cost('seconds'):.1f}</td><td>{row.seeds}</td>"
        lines.append(f'<tr{kind}><th scope="row">{escape(row.label)}</th>{cells}{cost}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th>estimator</th>{header}<th>evaluations a step</th><th>seconds</th>'
        f"<th>seeds</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="note">Medians over seeds, ± standard errors of the mean.  Best in bold; = where a paired t-test '
        "over three seeds or more does not tell a row from it at 5 %; a row with a seed that failed, or with fewer "
        "seeds than others, cannot be best.  Rows in gray are yardsticks: they were told the structure, or did not "
        "learn it.</p>"
    )


def _cell(section: Section, row: Row, measure: str) -> str:
    cell = section.cell(row, measure)
    if cell is None:
        return "<td></td>"
    text = cell.value
    if cell.error:
        text += f'<span class="error"> ±{cell.error}</span>'
    if cell.is_best:
        text = f"<b>{text}</b>"
    elif cell.is_tied:
        text += '<span class="tie" title="not told apart from the best"> =</span>'
    return f'<td><a href="#{escape(row.name)}">{text}</a></td>'


# ---- pictures and details


def _pictures(section: Section, most: int) -> str:
    """What each estimator has learned in the run with the median result, the best first, in at most `most` letters."""
    shown: list[str] = []
    left_out = 0
    for row in _by_rank(section):
        seed, pictures = _typical(section, row)
        text = "".join(
            f"<figure>{picture.svg}<figcaption>{escape(picture.title)}</figcaption></figure>" for picture in pictures
        )
        left_out += len(text) > most
        if pictures and len(text) <= most:
            most -= len(text)
            is_open = "" if shown else " open"
            shown.append(
                f"<details{is_open}><summary>{escape(row.label)}, seed {seed}</summary>"
                f'<div class="pictures">{text}</div></details>'
            )
    if left_out:
        shown.append(f'<p class="note">Pictures of {left_out} more are left out, to keep the page small.</p>')
    return f"<h3>What was learned</h3>{''.join(shown)}" if shown else ""


def _by_rank(section: Section) -> list[Row]:
    """Estimators from best to worst, then yardsticks."""
    return [*section.ranked(), *(row for row in section.chosen() if section.is_yardstick(row))]


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
    settings = {row.name: _settings(row) for row in section.rows}
    every = list(settings.values())
    common = {name: value for name, value in every[0].items() if all(one[name] == value for one in every)}
    shown = [f"<p>In common: {escape(_listed(common))}.</p>"]
    for row in section.rows:
        own = {name: value for name, value in settings[row.name].items() if name not in common}
        about = [_listed(own)] if own else []
        if not section.is_yardstick(row):
            options = row.run.every_option()
            about += [f"options of {row.run.estimator}: {_listed(options)}"] if options else []
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


def _settings(row: Row) -> dict[str, Any]:
    """What decides the row, but its estimator and seed."""
    return {name: value for name, value in row.run.settings().items() if name not in ("seed", "estimator")}


def _listed(settings: dict[str, Any]) -> str:
    """Names and values; those that say nothing, or that cannot be typed, are left out."""
    shown = []
    for name, value in settings.items():
        if isinstance(value, bool | int | float) or (isinstance(value, str) and value):
            words = name.replace("_", " ")
            shown.append(f"{words} {value:g}" if isinstance(value, float) else f"{words} {value}")
    return ", ".join(shown)


def _numbers(section: Section, result: Result) -> str:
    measures = result.records[-1]["test"]
    return ", ".join(f"{name.replace('_', ' ')} {section.show(name, value)}" for name, value in measures.items())


def _unfinished(section: Section) -> str:
    if not section.unfinished:
        return ""
    items = []
    for result in section.unfinished:
        step = result.records[-1]["step"] if result.records else 0
        why = result.failure or f"stopped at step {step} of {result.run.steps}"
        items.append(f"<li>{escape(result.run.key)}: {escape(why)}</li>")
    return f"<h3>Not finished, and not in the table</h3><ul>{''.join(items)}</ul>"

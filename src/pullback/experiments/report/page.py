"""One HTML page about many runs.  It needs no network, no script and no other file."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

import pullback as pb
from pullback.experiments.records import Result
from pullback.experiments.report import chart
from pullback.experiments.report.chart import Series
from pullback.experiments.report.summary import Row, Section, sections

_STYLE = (Path(__file__).parent / "page.css").read_text("utf-8")
_MOST_CURVES = 8
_DIAGNOSTICS = {
    "gradient": "mean norm of the scores' gradient",
    "zero gradient": "share of examples without a gradient",
    "entropy": "entropy of the structures, in nats",
    "elsewhere": "share of labels that are another structure",
}


def write(results: Sequence[Result], complaints: Sequence[str], path: Path) -> None:
    """Writes the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(results, complaints), encoding="utf-8")


def html(results: Sequence[Result], complaints: Sequence[str]) -> str:
    """The page."""
    found = sections(results)
    done = sum(len(row.results) for section in found for row in section.rows)
    contents = "".join(f'<li><a href="#s{i}">{escape(one.title)}</a></li>' for i, one in enumerate(found))
    body = [
        "<header><h1>Training through latent structures</h1>",
        f"<p>{done} finished runs of {len(results)}, with pullback {pb.__version__}.  Numbers are those of the "
        "test data after the last step, medians over seeds ± standard error; each leads to its settings and "
        "to the command that repeats it.</p>",
        f"<nav><ul>{contents}</ul></nav></header>",
        *(_section(section, i) for i, section in enumerate(found)),
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


def _section(section: Section, number: int) -> str:
    colors = _colors(section)
    parts = [
        f'<section id="s{number}"><h2>{escape(section.title)}</h2>',
        f"<p>{escape(section.task.summary)}</p>",
        f'<p class="conclusion">{escape(section.conclusion)}</p>',
        _table(section),
        _figures(section, colors),
        _pictures(section),
        _details(section),
        _unfinished(section),
        "</section>",
    ]
    return "".join(parts)


def _colors(section: Section) -> dict[str, int]:
    """A color for each estimator, the same in every figure."""
    names = dict.fromkeys(row.run.estimator for row in section.rows if not section.is_yardstick(row))
    return {name: number for number, name in enumerate(names)}


# ---- the table


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    best = {measure: section.best(measure) for measure in section.measures}
    header = "".join(f"<th>{escape(measure.replace('_', ' '))}</th>" for measure in section.measures)
    lines = []
    for row in section.rows:
        cells = "".join(_cell(section, row, measure, best[measure]) for measure in section.measures)
        kind = ' class="yardstick"' if section.is_yardstick(row) else ""
        cost = f"<td>{row.cost('decodings'):.1f}</td><td>{row.cost('seconds'):.1f}</td><td>{len(row.results)}</td>"
        lines.append(f'<tr{kind}><th scope="row">{escape(row.label)}</th>{cells}{cost}</tr>')
    return (
        f'<div class="scroll"><table><thead><tr><th>estimator</th>{header}<th>decodings a step</th><th>seconds</th>'
        f"<th>seeds</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="note">Best in bold; = where a paired t-test over seeds finds no difference from the best at 5 %. '
        "Rows in gray are yardsticks: they were told the structure, or did not learn it.</p>"
    )


def _cell(section: Section, row: Row, measure: str, best: Row | None) -> str:
    value, error = row.middle(measure), row.error(measure)
    if value is None:
        return "<td></td>"
    text = section.show(measure, value)
    if error is not None:
        text += f'<span class="error"> ±{section.show_error(measure, error)}</span>'
    is_best = best is not None and (row is best or (not section.is_yardstick(row) and value == best.middle(measure)))
    if is_best:
        text = f"<b>{text}</b>"
    elif best is not None and section.tied(measure, row, best):
        text += '<span class="tie" title="no difference from the best"> =</span>'
    return f'<td><a href="#{escape(row.name)}">{text}</a></td>'


# ---- figures


def _figures(section: Section, colors: dict[str, int]) -> str:
    drawn = [
        _curves(section, colors),
        *_costs(section, colors),
        _sensitivity(section, colors),
        *(_diagnostic(section, colors, name, what) for name, what in _DIAGNOSTICS.items()),
    ]
    figures = "".join(
        f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for caption, svg in drawn if svg
    )
    return f'<div class="figures">{figures}</div>'


def _leading(section: Section, colors: dict[str, int]) -> list[Row]:
    """The best few estimators by validation data, which are the ones a figure has room for."""
    rows = [row for row in section.chosen() if row.run.estimator in colors]
    sign = -1 if section.task.measure not in section.task.lower_is_better else 1
    ranked = sorted(rows, key=lambda row: sign * (row.middle(section.task.measure, "validation") or 0.0))
    return ranked[:_MOST_CURVES]


def _history(row: Row, value: Any) -> tuple[list[tuple[float, float]], list[tuple[float, float, float]]]:
    """Medians over seeds by step, and the range of all seeds; `value` picks a number from a record, or None."""
    by_step: dict[int, list[float]] = {}
    for result in row.results:
        for record in result.records:
            found = value(record)
            if found is not None:
                by_step.setdefault(record["step"], []).append(found)
    steps = sorted(by_step)
    line = [(float(step), median(by_step[step])) for step in steps]
    return line, [(float(step), min(by_step[step]), max(by_step[step])) for step in steps]


def _curves(section: Section, colors: dict[str, int]) -> tuple[str, str]:
    measure = section.task.measure
    scale = 100 if measure in section.task.percent else 1
    series = []
    for row in _leading(section, colors):
        line, band = _history(row, lambda record: scale * record["validation"][measure])
        series.append(Series(row.run.estimator, line, colors[row.run.estimator], band))
    if not series or max(len(one.points) for one in series) < 2:
        return "", ""
    caption = "While training, on validation data: median over seeds, and the range of all seeds."
    return caption, chart.lines(f"Learning curves of {section.title}", series, "step", _unit(section, measure))


def _costs(section: Section, colors: dict[str, int]) -> list[tuple[str, str]]:
    measure, drawn = section.task.measure, []
    scale = 100 if measure in section.task.percent else 1
    rows = [row for row in section.chosen() if row.run.estimator in colors and row.middle(measure) is not None]
    if len(rows) < 2:
        return []
    for cost, x_label, caption in (
        ("decodings", "runs of the decoder in a step", "Quality against runs of the decoder."),
        ("seconds", "seconds of training", "Quality against seconds."),
    ):
        named = [
            (row.run.estimator, row.cost(cost), scale * (row.middle(measure) or 0.0), colors[row.run.estimator])
            for row in rows
        ]
        drawn.append((caption, chart.points(caption, named, x_label, _unit(section, measure), log_x=True)))
    return drawn


def _sensitivity(section: Section, colors: dict[str, int]) -> tuple[str, str]:
    """The measure against the step size, for estimators that were run with several."""
    measure = section.task.measure
    scale = 100 if measure in section.task.percent else 1
    by_name: dict[str, dict[float, list[float]]] = {}
    for row in section.rows:
        size, value = dict(row.run.options).get("step_size"), row.middle(measure)
        if isinstance(size, (int, float)) and size > 0 and value is not None:
            by_name.setdefault(row.run.estimator, {}).setdefault(float(size), []).append(scale * value)
    series = [
        Series(name, [(size, median(values[size])) for size in sorted(values)], colors[name])
        for name, values in by_name.items()
        if len(values) > 1
    ]
    if not series:
        return "", ""
    caption = "Sensitivity to the step size: medians on test data."
    return caption, chart.lines(caption, series, "step size", _unit(section, measure), log_x=True)


def _diagnostic(section: Section, colors: dict[str, int], name: str, what: str) -> tuple[str, str]:
    series = []
    for row in _leading(section, colors):
        line, _ = _history(row, lambda record: record.get("gradient", {}).get(name))
        if len(line) > 1:
            series.append(Series(row.run.estimator, line, colors[row.run.estimator]))
    if not series or all(y == 0 for one in series for _, y in one.points):
        return "", ""
    return f"On a batch of training data: {what}.", chart.lines(what, series, "step", name)


def _unit(section: Section, measure: str) -> str:
    return measure.replace("_", " ") + (", %" if measure in section.task.percent else "")


# ---- pictures and details


def _pictures(section: Section) -> str:
    """What the run with the median result has learned, of each estimator."""
    shown = []
    for row in section.chosen():
        values = row.values(section.task.measure)
        middle = sorted(values, key=lambda seed: values[seed])[len(values) // 2] if values else None
        result = next((one for one in row.results if one.run.seed == middle), None)
        if result is None or not result.pictures:
            continue
        pictures = "".join(
            f"<figure>{picture.svg}<figcaption>{escape(picture.title)}</figcaption></figure>"
            for picture in result.pictures
        )
        is_open = " open" if row is section.best(section.task.measure, section.chosen()) else ""
        shown.append(
            f"<details{is_open}><summary>{escape(row.label)}, seed {middle}</summary>"
            f'<div class="pictures">{pictures}</div></details>'
        )
    return f"<h3>What was learned</h3>{''.join(shown)}" if shown else ""


def _details(section: Section) -> str:
    """Settings, commands and the numbers of each seed."""
    shown = []
    for row in section.rows:
        settings = {**row.run.settings(), **dict(row.run.options)}
        del settings["seed"]
        listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
        seeds = "".join(
            f"<li>seed {result.run.seed}: {escape(_numbers(section, result))}"
            f"<code>{escape(row.command(result.run.seed))}</code></li>"
            for result in row.results
        )
        shown.append(
            f'<div class="run" id="{escape(row.name)}"><h4>{escape(row.label)}</h4><p>{escape(listed)}</p>'
            f"<ul>{seeds}</ul></div>"
        )
    return f"<h3>Settings and commands</h3>{''.join(shown)}" if shown else ""


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

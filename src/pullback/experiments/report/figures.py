"""The figures of a task: learning curves, quality against cost, sensitivity to the step size, gradients in training."""

from collections.abc import Callable
from html import escape
from statistics import median

from pullback.experiments.records import Record
from pullback.experiments.report import chart
from pullback.experiments.report.chart import Series
from pullback.experiments.report.conclusion import words
from pullback.experiments.report.section import Row, Section

MOST_CURVES = 8
MOST_BANDS = 3  # of the best, beside those of yardsticks: more hide one another
YARDSTICKS = ("gold", "frozen")  # that are drawn as well
DIAGNOSTICS = {
    "gradient": ("norm of the gradient", "mean norm of the gradient of the scores"),
    "zero_gradient": ("without a gradient", "share of examples without a gradient"),
    "entropy": ("entropy, nats", "entropy of the structures, in nats"),
    "elsewhere": ("labels moved", "share of pulled-back labels that round to another structure"),
}
"""What is drawn of a record: the label of its axis, and its caption."""

LOGARITHMIC = ("gradient",)

Figure = tuple[str, str]
"""A caption, and a drawing."""


def figures(section: Section) -> str:
    """All figures that the runs of a task have numbers for."""
    drawn = [
        *_curves(section),
        *_costs(section),
        *_sensitivity(section),
        *(figure for name in DIAGNOSTICS for figure in _diagnostic(section, name)),
    ]
    shown = (f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for caption, svg in drawn)
    return f'<div class="figures">{"".join(shown)}</div>' if drawn else ""


def _colors(section: Section) -> dict[str, int | None]:
    """A color for each estimator, the same in every figure; none for yardsticks."""
    names = dict.fromkeys(row.run.estimator for row in section.rows if not section.is_yardstick(row))
    return {**dict.fromkeys(section.task.yardsticks()), **{name: number for number, name in enumerate(names)}}


def _leading(section: Section) -> list[Row]:
    """The best few estimators, which are the ones a figure has room for."""
    return section.ranked[:MOST_CURVES]


def _curves(section: Section) -> list[Figure]:
    measure, colors, scale = section.task.measure, _colors(section), _scale(section)
    yardsticks = [row for row in section.chosen() if row.run.estimator in YARDSTICKS]
    leading = _leading(section)
    series = []
    for row in [*yardsticks, *leading]:
        line, band = _history(row, lambda record: record["validation"].get(measure), scale)
        if line:
            has_band = row not in leading[MOST_BANDS:]
            series.append(Series(row.run.estimator, line, colors[row.run.estimator], band if has_band else ()))
    if not series or max(len(one.points) for one in series) < 2:
        return []
    caption = "While training, on validation data: median over seeds"
    caption += f", and the range of all seeds for the best {MOST_BANDS} and for yardsticks."
    return [(caption, chart.lines(f"Learning curves of {section.title}", series, "step", _unit(section)))]


def _history(
    row: Row, value: Callable[[Record], float | None], scale: float = 1
) -> tuple[list[tuple[float, float]], list[tuple[float, float, float]]]:
    """Medians over seeds by step, and the range of all seeds; `value` picks a number from a record."""
    by_step: dict[int, list[float]] = {}
    for result in row.results:
        for record in result.records:
            found = value(record)
            if found is not None:
                by_step.setdefault(record["step"], []).append(scale * found)
    steps = sorted(by_step)
    line = [(float(step), median(by_step[step])) for step in steps]
    return line, [(float(step), min(by_step[step]), max(by_step[step])) for step in steps]


def _costs(section: Section) -> list[Figure]:
    measure, colors, scale = section.task.measure, _colors(section), _scale(section)
    rows = section.ranked
    if len(rows) < 2:
        return []
    drawn = []
    for cost, x_label, caption in (
        (
            "decodings",
            "evaluations of the downstream loss in a step",
            "Quality against evaluations downstream; names as far as there is room.",
        ),
        ("seconds", "seconds of the processor", "Quality against seconds of the processor."),
    ):
        named = [
            (row.run.estimator, row.cost(cost), scale * (row.middle(measure) or 0.0), colors[row.run.estimator])
            for row in rows
        ]
        drawn.append((caption, chart.points(caption, named, x_label, _unit(section), log_x=True)))
    return drawn


def _sensitivity(section: Section) -> list[Figure]:
    """The measure against the step size, for estimators that were run with several; sizes that have names beside."""
    colors = _colors(section)
    by_name: dict[str, dict[float | str, list[Row]]] = {}
    for row in section.rows:
        size = row.run.every_option().get("step_size")
        if isinstance(size, (int, float, str)) and size != 0 and row.middle(section.task.measure) is not None:
            by_name.setdefault(row.run.estimator, {}).setdefault(size, []).append(row)
    series = []
    for name, by_size in by_name.items():
        if len(by_size) > 1:
            seen = {size: _spread(section, rows) for size, rows in by_size.items()}
            numbers = sorted((float(size), *values) for size, values in seen.items() if not isinstance(size, str))
            line, band = [(x, y) for x, y, _, _ in numbers], [(x, low, high) for x, _, low, high in numbers]
            named = {size: values for size, values in sorted(seen.items(), key=str) if isinstance(size, str)}
            series.append(Series(name, line, colors[name], band if len(band) > 1 else (), named))
    if not any(one.points for one in series):
        return []
    caption = "Sensitivity to the step size, on test data: median over seeds, and the range of all seeds."
    return [(caption, chart.lines(caption, series, "step size", _unit(section), log_x=True))]


def _spread(section: Section, rows: list[Row]) -> tuple[float, float, float]:
    """Median, least and most over seeds of the row that is best on validation data."""
    measure, scale = section.task.measure, _scale(section)
    values = [scale * value for value in section.choose(rows).values(measure).values()]
    return median(values), min(values), max(values)


def _diagnostic(section: Section, name: str) -> list[Figure]:
    colors, log = _colors(section), name in LOGARITHMIC
    label, what = DIAGNOSTICS[name]
    series = []
    for row in _leading(section):
        line, _ = _history(row, lambda record: record.get("gradient", {}).get(name))
        line = [(x, y) for x, y in line if y > 0 or not log]
        if len(line) > 1:
            series.append(Series(row.run.estimator, line, colors[row.run.estimator]))
    if not series or all(y == 0 for one in series for _, y in one.points):
        return []
    return [(f"On a batch of training data: {what}.", chart.lines(what, series, "step", label, log_y=log))]


def _scale(section: Section) -> float:
    return 100 if section.task.measure in section.task.percent else 1


def _unit(section: Section) -> str:
    measure = section.task.measure
    return words(measure) + (", %" if measure in section.task.percent else "")

"""The table that `python -m benchmarks` prints, and what it leaves behind: a JSON file, and curves over sizes."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ._harness import OURS, Figure, by_processor_time

RESULTS = Path(__file__).parent / "results"
_VERSIONS = ("pullback", "torch", "numpy", "numba", "scipy", "entmax", "torch-struct", "supar", "ufal.chu-liu-edmonds")


def table(figures: Iterable[Figure]) -> Table:
    """One row per figure: what was measured, what was promised, whether it holds."""
    rows = Table(title="pullback and its peers", header_style="bold")
    for column in ("case", "size", OURS, "against", "peer", "figure", "target", "", "note"):
        right = column in (OURS, "peer", "figure", "target")
        rows.add_column(column, justify="right" if right else "left", no_wrap=column in ("case", "size", "figure"))
    previous = None
    for figure in figures:
        if previous not in (None, figure.case):
            rows.add_section()
        rows.add_row(*_cells(figure, figure.case if figure.case != previous else ""))
        previous = figure.case
    return rows


def line(figure: Figure) -> str:
    """A figure in one line, for the reader who watches the run."""
    case, size, ours, against, peer, value, target, met, note = _cells(figure, figure.case)
    parts = [case, size, value, f"({OURS} {ours}, {against} {peer})" if against else "", target, met, note]
    return "  ".join(part for part in parts if part)


def _cells(figure: Figure, case: str) -> tuple[str, ...]:
    against = figure.times.get(figure.against)
    return (
        case,
        figure.size,
        _seconds(figure.times.get(OURS)),
        figure.against,
        _seconds(against),
        _value(figure),
        _target(figure),
        "[red]failed[/]" if figure.failed else {True: "[green]met[/]", False: "[red]not met[/]", None: ""}[figure.met],
        escape(figure.note),
    )


def _value(figure: Figure) -> str:
    return "–" if figure.value is None else _with_unit(figure.value, figure.unit)


def _target(figure: Figure) -> str:
    unit = "×" if figure.unit.startswith("×") else figure.unit if _is_time(figure.unit) else ""
    bounds = {"≥": figure.at_least, "≤": figure.at_most}
    return ", ".join(f"{sign} {_with_unit(bound, unit)}" for sign, bound in bounds.items() if bound is not None)


def _is_time(unit: str) -> bool:
    return unit == "s" or unit.startswith("s/")


def _with_unit(value: float, unit: str) -> str:
    if _is_time(unit):
        return _seconds(value) + unit[1:]
    number = f"{value:.3g}" if value < 100 else f"{value:.0f}"
    return f"{number}{unit}" if unit.startswith("×") else f"{number} {unit}".strip()


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def save(figures: Iterable[Figure]) -> Path:
    """Write the figures with the versions and the machine they belong to; returns the file."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc)
    record = {
        "time": now.isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "processor": _processor(),
        "clock": "processor time" if by_processor_time() else "wall time",
        "versions": {name: version for name in _VERSIONS if (version := _version(name))},
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    path = RESULTS / f"{now:%Y-%m-%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def plot(name: str, title: str, axis: str, sizes: Sequence[int], curves: Mapping[str, Sequence[float]]) -> Path:
    """Draw seconds per example over sizes, both on logarithmic axes, into NAME.png; returns the file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for label, seconds in curves.items():
        axes.loglog(sizes[: len(seconds)], [1e6 * s for s in seconds], marker="o", label=label)
    axes.set(xlabel=axis, ylabel="µs per example", title=title)
    axes.legend()
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.png"
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path

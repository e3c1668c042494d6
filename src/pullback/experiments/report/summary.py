"""Runs become sections: which stand in one table, in which order, and what rows and tables are called."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pullback.experiments.records import Result
from pullback.experiments.report.section import Row, Section
from pullback.experiments.run import Run
from pullback.experiments.task import Task
from pullback.experiments.tasks import SETUPS, setup_of


def sections(results: Sequence[Result]) -> list[Section]:
    """Runs by task, and by what they have in common; in the order of the set-ups."""
    by_task: dict[str, list[Result]] = {}
    for result in results:
        task = result.run.to_dict()["task"]
        common = {name: value for name, value in task.items() if name not in result.run.task.row_settings}
        by_task.setdefault(json.dumps([setup_of(result.run), common], sort_keys=True), []).append(result)
    order = {name: position for position, name in enumerate(SETUPS)}
    groups = sorted(by_task.values(), key=lambda group: (order[setup_of(group[0].run)], _is_changed(group[0].run)))
    return [_section(group) for group in groups]


def _is_changed(run: Run[Any]) -> bool:
    """Whether the task is another than in the set-up, which stands first."""
    return bool(run.task != SETUPS[setup_of(run)].task)


def _section(results: list[Result]) -> Section:
    task: Task = results[0].run.task
    done = [result for result in results if result.is_done and result.records]
    groups: dict[str, list[Result]] = {}
    for result in done:
        groups.setdefault(_but_seed(result.run), []).append(result)
    order = {name: position for position, name in enumerate(task.estimators())}
    ordered = sorted(groups.values(), key=lambda group: (order[group[0].run.estimator], _by_size(group[0].run)))
    labels = _labels([group[0].run for group in ordered])
    failures = Counter(_but_seed(result.run) for result in results if result.failure is not None)
    rows = [
        Row(label, tuple(sorted(group, key=lambda result: result.run.seed)), failures[_but_seed(group[0].run)])
        for label, group in zip(labels, ordered)
    ]
    unfinished = [result for result in results if not (result.is_done and result.records)]
    title = _title([row.run for row in rows] or [result.run for result in unfinished])
    return Section(title, task, tuple(rows), tuple(unfinished))


def _but_seed(run: Run[Any]) -> str:
    return json.dumps({**run.to_dict(), "seed": 0}, sort_keys=True)


def _by_size(run: Run[Any]) -> list[tuple[float, str]]:
    """A key that puts rows of one estimator in the order of their options: numbers by their size, then names."""
    values = [*run.every_option().values(), run.noise, *(run.settings()[name] for name in run.task.row_settings)]
    return [(value, "") if isinstance(value, int | float) else (math.inf, str(value)) for value in values]


def _title(runs: Sequence[Run[Any]]) -> str:
    """The set-up, and which settings of the task, or how many steps, all runs have that it has not."""
    run, settings = runs[0], runs[0].settings()
    standard, common = SETUPS[setup_of(run)].settings(), _in_common(runs)
    named = [name for name in (*vars(run.task), "steps") if name in common and settings[name] != standard[name]]
    shown = [_in_words(name, settings[name]) for name in named if name != "data_folder"]
    return ", ".join([setup_of(run), *shown])


def _in_words(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    return f"{words} {value}"


def _labels(runs: Sequence[Run[Any]]) -> list[str]:
    """The estimator, and in parentheses how it differs from its set-up and from other rows of the same estimator."""
    labels, common = [], _in_common(runs)
    for run in runs:
        same = [other for other in runs if other.estimator == run.estimator]
        standard = replace(SETUPS[setup_of(run)], estimator=run.estimator, options=())
        mine = {name: value for name, value in settings_of_row(run).items() if name not in common}
        named = _different(mine, [settings_of_row(other) for other in (*same, standard)])
        named += _different(run.every_option(), [other.every_option() for other in (*same, standard)])
        labels.append(f"{run.estimator} ({', '.join(named)})" if named else run.estimator)
    return labels


def settings_of_row(run: Run[Any]) -> dict[str, Any]:
    """The settings that make another row; a seed or an estimator does not."""
    return {name: value for name, value in run.settings().items() if name not in ("seed", "estimator")}


def _in_common(runs: Sequence[Run[Any]]) -> set[str]:
    """Settings that all runs have alike, but for those that are for some rows alone: these are named with a row."""
    of_rows = {"noise", "noise_until", *(runs[0].task.row_settings if runs else ())}
    every = [settings_of_row(run) for run in runs]
    return {name for name in (every[0] if every else ()) if len({one[name] for one in every}) == 1} - of_rows


def _different(mine: dict[str, Any], every: Sequence[dict[str, Any]]) -> list[str]:
    """What of `mine` the others do not all have."""
    return [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in mine.items()
        if any(other.get(name) != value for other in every)
    ]

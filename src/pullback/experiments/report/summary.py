"""What runs say together: medians over seeds, the best, what does not differ from it, and one sentence."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median, stdev
from typing import Any

from scipy import stats

from pullback.experiments.records import Result
from pullback.experiments.run import Run
from pullback.experiments.task import Task
from pullback.experiments.tasks import SETUPS, setup_of

LEVEL = 0.05  # of the paired t-test
FEWEST = 3  # seeds for it
FEW = 5  # names in a sentence


@dataclass(frozen=True)
class Row:
    """Finished runs that differ in their seed alone."""

    label: str
    results: tuple[Result, ...]
    failed: int = 0  # seeds with which training failed

    @property
    def run(self) -> Run[Any]:
        """One of the runs."""
        return self.results[0].run

    @property
    def name(self) -> str:
        """A name that is fit for a link."""
        return self.run.key

    def values(self, measure: str, split: str = "test") -> dict[int, float]:
        """A measure after the last step, by seed."""
        last = {result.run.seed: result.records[-1] for result in self.results}
        return {seed: record[split][measure] for seed, record in last.items() if measure in record[split]}

    def middle(self, measure: str, split: str = "test") -> float | None:
        """The median over seeds."""
        values = self.values(measure, split)
        return median(values.values()) if values else None

    def error(self, measure: str) -> float | None:
        """The standard error of the mean over seeds."""
        values = list(self.values(measure).values())
        return stdev(values) / len(values) ** 0.5 if len(values) > 1 else None

    @property
    def seeds(self) -> str:
        """How many seeds there are, and how many of them have come to their end."""
        return f"{len(self.results)} of {len(self.results) + self.failed}" if self.failed else str(len(self.results))

    def cost(self, name: str) -> float:
        """The median of seconds, or of runs of the decoder in a step."""
        return median(float(result.records[-1][name]) for result in self.results)

    def command(self, seed: int) -> str:
        """The command that repeats one of the runs."""
        run = next(result.run for result in self.results if result.run.seed == seed)
        setup = setup_of(run)
        return run.command(setup, SETUPS[setup])


@dataclass(frozen=True)
class Cell:
    """A number of a table: median and standard error as they are printed, and how it compares with the best."""

    value: str
    error: str
    is_best: bool
    is_tied: bool


@dataclass(frozen=True)
class Section:
    """All runs of a task with the same settings of the task, but for those that tell rows apart."""

    task: Task
    rows: tuple[Row, ...]
    unfinished: tuple[Result, ...]

    @property
    def title(self) -> str:
        """The set-up, and which settings of the task, or how many steps, all runs have that it has not."""
        run, settings = self._some_run, self._some_run.settings()
        standard, common = SETUPS[setup_of(run)].settings(), _in_common(self._runs)
        told = [name for name in (*vars(self.task), "steps") if name in common and settings[name] != standard[name]]
        shown = [f"{name.replace('_', ' ')} {settings[name]}" for name in told if name != "data_folder"]
        return ", ".join([setup_of(run), *shown])

    @property
    def _runs(self) -> list[Run[Any]]:
        return [row.run for row in self.rows] or [result.run for result in self.unfinished]

    @property
    def _some_run(self) -> Run[Any]:
        return self._runs[0]

    @cached_property
    def measures(self) -> list[str]:
        """Every measure that some run has, in the order of the task."""
        names: dict[str, None] = {}
        for row in self.rows:
            names |= dict.fromkeys(row.results[0].records[-1]["test"])
        return list(names)

    def is_yardstick(self, row: Row) -> bool:
        return row.run.estimator in self.task.yardsticks()

    def better(self, measure: str, one: float, other: float) -> bool:
        return one < other if measure in self.task.lower_is_better else one > other

    def best(self, measure: str, rows: Sequence[Row] | None = None, split: str = "test") -> Row | None:
        """The row with the best median, of those that can be compared."""
        known = [row for row in (self.rows if rows is None else rows) if self.is_comparable(row)]
        return self._best_of(known, measure, split)

    def is_comparable(self, row: Row) -> bool:
        """Whether a row may be best: no yardstick, no failed seed, and as many seeds as any other."""
        most = max(len(other.results) for other in self.rows if not self.is_yardstick(other) or other is row)
        return not self.is_yardstick(row) and not row.failed and len(row.results) == most

    def _best_of(self, rows: Sequence[Row], measure: str, split: str) -> Row | None:
        chosen = None
        for row in rows:
            value = row.middle(measure, split)
            if value is None:
                continue
            if chosen is None or self.better(measure, value, chosen.middle(measure, split) or 0.0):
                chosen = row
        return chosen

    def winner(self, measure: str) -> Row | None:
        """The row with the best median; none where nothing is to be won, or all rows have the same."""
        if measure in self.task.descriptive:
            return None
        middles = {row.middle(measure) for row in self.rows}
        return self.best(measure) if len(middles - {None}) > 1 or len(self.rows) == 1 else None

    def tied(self, measure: str, row: Row, best: Row) -> bool:
        """Whether a paired t-test over the seeds that both have does not tell them apart; it needs three seeds."""
        if row is best or self.is_yardstick(row):
            return False
        ours, theirs = row.values(measure), best.values(measure)
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) < FEWEST:
            return False
        differences = [ours[seed] - theirs[seed] for seed in seeds]
        if max(differences) - min(differences) <= 1e-12 * max(map(abs, differences)):
            return differences[0] == 0
        return bool(stats.ttest_1samp(differences, 0).pvalue >= LEVEL)

    def cell(self, row: Row, measure: str) -> Cell | None:
        """What a table says of a row; nothing where it lacks the measure."""
        value, error, best = row.middle(measure), row.error(measure), self.winner(measure)
        if value is None:
            return None
        is_best = best is not None and self.is_comparable(row) and value == best.middle(measure)
        is_tied = best is not None and not is_best and self.tied(measure, row, best)
        return Cell(
            self.show(measure, value), "" if error is None else self.show_error(measure, error), is_best, is_tied
        )

    def chosen(self) -> list[Row]:
        """One row for each estimator: that with the best median on validation data."""
        by_name: dict[str, list[Row]] = {}
        for row in self.rows:
            by_name.setdefault(row.run.estimator, []).append(row)
        measure = self.task.measure
        return [
            (self._best_of(rows, measure, "validation") or rows[0]) if len(rows) > 1 else rows[0]
            for rows in by_name.values()
        ]

    def ranked(self) -> list[Row]:
        """The estimators from best to worst by validation data, yardsticks left out."""
        measure = self.task.measure
        rows = [row for row in self.chosen() if not self.is_yardstick(row) and row.middle(measure) is not None]
        sign = 1 if measure in self.task.lower_is_better else -1
        return sorted(rows, key=lambda row: sign * (row.middle(measure, "validation") or 0.0))

    def show(self, measure: str, value: float) -> str:
        """A value as it is printed."""
        return self.task.show(measure, value)

    def show_error(self, measure: str, value: float) -> str:
        """A standard error as it is printed."""
        return self.show(measure, value) if measure in self.task.percent else f"{value:.1g}"

    @property
    def conclusion(self) -> str:
        """The section in a sentence or two, computed."""
        measure, rows = self.task.measure, self.chosen()
        best = self.best(measure, rows)
        if best is None:
            trained = [row for row in rows if not self.is_yardstick(row)]
            if trained:
                return "With every estimator, training failed for some seed."
            return "Only yardsticks have finished." if rows else "No estimator has finished yet."
        word, unit = measure.replace("_", " "), " %" if measure in self.task.percent else ""
        value = best.middle(measure) or 0.0
        seeds = len(best.results)
        text = f"{best.label} is best with {word} {self.show(measure, value)}{unit}, "
        text += f"the median of {seeds} seeds" if seeds > 1 else "of a single seed"
        if len(rows) < len(self.rows):
            text += ", with settings chosen on validation data"
        if any(not self.is_yardstick(row) and not row.failed and len(row.results) < seeds for row in rows):
            text += ", among the rows that have as many"
        same_budget = [row for row in self.rows if row.run.steps == best.run.steps]
        gold = next((row for row in same_budget if row.run.estimator == "gold"), None)
        if gold is not None:
            text += f" (the true structure gives {self.show(measure, gold.middle(measure) or 0.0)}{unit})"
        ties = [row.label for row in rows if self.tied(measure, row, best)]
        if ties:
            named = _listed(ties) if len(ties) <= FEW else f"{len(ties)} others"
            text += f"; a paired test over these seeds does not tell {named} from it"
        frozen = next((row for row in same_budget if row.run.estimator == "frozen"), None)
        text += "."
        if frozen is not None:
            floor = frozen.middle(measure) or 0.0
            below = [
                row.label
                for row in rows
                if row.run.steps == best.run.steps
                and not self.is_yardstick(row)
                and not self.better(measure, row.middle(measure) or 0.0, floor)
            ]
            if below:
                text += f"  {_listed(below)} {'does' if len(below) == 1 else 'do'} no better than an untrained encoder."
        return text


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def sections(results: Sequence[Result]) -> list[Section]:
    """Runs by task, and by what they have in common."""
    by_task: dict[str, list[Result]] = {}
    for result in results:
        task = result.run.to_dict()["task"]
        common = {name: value for name, value in task.items() if name not in result.run.task.row_settings}
        by_task.setdefault(json.dumps([setup_of(result.run), common], sort_keys=True), []).append(result)
    return [_section(group) for group in by_task.values()]


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
    return Section(task, tuple(rows), tuple(result for result in results if not (result.is_done and result.records)))


def _but_seed(run: Run[Any]) -> str:
    return json.dumps({**run.to_dict(), "seed": 0}, sort_keys=True)


def _by_size(run: Run[Any]) -> list[tuple[float, str]]:
    """A key that puts rows of one estimator in the order of their options: numbers by their size, then names."""
    values = [*run.every_option().values(), run.noise, *(run.settings()[name] for name in run.task.row_settings)]
    return [(value, "") if isinstance(value, int | float) else (math.inf, str(value)) for value in values]


def _labels(runs: Sequence[Run[Any]]) -> list[str]:
    """The estimator, and in parentheses what tells it from other rows of the same estimator, or from its set-up."""
    labels, common = [], _in_common(runs)
    for run in runs:
        same = [other for other in runs if other.estimator == run.estimator]
        standard = replace(SETUPS[setup_of(run)], estimator=run.estimator, options=())
        mine = {name: value for name, value in _settings(run).items() if name not in common}
        told = _different(mine, [_settings(other) for other in (*same, standard)])
        told += _different(run.every_option(), [other.every_option() for other in (*same, standard)])
        labels.append(f"{run.estimator} ({', '.join(told)})" if told else run.estimator)
    return labels


def _settings(run: Run[Any]) -> dict[str, Any]:
    """The settings that make another row; a seed or an estimator does not."""
    return {name: value for name, value in run.settings().items() if name not in ("seed", "estimator")}


def _in_common(runs: Sequence[Run[Any]]) -> set[str]:
    """Settings that all runs have alike, but for those that are for some rows alone: they are told with a row."""
    of_rows = {"noise", "noise_until", *(runs[0].task.row_settings if runs else ())}
    every = [_settings(run) for run in runs]
    return {name for name in (every[0] if every else ()) if len({one[name] for one in every}) == 1} - of_rows


def _different(mine: dict[str, Any], every: Sequence[dict[str, Any]]) -> list[str]:
    """What of `mine` the others do not all have."""
    return [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in mine.items()
        if any(other.get(name) != value for other in every)
    ]

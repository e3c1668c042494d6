"""A table of the report: medians over seeds, the best of each measure, and rows that no test finds worse."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median, stdev
from typing import Any

from scipy import stats

from pullback.experiments.records import Result
from pullback.experiments.run import Run
from pullback.experiments.task import Task
from pullback.experiments.tasks import SETUPS, setup_of

LEVEL = 0.05  # of the paired tests
FEWEST = 5  # seeds for them: with three, they tell hardly anything apart


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


def _shared(measure: str, row: Row, other: Row) -> list[tuple[float, float]]:
    """The values of two rows for the seeds that both have."""
    ours, theirs = row.values(measure), other.values(measure)
    return [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]


@dataclass(frozen=True)
class Cell:
    """A number of a table: median and standard error as they are printed, and how it compares with the best."""

    value: str
    error: str
    is_best: bool
    is_tied: bool


@dataclass(frozen=True)
class Section:
    """All runs of a task with the same settings of the task, but for those that may differ between rows."""

    title: str
    task: Task
    rows: tuple[Row, ...]
    unfinished: tuple[Result, ...]

    @cached_property
    def measures(self) -> list[str]:
        """Every measure that some run has, in the order of the task, but for constants."""
        names: dict[str, None] = {}
        for row in self.rows:
            names |= dict.fromkeys(row.results[0].records[-1]["test"])
        return [name for name in names if name not in self.constants]

    @cached_property
    def constants(self) -> dict[str, float]:
        """Measures that only describe, and have the same value in every run of several rows."""
        found = {}
        for name in self.task.descriptive:
            values = {value for row in self.rows for value in row.values(name).values()}
            if len(values) == 1 and len(self.rows) > 1:
                found[name] = values.pop()
        return found

    def is_yardstick(self, row: Row) -> bool:
        return row.run.estimator in self.task.yardsticks()

    # ---- which rows are compared

    def chosen(self) -> list[Row]:
        """One row for each estimator: that with the best median on validation data."""
        by_name: dict[str, list[Row]] = {}
        for row in self.rows:
            by_name.setdefault(row.run.estimator, []).append(row)
        return [self.choose(rows) for rows in by_name.values()]

    def choose(self, rows: Sequence[Row]) -> Row:
        """The row with the best median on validation data, of those with all seeds if there are any."""
        complete = [row for row in rows if self._is_complete(row)]
        return self._best_of(complete or rows, self.task.measure, "validation") or rows[0]

    def _is_complete(self, row: Row) -> bool:
        """Whether a row is no yardstick, has no failed seed, and has as many seeds as any other."""
        most = max((len(other.results) for other in self.rows if not self.is_yardstick(other)), default=0)
        return not self.is_yardstick(row) and not row.failed and len(row.results) == most

    @cached_property
    def ranked(self) -> list[Row]:
        """The chosen row of each estimator, from best to worst; last those that lack seeds.  No yardsticks."""
        measure = self.task.measure
        sign = 1 if measure in self.task.lower_is_better else -1
        rows = [row for row in self.chosen() if not self.is_yardstick(row) and row.middle(measure) is not None]
        return sorted(rows, key=lambda row: (not self._is_complete(row), sign * (row.middle(measure) or 0.0)))

    @cached_property
    def compared(self) -> list[Row]:
        """The rows of which one is the best: those of `ranked` that have all seeds."""
        return [row for row in self.ranked if self._is_complete(row)]

    def yardstick(self, name: str) -> Row | None:
        """The row of a yardstick, trained for as many steps as the best row."""
        steps = {self.compared[0].run.steps} if self.compared else {row.run.steps for row in self.rows}
        rows = (row for row in self.chosen() if self.is_yardstick(row) and row.run.estimator == name)
        return next((row for row in rows if row.run.steps in steps), None)

    # ---- how they compare

    def better(self, measure: str, one: float, other: float) -> bool:
        return one < other if measure in self.task.lower_is_better else one > other

    def best(self, measure: str) -> Row | None:
        """The row with the best median, of those that are compared."""
        return self._best_of(self.compared, measure, "test")

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
        middles = {row.middle(measure) for row in self.compared}
        return self.best(measure) if len(middles - {None}) > 1 or len(self.compared) == 1 else None

    def tied(self, measure: str, row: Row) -> bool:
        """Whether no test over at least `FEWEST` seeds finds a row worse than one with a better median.

        Not than the best alone: one seed that fails makes the best row so uncertain that nothing can be told from it.
        """
        value, best = row.middle(measure), self.best(measure)
        if value is None or best is None or row is best or len(_shared(measure, row, best)) < FEWEST:
            return False
        middles = [(other, other.middle(measure)) for other in self.compared]
        above = [other for other, middle in middles if middle is not None and self.better(measure, middle, value)]
        return not any(self._is_worse(measure, row, other) for other in above)

    def _is_worse(self, measure: str, row: Row, other: Row) -> bool:
        """Whether a row is worse than another, by a t-test or a sign test over the seeds that both have.

        Never if it is as good on average: a row that loses with nearly all seeds may win much with one.
        """
        sign = -1 if measure in self.task.lower_is_better else 1
        losses = [sign * (theirs - ours) for ours, theirs in _shared(measure, row, other)]
        if len(losses) < FEWEST or sum(losses) <= 0:
            return False
        lost, won = sum(loss > 0 for loss in losses), sum(loss < 0 for loss in losses)
        by_signs = stats.binom.sf(lost - 1, lost + won, 0.5)  # one-sided
        middle, error = mean(losses), stdev(losses) / len(losses) ** 0.5
        by_size = 2 * stats.t.sf(middle / error, len(losses) - 1) if error > 1e-12 * middle else 0.0
        return bool(min(by_signs, by_size) < LEVEL)

    @cached_property
    def leading(self) -> list[Row]:
        """The best row, those with the same median, and those that no test finds worse than one above."""
        measure, best = self.task.measure, self.compared[:1]
        value = best[0].middle(measure) if best else None
        return [row for row in self.compared if row.middle(measure) == value or self.tied(measure, row)]

    # ---- how they are printed

    def cell(self, row: Row, measure: str) -> Cell | None:
        """What a table says of a row; nothing where it lacks the measure."""
        value, error = row.middle(measure), row.error(measure)
        if value is None:
            return None
        best = self.winner(measure) if row in self.compared else None
        is_best = best is not None and value == best.middle(measure)
        is_tied = best is not None and not is_best and self.tied(measure, row)
        return Cell(
            self.show(measure, value), "" if error is None else self.show_error(measure, error), is_best, is_tied
        )

    def spread(self, row: Row) -> str:
        """The worst and the best seed, by the measure that decides: a median says nothing of seeds that fail."""
        measure = self.task.measure
        values = sorted(row.values(measure).values(), reverse=measure in self.task.lower_is_better)
        if len(values) < 2:
            return ""
        worst, best = self.show(measure, values[0]), self.show(measure, values[-1])
        return worst if worst == best else f"{worst} to {best}"

    def show(self, measure: str, value: float) -> str:
        """A value as it is printed."""
        return self.task.show(measure, value)

    def show_error(self, measure: str, value: float) -> str:
        """A standard error as it is printed."""
        return self.show(measure, value) if measure in self.task.percent else f"{value:.1g}"

    def unit(self, measure: str) -> str:
        """What follows a printed value."""
        return " %" if measure in self.task.percent else ""

"""A section in words: which estimator is best, what cannot be told from it, and what fails."""

from collections.abc import Sequence

from pullback.experiments.report.section import FEWEST, Row, Section

FEW = 5  # names beside that of the best; with more, it is no news which one is ahead


def conclusion(section: Section) -> str:
    """The section in a sentence or two, computed."""
    if not section.compared:
        return _without_best(section)
    measure, first = section.task.measure, section.leading[0]
    level = [row for row in section.leading if row.middle(measure) == first.middle(measure)]
    if len(section.leading) - 1 > FEW:
        best, ties = _crowd_in_words(section, level)
    else:
        best = _best_in_words(section, level)
        ties = _ties_in_words([row for row in section.leading if row not in level])
    sentence = f"{best}{_settings_in_words(section)}{_remarks_in_words(section)}{ties}."
    return "  ".join([sentence, *_failures_in_words(section)])


def constants(section: Section) -> str:
    """What every row has alike."""
    found = [f"{words(name)} is {_value(section, name, value)}" for name, value in section.constants.items()]
    return f"In every row, {_listed(found)}." if found else ""


def words(name: str) -> str:
    """A measure or a setting as it is printed."""
    return name.replace("_", " ")


def _without_best(section: Section) -> str:
    if any(not section.is_yardstick(row) for row in section.rows):
        return "With every estimator, training failed for some seed."
    if not section.rows:
        return "No estimator has finished yet."
    measure = section.task.measure
    shown = [
        f"{_value(section, measure, row.middle(measure) or 0.0)} with {row.label}, {_median(row)}"
        for row in section.chosen()
    ]
    return f"Yardsticks only: {words(measure)} is {'; '.join(shown)}."


def _best_in_words(section: Section, level: Sequence[Row]) -> str:
    measure = section.task.measure
    value = _value(section, measure, level[0].middle(measure) or 0.0)
    return (
        f"{_listed([row.label for row in level])} {_are(level)} best with {words(measure)} {value}, {_median(level[0])}"
    )


def _ties_in_words(tied: Sequence[Row]) -> str:
    return f"; not significantly different (paired tests): {_listed([row.label for row in tied])}" if tied else ""


def _crowd_in_words(section: Section, level: Sequence[Row]) -> tuple[str, str]:
    """How many are as good as the best and how good they are; and which are not."""
    measure, crowd, every = section.task.measure, section.leading, section.compared
    values = [row.middle(measure) or 0.0 for row in crowd]
    low, high = section.show(measure, min(values)), section.show(measure, max(values))
    span = f"from {low} to {high}" if low != high else high
    text = f"{len(crowd)} of {len(every)} estimators cannot be told apart"
    text += f", with {words(measure)} {span}{section.unit(measure)}"
    if len(level) <= FEW:
        text += f" ({_listed([row.label for row in level])} {_are(level)} ahead)"
    worse = [row.run.estimator for row in every if row not in crowd]
    below = f"; significantly worse: {_listed(worse)}" if worse else ""
    return f"{text}, medians of {len(crowd[0].results)} seeds", below


def _settings_in_words(section: Section) -> str:
    several = len(section.chosen()) < len(section.rows)
    return ", with settings chosen on validation data" if several else ""


def _remarks_in_words(section: Section) -> str:
    remarks, measure = [], section.task.measure
    best, gold = section.compared[0], section.yardstick("gold")
    if len(section.compared) > 1 and len(best.results) < FEWEST:
        remarks.append("too few seeds for a test")
    if any(len(row.results) + row.failed < len(best.results) for row in section.ranked):
        remarks.append("rows with fewer seeds are not ranked")
    if gold is not None:
        remarks.append(f"the true structure gives {_value(section, measure, gold.middle(measure) or 0.0)}")
    remarks += [
        f"{row.label}, which is not learned, gives {_value(section, measure, row.middle(measure) or 0.0)}"
        for row in _not_learned(section)
        if section.better(measure, row.middle(measure) or 0.0, best.middle(measure) or 0.0)
    ]
    return f" ({'; '.join(remarks)})" if remarks else ""


def _not_learned(section: Section) -> list[Row]:
    """Yardsticks that decode from structures which nobody has learned, and which are not the true ones."""
    found = (section.yardstick(name) for name in section.task.known() if name != "gold")
    return [row for row in found if row is not None]


def _failures_in_words(section: Section) -> list[str]:
    measure, frozen = section.task.measure, section.yardstick("frozen")
    if frozen is None:
        return []
    floor = frozen.middle(measure) or 0.0
    same_budget = [row for row in section.ranked if row.run.steps == frozen.run.steps]
    failed = [row for row in same_budget if not section.better(measure, row.middle(measure) or 0.0, floor)]
    if not failed:
        return []
    verb = "does" if len(failed) == 1 else "do"
    return [f"{_listed([row.run.estimator for row in failed])} {verb} no better than an untrained encoder."]


def _are(rows: Sequence[Row]) -> str:
    return "is" if len(rows) == 1 else "are"


def _median(row: Row) -> str:
    return f"the median of {len(row.results)} seeds" if len(row.results) > 1 else "of a single seed"


def _value(section: Section, measure: str, value: float) -> str:
    return section.show(measure, value) + section.unit(measure)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

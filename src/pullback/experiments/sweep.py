"""Many runs: which cells a grid has, which of them are done, and an engine that trains the rest."""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import joblib
import torch

from pullback.experiments.events import Events
from pullback.experiments.mistakes import Mistake, unknown
from pullback.experiments.records import Busy, Log
from pullback.experiments.rows import Value, options_of
from pullback.experiments.run import Run
from pullback.experiments.task import Task
from pullback.experiments.training import Diverged, train

Engine = Literal["processes", "here", "ray"]
TRIES = 3  # of a cell whose process was killed; each goes on where the last stopped
PATIENCE = 10  # seconds to wait for a run that another process holds


def cells(
    standard: Run[Any],
    rows: Sequence[str],
    seeds: int,
    grid: Sequence[str],
    noise_of_rows: Mapping[str, float] | None = None,
) -> list[Run[Any]]:
    """The runs of a sweep: every row with every combination of the grid, for `seeds` seeds.

    rows: estimators, each with options and settings of its own if need be: "spigot(step_size=0.1, noise=1)".
    grid: "name=value,value,...": options of estimators, or settings of the run.  An estimator without such an option
    has one cell instead of several; an option that none of them has is a `Mistake`.
    noise_of_rows: noise and noise_until of rows that do not name their own, if not those of `standard`.
    """
    if seeds < 1:
        raise Mistake(f"seeds is {seeds}; expected an integer ≥ 1.")
    starts = [_row(standard, text, noise_of_rows or {}) for text in rows]
    axes = [parse_assignment(text) for text in grid]
    for name in {name for name, _ in axes if [other for other, _ in axes].count(name) > 1}:
        raise Mistake(f"{name} is given twice; expected once, in a sweep with a list of values such as {name}=0.1,1.")
    for start, (name, _) in itertools.product(starts, axes):
        if name in options_of(start.estimator) and name in start.settings():
            raise Mistake(
                f"{name} is an option of {start.estimator} and a setting of the run; write "
                f'"{start.estimator}({name}=…)" for the option, --{name.replace("_", "-")} for the setting.'
            )
    found: dict[str, Run[Any]] = {}
    for start in starts:
        for values in itertools.product(*(values for _, values in axes)):
            run = start
            for (name, _), value in zip(axes, values):
                run = _with(run, name, value, [start.estimator for start in starts])
            for seed in range(run.seed, run.seed + seeds):
                seeded = replace(run, seed=seed)
                found[seeded.key] = seeded
    return list(found.values())


def _with(run: Run[Any], name: str, value: Value, estimators: list[str]) -> Run[Any]:
    options = {option for estimator in estimators for option in options_of(estimator)}
    if name not in options:
        if name not in run.settings():
            raise unknown("option or setting", name, [*sorted(options), *run.settings()])
        return run.with_setting(name, value)
    return run.with_option(name, value) if name in options_of(run.estimator) else run


def _row(standard: Run[Any], text: str, noise_of_rows: Mapping[str, float]) -> Run[Any]:
    name, _, inside = text.strip().partition("(")
    if text.count("(") != text.count(")"):
        raise Mistake(
            f"{text.strip()!r} has a parenthesis without its partner; expected a row such as spigot(step_size=0.1)."
        )
    options = standard.options if name == standard.estimator else ()
    changes: dict[str, Any] = {"estimator": name, "options": options, **noise_of_rows}
    run = replace(standard, **changes)
    named: set[str] = set()
    for part in filter(None, inside.rstrip(")").split(",")):
        option, (value,) = parse_assignment(part.strip())
        if option in named:
            raise Mistake(f"{text.strip()!r} gives {option} twice; expected one value.")
        named.add(option)
        run = _with(run, option, value, [name])
        if option == "noise" and option not in options_of(name):
            run.refuse_noise(bool(value))
    return run


def rows_of(text: str, task: Task) -> list[str]:
    """The rows that are meant by "all", or by names between commas."""
    rows = task.estimators() if text == "all" else split_rows(text)
    if not rows:
        raise Mistake(f"estimators is {text!r}; expected names between commas, or all.")
    return rows


def split_rows(text: str) -> list[str]:
    """Names between commas, of which those in parentheses do not count.

    >>> split_rows("ste, spigot(step_size=0.1, noise=1)")
    ['ste', 'spigot(step_size=0.1, noise=1)']
    """
    rows, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            rows.append("")
        else:
            rows[-1] += letter
    return [row.strip() for row in rows if row.strip()]


def parse_assignment(text: str) -> tuple[str, list[Value]]:
    """A name and its values.

    >>> parse_assignment("step_size=0.1,1")
    ('step_size', [0.1, 1])
    """
    name, sign, values = text.partition("=")
    if not sign or not name or not values:
        raise Mistake(f"{text!r} is not an assignment; expected name=value, such as step_size=0.1.")
    return name.strip().replace("-", "_"), [parse_value(value) for value in values.split(",")]


def parse_value(text: str) -> Value:
    """A number, a truth value, or a name."""
    words: dict[str, Value] = {"true": True, "false": False}
    text = text.strip()
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def is_open(run: Run[Any], folder: Path) -> bool:
    """Whether a run has still to be trained, or trained to its end."""
    log = Log(folder / run.key)
    return not log.is_done and log.failure is None


def _failure(run: Run[Any], log: Log) -> str | None:
    """Why a run cannot be finished, or was and cannot be read any more."""
    if not log.is_done:
        return log.failure
    try:
        log.check(run)
    except Mistake as mistake:
        return str(mistake)
    return None


def sweep(
    runs: Sequence[Run[Any]], folder: Path, engine: Engine = "processes", workers: int = 2, tensorboard: bool = False
) -> dict[str, str]:
    """Trains what is not done yet, and returns the runs that cannot be finished with the reason for each.

    A process that is killed takes no other run with it: what it worked on is begun again from its last checkpoint.
    """
    folder = folder.resolve()  # a worker may be at home in another folder
    if folder.exists() and not folder.is_dir():
        raise Mistake(f"{folder} is not a folder, and runs need one.")
    for log in (Log(folder / run.key) for run in runs if tensorboard):
        events = Events(log)  # if that is not possible, it is said before anything is trained
        if log.is_done:
            events.rewrite()
    failures: dict[str, str] = {}
    for run in runs:
        reason = _failure(run, Log(folder / run.key))
        if reason is not None:
            failures[run.key] = reason
    if engine != "ray":  # whose machines may have files that this one has not
        for task in dict.fromkeys(run.task for run in runs if is_open(run, folder)):
            task.data()  # a file that is missing is a mistake at once, and not in every worker
    for attempt in range(TRIES):
        todo = [run for run in runs if is_open(run, folder) and run.key not in failures]
        if not todo:
            break
        try:
            with _engine(engine):
                if engine == "processes" and workers > 1:
                    _start_deaf(workers)
                work = (joblib.delayed(train_cell)(run, folder, tensorboard) for run in todo)
                answers = joblib.Parallel(n_jobs=1 if engine == "here" else workers, batch_size=1)(work)
        except Mistake:
            raise
        except Exception as death:  # what goes wrong inside a cell is an answer, so a process was killed
            if attempt == TRIES - 1:
                raise Mistake(f"workers died {TRIES} times, the last with {type(death).__name__}: {death}") from death
            continue
        failures |= {run.key: answer for run, answer in zip(todo, answers) if answer}
    return failures


def train_cell(run: Run[Any], folder: Path, tensorboard: bool = False) -> str:
    """Trains one run; what went wrong, or nothing."""
    torch.set_num_threads(1)  # other runs have the other processors
    watcher = Events(Log(folder / run.key)) if tensorboard else None
    for patience in reversed(range(PATIENCE)):
        try:
            train(run, folder, watcher)
        except Busy as busy:  # perhaps by a worker of the last attempt that has not ended yet
            if not patience:
                return str(busy)
            time.sleep(1)
        except (Diverged, Mistake) as error:
            return str(error).splitlines()[0]
        except Exception as error:  # a mistake in a task, perhaps: the other runs go on
            return f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            break
    return ""


def _start_deaf(workers: int) -> None:
    """Starts the processes of joblib so that they do not hear Ctrl-C: this one hears it, and ends them.

    Otherwise each would print where it was interrupted.  A process inherits what is ignored when it is started, which
    is while `Parallel` hands out its first work; waiting for the answers is not ignored any more.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # where no signals arrive
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        answers = joblib.Parallel(n_jobs=workers, return_as="generator")(joblib.delayed(int)() for _ in range(workers))
    finally:
        signal.signal(signal.SIGINT, before)
    list(answers)


@contextlib.contextmanager
def _engine(engine: Engine) -> Iterator[None]:
    if engine != "ray":
        yield
        return
    try:
        from ray.util.joblib import register_ray
    except ImportError as missing:
        raise Mistake('--engine ray needs Ray: pip install "pullback[ray]".') from missing
    register_ray()
    with joblib.parallel_config(backend="ray"):
        yield

"""What a person sees while runs are trained."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from torch import Tensor

from pullback.experiments.records import Log, Record
from pullback.experiments.run import Run
from pullback.experiments.task import Task
from pullback.experiments.watcher import Watcher

_SMOOTH = 0.95


def measures_in_words(task: Task, measures: dict[str, float], most: int = 4) -> str:
    """The first few measures in one line."""
    shown = list(measures.items())[:most]
    return ", ".join(f"{name.replace('_', ' ')} {task.show(name, value)}" for name, value in shown)


def _progress(console: Console) -> Progress:
    """A short bar, the steps and the time left, which are never cut, and words that are where there is no room."""
    words = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Progress(
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.description}", table_column=words),
        console=console,
        expand=True,
    )


class RunDisplay(Watcher):
    """One run: a bar with the loss, measures, examples per second and the time left."""

    def __init__(self, console: Console, examples: int) -> None:
        self.console, self.examples = console, examples
        self.progress = _progress(console)
        self._measures = ""
        self._loss: float | None = None  # smoothed, once it was looked at

    def on_start(self, run: Run[Any], step: int) -> None:
        self.run, self._began, self._first = run, time.perf_counter(), step
        self.bar = self.progress.add_task("", total=run.steps, completed=step)
        if step:
            self.console.print(f"going on from step {step}")

    def on_step(self, step: int, loss: Tensor) -> None:
        # Every look at the loss waits for it, so the eye gets one in four.
        if step % 4 == 0 or step == self.run.steps:
            now = float(loss)
            self._loss = now if self._loss is None else _SMOOTH * self._loss + (1 - _SMOOTH) * now
        rate = self.examples * (step - self._first) / max(time.perf_counter() - self._began, 1e-9)
        shown = "–" if self._loss is None else f"{self._loss:.3f}"
        text = f"loss {shown}  {rate:,.0f} examples/s  {self._measures}"
        self.progress.update(self.bar, completed=step, description=text)

    def on_record(self, record: Record) -> None:
        self._measures = measures_in_words(self.run.task, record["validation"], 2)


@contextlib.contextmanager
def watching(runs: Sequence[Run[Any]], folder: Path, console: Console) -> Iterator[None]:
    """A bar over all runs of a sweep, read from their folders, whichever process or machine writes them."""
    with _progress(console) as progress:
        bar = progress.add_task("", total=sum(run.steps for run in runs))
        stopped = threading.Event()
        thread = threading.Thread(target=_follow, args=(runs, folder, progress, bar, stopped), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def _follow(runs: Sequence[Run[Any]], folder: Path, progress: Progress, bar: TaskID, stopped: threading.Event) -> None:
    finished: set[str] = set()  # also those that failed
    failed = 0
    while True:
        ending = stopped.is_set()
        steps, at_work = 0, []
        for run in runs:
            log = Log(folder / run.key)
            if run.key not in finished and (log.is_done or log.failure is not None):
                finished.add(run.key)
                failed += not log.is_done
            if run.key in finished:
                steps += run.steps
            elif log.path("run.json").exists():
                at_work.append(f"{run.estimator} {run.seed}")
                steps += _last_step(log.path("records.jsonl"))
        text = f"{len(finished) - failed} of {len(runs)} runs done"
        text += f", {failed} failed" if failed else ""
        if at_work and not ending:
            text += f"; {', '.join(at_work[:3])}"
        progress.update(bar, completed=steps, description=text)
        if ending:
            return
        stopped.wait(0.5)


def _last_step(path: Path) -> int:
    """The step of the last whole record; cheap, and content with anything."""
    try:
        lines = path.read_text("utf-8").splitlines()
        return int(json.loads(lines[-1])["step"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return 0

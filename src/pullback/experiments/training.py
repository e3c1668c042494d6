"""One training run, from a value to a folder of records."""

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from pullback.experiments import processes
from pullback.experiments.batches import Order
from pullback.experiments.evaluation import draw, evaluate
from pullback.experiments.mistakes import Mistake
from pullback.experiments.optimizers import scale_rates
from pullback.experiments.records import Log
from pullback.experiments.run import Run
from pullback.experiments.state import State
from pullback.experiments.task import Split
from pullback.experiments.watcher import Watcher

SAVE_EVERY = 60.0  # seconds, where evaluations are further apart than that


class Diverged(Exception):
    """The model is no longer made of numbers."""


def train(run: Run[Any], folder: Path, watcher: Watcher | None = None, accelerator: str = "cpu") -> None:
    """Trains the model of `run` in the folder `run.key` of `folder`, from its last checkpoint if there is one.

    Ends at once if the run is done.  However often it is interrupted, the records are those of a run that was not.
    """
    log, fabric = Log(folder / run.key), processes.join(accelerator)
    watcher = watcher if watcher is not None and fabric.is_global_zero else Watcher()
    data = {} if log.is_done else _data(run, fabric)  # before anything is written: it may be of no use
    with log.held() if fabric.is_global_zero else contextlib.nullcontext():
        if log.is_done:
            log.check(run)
            return
        if fabric.is_global_zero:
            log.begin(run)
        try:
            _train(run, data, log, watcher, fabric)
        except Diverged as reason:
            if fabric.is_global_zero:
                log.fail(str(reason))
            raise


def _data(run: Run[Any], fabric: Fabric) -> Mapping[str, Split]:
    """What is trained and tested on; `Mistake` where files are missing, or a batch is too small to be shared."""
    data: Mapping[str, Split] = run.task.data()
    batch = Order(len(data["train"]), run.optimizer.batch_size, run.seed).batch
    if batch < fabric.world_size:
        raise Mistake(
            f"batch_size is {batch}, and {fabric.world_size} processes share a batch; expected one example each."
        )
    return data


def _train(run: Run[Any], data: Mapping[str, Split], log: Log, watcher: Watcher, fabric: Fabric) -> None:
    state = State.begin(run, fabric)
    _restore(state, run, log, fabric)
    order = Order(len(data["train"]), run.optimizer.batch_size, run.seed, fabric.global_rank, fabric.world_size)
    watcher.on_start(run, state.step)
    while state.step < run.steps:
        take_step(state, run, data["train"][order.indices(state.step)], order.batch, fabric)
        watcher.on_step(state.step, state.losses[-1])
        if state.step % run.evaluate_every == 0 or state.step == run.steps:
            _record(state, run, data, log, watcher, fabric)
            _save(state, log, fabric)
        elif fabric.world_size == 1 and state.cost.seconds - state.saved_at > SAVE_EVERY:
            _save(state, log, fabric)
    if fabric.is_global_zero:
        log.finish(draw(run, processes.on_cpu(state.model), data))


def take_step(state: State, run: Run[Any], batch: Any, count: int, fabric: Fabric) -> None:
    """Moves the parameters once, by the examples of a batch of `count` that this process has."""
    batch = processes.on_device(batch, fabric)
    with state.cost:
        state.noise.step = state.step
        scale_rates(state.optimizer, run.optimizer.factor(state.step, run.steps))
        try:
            losses = state.shared.loss(batch, batch.y)
        except ValueError:  # structures refuse scores that are no numbers
            _check_finite(state)
            raise
        # Processes take the mean of their gradients; that of their sums is asked for.
        loss = fabric.world_size * run.task.total(losses, count)
        state.optimizer.zero_grad()
        fabric.backward(loss)
        if run.optimizer.clip > 0:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), run.optimizer.clip)
        state.optimizer.step()
    state.step += 1
    state.losses.append(loss.detach())


def _record(state: State, run: Run[Any], data: Mapping[str, Split], log: Log, watcher: Watcher, fabric: Fabric) -> None:
    """Evaluates the model, and writes what was found beside the loss and the cost of training."""
    loss = processes.mean(state.losses, fabric)
    _check_finite(state, loss)
    state.losses.clear()
    if fabric.is_global_zero:
        record = evaluate(run, processes.on_cpu(state.model), data)
        decodings = state.cost.decodings / state.step
        record |= {"step": state.step, "loss": loss, "seconds": state.cost.seconds, "decodings": decodings}
        log.write(record)
        watcher.on_record(record)


def _check_finite(state: State, loss: float = 0.0) -> None:
    if not math.isfinite(loss) or not all(bool(part.isfinite().all()) for part in state.model.parameters()):
        raise Diverged(f"parameters are no longer finite numbers at step {state.step}")


def _save(state: State, log: Log, fabric: Fabric) -> None:
    checkpoint = state.save(fabric)  # every process has a part in it
    if fabric.is_global_zero:
        log.save(checkpoint)


def _restore(state: State, run: Run[Any], log: Log, fabric: Fabric) -> None:
    """Goes on from the last checkpoint, if there is one."""
    checkpoint = log.checkpoint(run.evaluate_every, fabric.is_global_zero)
    if checkpoint is not None:
        try:
            state.restore(checkpoint, fabric)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:  # that of another version, perhaps
            raise log.cannot_go_on() from error

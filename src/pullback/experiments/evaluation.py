"""Looks at a model that is being trained, which leave it as it was: measures, gradients, pictures."""

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pullback.experiments.records import Record
from pullback.experiments.run import Run
from pullback.experiments.task import DecodesLabel, Labelled, Model, Picture, Split, batch_of

PROBE = 64  # examples of training whose gradients are recorded


def evaluate(run: Run[Any], model: Model, data: Mapping[str, Split]) -> Record:
    """Measures on validation and test data, and what the estimator's gradient is like on a few examples of training."""
    with aside(run, model):
        found: Record = {"validation": run.task.measures(model, data["validation"])}
        same = data["test"] is data["validation"]
        found["test"] = found["validation"] if same else run.task.measures(model, data["test"])
    if not isinstance(model.estimator, Labelled):
        with aside(run, model):
            found["gradient"] = probe(model, batch_of(data["train"], PROBE))
    return found


def probe(model: Model, batch: Any) -> dict[str, float]:
    """What `estimator.inspect` says of a batch, as numbers; on a copy, since an estimator may remember what it saw."""
    copied = copy.deepcopy(model).train()
    scores = copied.encoder(batch).detach()
    inspection = copied.estimator.inspect(
        copied.structure_of(batch), scores, lambda point: copied.criterion(copied.decoder(batch, point), batch.y)
    )
    return {name: number for name, number in inspection.scalars().items() if math.isfinite(number)}


def draw(run: Run[Any], model: Model, data: Mapping[str, Split]) -> list[Picture]:
    """What the model has learned, on test data."""
    with aside(run, model):
        pictures: list[Picture] = run.task.pictures(model, data["test"])
    return pictures


@contextlib.contextmanager
def aside(run: Run[Any], model: Model) -> Iterator[None]:
    """A look at the model that leaves it and the random numbers of training as they were.

    A yardstick that decodes from random structures gets others in every run; all else is measured with the same draws.
    """
    was_training = model.training
    model.eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(run.seed if isinstance(model.estimator, DecodesLabel) else 0)
        yield
    model.train(was_training)

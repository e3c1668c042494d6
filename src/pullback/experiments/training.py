"""One training run, from settings to records."""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from sklearn.metrics import v_measure_score

import pullback as pb
from pullback.experiments.settings import Settings
from pullback.experiments.tasks import clusters

Record = dict[str, Any]


def train(settings: Settings, on_step: Callable[[], None] = lambda: None) -> Iterator[Record]:
    """Trains a model and yields a record at every evaluation; `on_step` is called after each step."""
    training, validation, test = clusters.make_data(settings.clusters, settings.features, settings.data_seed)
    torch.manual_seed(settings.seed)
    estimator = make_estimator(settings)
    model = clusters.make_model(settings.clusters, settings.features, estimator)
    optimizer = torch.optim.Adam(model.parameters(), settings.learning_rate)
    started, seconds = time.perf_counter(), 0.0
    calls = _count_evaluations(model.get_submodule("decoder"))
    for step in range(1, settings.steps + 1):
        loss = model.loss(training.x, training.y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        on_step()
        if step % settings.evaluate_every == 0 or step == settings.steps:
            seconds += time.perf_counter() - started
            yield {
                **asdict(settings),
                "version": pb.__version__,
                "step": step,
                "train_loss": loss.item(),
                "seconds": seconds,
                "evaluations": calls() / step,
                **{f"validation_{name}": value for name, value in evaluate(model, validation).items()},
                **{f"test_{name}": value for name, value in evaluate(model, test).items()},
            }
            started = time.perf_counter()


def make_estimator(settings: Settings) -> pb.Estimator:
    """The estimator of a run, given those settings that it has."""
    parameters = inspect.signature(pb.CATALOG[settings.estimator].make).parameters
    options = {"step_size": settings.step_size, "steps": settings.pull_steps}
    return pb.get_estimator(settings.estimator, **{name: options[name] for name in options if name in parameters})


@torch.no_grad()
def evaluate(model: pb.LatentStructureModel, split: clusters.Split) -> dict[str, float]:
    """Accuracy with the argmax, accuracy with the point of training, and how well the clusters were found."""
    model.eval()
    argmax = model(split.x).argmax(-1)
    measures = {
        "accuracy": _share(argmax == split.y),
        "v_measure": float(v_measure_score(split.z.numpy(), model.latent(split.x).argmax(-1).numpy())),
    }
    if isinstance(model.estimator, pb.Relaxation) and model.estimator.decodes_from is None:
        point = model.estimator(model.structure_of(split.x), model.encoder(split.x))
        measures["relaxed_accuracy"] = _share(model.decoder(split.x, point).argmax(-1) == split.y)
    model.train()
    return measures


def _share(true: torch.Tensor) -> float:
    return float(true.float().mean())


def _count_evaluations(decoder: torch.nn.Module) -> Callable[[], int]:
    """How often the decoder has run in training mode."""
    calls = 0

    def count(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        nonlocal calls
        calls += module.training

    decoder.register_forward_hook(count)
    return lambda: calls

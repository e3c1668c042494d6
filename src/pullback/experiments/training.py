"""One training run, from a value to a folder of records."""

import contextlib
import copy
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from pullback.experiments.estimators import make_estimator
from pullback.experiments.mistakes import Mistake
from pullback.experiments.records import Log, Record
from pullback.experiments.run import Optimizer, Run
from pullback.experiments.task import Informed, Model, Split, batch_of

PROBE = 64  # examples of training whose gradients are recorded
SAVE_EVERY = 60.0  # seconds, where evaluations are further apart than that


class Diverged(Exception):
    """The model is no longer made of numbers."""


class Watcher:
    """What someone who looks on is told; does nothing by itself."""

    def on_start(self, run: Run[Any], step: int) -> None:
        """The run begins after `step` steps that were taken before."""

    def on_step(self, step: int, loss: Tensor) -> None:
        """A step was taken."""

    def on_record(self, record: Record) -> None:
        """The model was evaluated."""


@dataclass
class Together(Watcher):
    """Several who look on."""

    watchers: Sequence[Watcher]

    def on_start(self, run: Run[Any], step: int) -> None:
        for watcher in self.watchers:
            watcher.on_start(run, step)

    def on_step(self, step: int, loss: Tensor) -> None:
        for watcher in self.watchers:
            watcher.on_step(step, loss)

    def on_record(self, record: Record) -> None:
        for watcher in self.watchers:
            watcher.on_record(record)


def train(run: Run[Any], folder: Path, watcher: Watcher | None = None, accelerator: str = "cpu") -> None:
    """Trains the model of `run` in the folder `run.key` of `folder`, from its last checkpoint if there is one.

    Ends at once if the run is done.  However often it is interrupted, the records are those of a run that was not.
    """
    log, fabric = Log(folder / run.key), _fabric(accelerator)
    watcher = watcher if watcher is not None and fabric.is_global_zero else Watcher()
    data = {} if log.is_done else run.task.data()  # before anything is written: files may be missing
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


def _train(run: Run[Any], data: Mapping[str, Split], log: Log, watcher: Watcher, fabric: Fabric) -> None:
    task = run.task
    torch.manual_seed(run.seed)
    noise = FallingNoise(run)
    model = task.model(make_estimator(task, run.estimator, dict(run.options), noise if run.noise_until else run.noise))
    cost = Cost(model)
    optimizer = make_optimizer(run.optimizer, model, is_frozen=run.estimator == "frozen")
    wrapped, optimizer = fabric.setup(model, optimizer)
    wrapped.mark_forward_method("loss")
    order = Order(len(data["train"]), run.optimizer.batch_size, run.seed, fabric.global_rank, fabric.world_size)
    step = 0
    losses: list[Tensor] = []

    torch.manual_seed(run.seed + 1_000_003 * fabric.global_rank)  # processes draw samples and noise of their own
    found = log.checkpoint(run.evaluate_every, fabric.is_global_zero)
    if found is not None:
        try:
            model.load_state_dict(found["model"])
            optimizer.load_state_dict(found["optimizer"])
            step, cost.seconds, cost.decodings = found["step"], found["seconds"], found["decodings"]
            losses = [torch.tensor(loss) for loss in found["losses"]]
            _restore_random(found["random"], fabric)
        except (RuntimeError, ValueError, KeyError, TypeError) as error:  # that of another version, perhaps
            raise log.cannot_go_on() from error

    saved_at = cost.seconds

    def save() -> None:
        nonlocal saved_at
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,  # says the position in the data too: see Order
            "seconds": cost.seconds,
            "decodings": cost.decodings,
            "losses": [float(loss) for loss in losses],
            "random": _random(fabric),
        }
        if fabric.is_global_zero:
            log.save(checkpoint)
        saved_at = cost.seconds

    watcher.on_start(run, step)
    model.train()
    while step < run.steps:
        batch = _on(fabric.device, data["train"][order.indices(step)])
        with cost:
            noise.step = step
            factor = run.optimizer.factor(step, run.steps)
            for group in optimizer.param_groups:
                group["lr"] = factor * group["full_lr"]
            try:
                # Processes take the mean of their gradients; that of their sums is asked for.
                loss = fabric.world_size * task.total(wrapped.loss(batch, batch.y), order.batch)
            except ValueError as error:
                if _is_finite(model):
                    raise
                raise Diverged(f"parameters are no longer finite numbers at step {step}") from error
            optimizer.zero_grad()
            fabric.backward(loss)
            if run.optimizer.clip > 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
            optimizer.step()
        step += 1
        losses.append(loss.detach())
        watcher.on_step(step, losses[-1])
        if step % run.evaluate_every == 0 or step == run.steps:
            mean = _mean(losses, fabric)
            if not math.isfinite(mean) or not _is_finite(model):
                raise Diverged(f"parameters are no longer finite numbers at step {step}")
            losses.clear()
            if fabric.is_global_zero:
                record = evaluate(run, _on_cpu(model), data)
                record |= {"step": step, "loss": mean, "seconds": cost.seconds, "decodings": cost.decodings / step}
                log.write(record)
                watcher.on_record(record)
            save()
        elif fabric.world_size == 1 and cost.seconds - saved_at > SAVE_EVERY:
            save()
    if fabric.is_global_zero:
        shown = _on_cpu(model)
        with _aside(shown):
            log.finish(task.pictures(shown, data["test"]))


def _mean(losses: list[Tensor], fabric: Fabric) -> float:
    """The mean of losses, over the processes too."""
    found = fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean")
    return float(cast(Tensor, found))


def evaluate(run: Run[Any], model: Model, data: Mapping[str, Split]) -> Record:
    """Measures on validation and test data, and what the estimator's gradient is like on a few examples of training."""
    with _aside(model):
        found: Record = {"validation": run.task.measures(model, data["validation"])}
        same = data["test"] is data["validation"]
        found["test"] = found["validation"] if same else run.task.measures(model, data["test"])
    if not isinstance(model.estimator, Informed):
        with _aside(model):
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


@contextlib.contextmanager
def _aside(model: Model) -> Iterator[None]:
    """A look at the model that leaves it and the random numbers of training as they were."""
    was_training = model.training
    model.eval()
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        yield
    model.train(was_training)


class FallingNoise:
    """The scale of noise in a run, by the number of steps that were taken."""

    def __init__(self, run: Run[Any]) -> None:
        self.run, self.step = run, 0

    def __call__(self) -> float:
        return self.run.noise_at(self.step)


class Order:
    """In which order the examples come: a new permutation in every pass, known from the seed and the step alone.

    Several processes share each batch.
    """

    def __init__(self, size: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        self.size, self.batch = size, min(batch_size or size, size)
        self.seed, self.rank, self.processes = seed, rank, processes
        self._pass, self._permutation = -1, torch.empty(0)

    def indices(self, step: int) -> Tensor:
        """The examples of the step after `step` steps; all of them in their own order if the batch is everything."""
        if self.batch == self.size:
            return torch.arange(self.size)[self.rank :: self.processes]
        number, position = divmod(step, self.size // self.batch)
        if number != self._pass:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + number)
            self._pass, self._permutation = number, torch.randperm(self.size, generator=generator)
        return self._permutation[position * self.batch :][: self.batch][self.rank :: self.processes]


class Cost:
    """Seconds and runs of the decoder in training steps, without evaluations.

    Seconds are those of the processor, so that other work on the machine does not count.  Those of a
    process's first step do not count either: kernels may be compiled in it.
    """

    def __init__(self, model: Model) -> None:
        self.seconds, self.decodings, self._is_running, self._is_first = 0.0, 0, False, True
        model.get_submodule("decoder").register_forward_hook(self._count)

    def __enter__(self) -> None:
        self._is_running, self._started = True, time.process_time()

    def __exit__(self, *error: object) -> None:
        self._is_running = False
        self.seconds += 0.0 if self._is_first else time.process_time() - self._started
        self._is_first = False

    def _count(self, module: torch.nn.Module, inputs: Any, output: Any) -> None:
        self.decodings += self._is_running


def make_optimizer(settings: Optimizer, model: Model, is_frozen: bool = False) -> torch.optim.Optimizer:
    """The optimizer, with a learning rate for the encoder and one for everything else.

    An encoder that `is_frozen` gets no gradient, and does not decay either.
    """
    inside = {id(parameter) for parameter in model.get_submodule("encoder").parameters()}
    parts: dict[bool, list[Tensor]] = {True: [], False: []}
    for parameter in model.parameters():
        parts[id(parameter) in inside].append(parameter)
    rates = {True: settings.encoder_learning_rate or settings.learning_rate, False: settings.learning_rate}
    groups = [{"params": parts[which], "lr": rates[which], "full_lr": rates[which]} for which in parts if parts[which]]
    if is_frozen:
        groups[0]["weight_decay"] = 0.0
    makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": lambda groups: torch.optim.Adam(groups, fused=True),
        "adamw": lambda groups: torch.optim.AdamW(groups, fused=True),
        "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9),
    }
    return makers[settings.algorithm](groups)


def _fabric(accelerator: str) -> Fabric:
    """One process, or those that torchrun has started."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    strategy = "ddp_find_unused_parameters_true" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto"
    try:
        fabric = Fabric(accelerator=accelerator, devices=processes, strategy=strategy)
    except RuntimeError as error:
        raise Mistake(f"--accelerator {accelerator} cannot be used here: {str(error).splitlines()[0]}") from error
    fabric.launch()
    return fabric


def _is_finite(model: Model) -> bool:
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def _on_cpu(model: Model) -> Model:
    """The model, or a copy of it where it is on a GPU: data are read, measured and drawn on the processor."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    return model if on_cpu else copy.deepcopy(model).cpu()


def _on(device: torch.device, batch: Any) -> Any:
    return batch if device.type == "cpu" else batch.to(device)


def _random(fabric: Fabric) -> dict[str, list[Tensor]]:
    """The random states of every process."""
    on_gpu = fabric.device.type == "cuda"
    states = {"cpu": torch.get_rng_state()} | ({"cuda": torch.cuda.get_rng_state(fabric.device)} if on_gpu else {})
    if fabric.world_size == 1:
        return {name: [state] for name, state in states.items()}
    gathered: Any = fabric.all_gather(states)
    return {name: list(states.cpu()) for name, states in gathered.items()}


def _restore_random(states: dict[str, list[Tensor]], fabric: Fabric) -> None:
    rank = fabric.global_rank if len(states["cpu"]) == fabric.world_size else 0
    torch.set_rng_state(states["cpu"][rank])
    if fabric.device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"][rank], fabric.device)

"""Everything that changes while a run is trained."""

from dataclasses import dataclass, field
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from pullback.experiments import processes
from pullback.experiments.cost import Cost
from pullback.experiments.optimizers import make_optimizer
from pullback.experiments.rows import make_estimator
from pullback.experiments.run import Run
from pullback.experiments.task import Model


class FallingNoise:
    """The scale of noise in a run, by the number of steps that were taken."""

    def __init__(self, run: Run[Any]) -> None:
        self.run, self.step = run, 0

    def __call__(self) -> float:
        return self.run.noise_at(self.step)


@dataclass
class State:
    """How far a run is.  Restored from what it saved, it goes on as if nothing had happened.

    model: what is trained; `shared` is the same model, whose gradients are the mean over all processes.
    step: how many steps were taken; says the position in the data too, see `Order`.
    losses: of the steps since the last record.
    saved_at: the seconds of training at the last checkpoint.
    """

    model: Model
    shared: Any
    optimizer: Any
    noise: FallingNoise
    cost: Cost
    step: int = 0
    losses: list[Tensor] = field(default_factory=list)
    saved_at: float = 0.0

    @staticmethod
    def begin(run: Run[Any], fabric: Fabric) -> "State":
        """The state before the first step."""
        torch.manual_seed(run.seed)
        noise = FallingNoise(run)
        scale = noise if run.noise_until else run.noise
        model = run.task.model(make_estimator(run.task, run.estimator, dict(run.options), scale))
        cost = Cost(model)
        optimizer = make_optimizer(run.optimizer, model, is_frozen=run.estimator == "frozen")
        shared, optimizer = fabric.setup(model, optimizer)
        shared.mark_forward_method("loss")
        torch.manual_seed(run.seed + 1_000_003 * fabric.global_rank)  # processes draw samples and noise of their own
        return State(model.train(), shared, optimizer, noise, cost)

    def save(self, fabric: Fabric) -> dict[str, Any]:
        """The state as a checkpoint has it."""
        self.saved_at = self.cost.seconds
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "seconds": self.cost.seconds,
            "decodings": self.cost.decodings,
            "losses": [float(loss) for loss in self.losses],
            "random": processes.random_states(fabric),
        }

    def restore(self, saved: dict[str, Any], fabric: Fabric) -> None:
        """Goes back to a state that was saved."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step, self.cost.decodings = saved["step"], saved["decodings"]
        self.cost.seconds = self.saved_at = saved["seconds"]
        self.losses = [torch.tensor(loss) for loss in saved["losses"]]
        processes.restore_random_states(saved["random"], fabric)

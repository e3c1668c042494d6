"""The processes that train one model together, and the devices they are on: what the training loop asks of Fabric."""

import copy
import os
from typing import Any, cast

import torch
from lightning_fabric import Fabric
from torch import Tensor

from pullback.experiments.mistakes import Mistake
from pullback.experiments.task import Model


def join(accelerator: str) -> Fabric:
    """This process alone, or among those that torchrun has started."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    strategy = "ddp_find_unused_parameters_true" if int(os.environ.get("WORLD_SIZE", "1")) > 1 else "auto"
    try:
        fabric = Fabric(accelerator=accelerator, devices=processes, strategy=strategy)
    except RuntimeError as error:
        raise Mistake(f"--accelerator {accelerator} cannot be used here: {str(error).splitlines()[0]}") from error
    fabric.launch()
    return fabric


def mean(losses: list[Tensor], fabric: Fabric) -> float:
    """The mean of losses, over the processes too."""
    found = fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean")
    return float(cast(Tensor, found))


def random_states(fabric: Fabric) -> dict[str, list[Tensor]]:
    """The random states of every process."""
    on_gpu = fabric.device.type == "cuda"
    states = {"cpu": torch.get_rng_state()} | ({"cuda": torch.cuda.get_rng_state(fabric.device)} if on_gpu else {})
    if fabric.world_size == 1:
        return {name: [state] for name, state in states.items()}
    gathered: Any = fabric.all_gather(states)
    return {name: list(states.cpu()) for name, states in gathered.items()}


def restore_random_states(states: dict[str, list[Tensor]], fabric: Fabric) -> None:
    """Sets the random state of this process to what it was among `states`."""
    rank = fabric.global_rank if len(states["cpu"]) == fabric.world_size else 0
    torch.set_rng_state(states["cpu"][rank])
    if fabric.device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"][rank], fabric.device)


def on_device(batch: Any, fabric: Fabric) -> Any:
    """A batch, where this process trains."""
    return batch if fabric.device.type == "cpu" else batch.to(fabric.device)


def on_cpu(model: Model) -> Model:
    """The model, or a copy of it where it is on a GPU: data are read, measured and drawn on the processor."""
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    return model if on_cpu else copy.deepcopy(model).cpu()

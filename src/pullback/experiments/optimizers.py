"""Optimizers of torch, made from the settings of a run."""

from collections.abc import Callable

import torch
from torch import Tensor

from pullback.experiments.run import Optimizer
from pullback.experiments.task import Model


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


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Sets every learning rate to `factor` times that of the settings."""
    for group in optimizer.param_groups:
        group["lr"] = factor * group["full_lr"]

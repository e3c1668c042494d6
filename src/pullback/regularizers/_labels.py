"""Labels as users give them: points of the polytope, up to rounding."""

import torch
from torch import Tensor

from pullback.operators._check import check
from pullback.structures._structure import Structure


def inside(who: str, structure: Structure, target: Tensor) -> Tensor:
    """`target` as a point of the polytope, its padding zero; raises where it is none, in the name of `who`."""
    if not target.is_floating_point():
        target = target.to(torch.get_default_dtype())
    allowed = structure.allowed(target.shape, target.device)
    label = target if allowed is None else target.masked_fill(~allowed, 0)
    given = label.detach()
    precise = given.to(torch.promote_types(given.dtype, torch.float32))
    rounding = torch.finfo(given.dtype).eps
    slack = max(1e-4, 10 * rounding)
    if structure.is_zero_one:
        between = ((given >= -slack) & (given <= 1 + slack)).flatten(-structure.event_dims).all(-1)
        check(between, f"{who}: the target of example {{example}} is not between 0 and 1; expected a point.")
    if not torch.compiler.is_compiling() and bool(structure.contains(precise).all()):
        return label
    nearest = structure.project(precise)
    distance = (nearest - precise).abs().flatten(-structure.event_dims).amax(-1)
    _check_distance(who, distance, slack)
    beside = structure.widen(distance > max(1e-7, rounding))
    return label + (nearest - precise).masked_fill(~beside, 0).to(label.dtype)


def check_shape(who: str, target: Tensor, scores: Tensor) -> None:
    """A label is shaped like the scores."""
    if target.shape != scores.shape:
        raise ValueError(
            f"{who}: target has shape {tuple(target.shape)}; expected the shape of the scores, {tuple(scores.shape)}."
        )


def _check_distance(who: str, distance: Tensor, slack: float) -> None:
    """Raises for the first example whose target is further than `slack` from the polytope."""
    message = f"{who}: the target of example {{example}} lies outside the polytope"
    if torch.compiler.is_compiling():
        check(distance <= slack, f"{message}; expected a point of it.")
    elif distance.numel() and not bool((distance <= slack).all()):
        first = (~(distance <= slack)).nonzero()[0].tolist()
        off = float(distance[tuple(first)])
        raise ValueError(f"{message.format(example=first)}, {off:.2g} away from it; expected at most {slack:.2g}.")

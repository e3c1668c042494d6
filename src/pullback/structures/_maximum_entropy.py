"""The largest entropy of a distribution over vertices with a given mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from pullback.structures._capabilities import LogLinear

_ROUNDS, _HALVINGS, _CG_STEPS, _RESIDUAL = 60, 30, 200, 1e-11


def maximum_entropy(structure: LogLinear, mean: Tensor) -> tuple[Tensor, Tensor]:
    """min A(θ) − ⟨θ, μ⟩ over scores θ, with A the log-partition function: the minimum, one per example, and θ.

    `mean` is a point of the polytope in float64.  Newton's method with conjugate gradients.  A part that the mean does
    not use gets the score −∞.  Where the mean lies on another face of the polytope the minimum is only approached; each
    step then divides what is missing by e.
    """
    event_dims, forbidden = structure.event_dims, mean == 0
    theta = torch.zeros_like(mean).masked_fill(forbidden, -torch.inf)
    if mean.numel() == 0:
        return mean.new_zeros(mean.shape[: mean.dim() - event_dims]), theta

    def dot(a: Tensor, b: Tensor) -> Tensor:
        product = structure.count_once(a.masked_fill(forbidden, 0) * b).flatten(-event_dims).sum(-1)
        return product.reshape(product.shape + (1,) * event_dims)

    def objective(theta: Tensor) -> Tensor:
        return structure.log_partition(theta).reshape(dot(mean, mean).shape) - dot(theta, mean)

    for _ in range(_ROUNDS):
        with torch.enable_grad():
            leaf = theta.clone().requires_grad_()
            (slope,) = torch.autograd.grad(structure.log_partition(leaf).sum(), leaf, create_graph=True)
            marginals = structure.gradient_of_parts(slope)
        residual = (mean - marginals.detach()).masked_fill(forbidden, 0)
        if residual.abs().amax() <= _RESIDUAL:
            break
        direction = _conjugate_gradients(leaf, marginals, residual, forbidden, dot)
        theta = _descend(objective, theta, direction, dot(residual, direction))
    with torch.no_grad():
        return objective(theta).flatten(-event_dims).squeeze(-1), theta


def _conjugate_gradients(
    leaf: Tensor, marginals: Tensor, residual: Tensor, forbidden: Tensor, dot: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Solves H d = residual, H the covariance of the vertices: singular, but consistent."""
    solution = torch.zeros_like(residual)
    rest, search = residual.clone(), residual.clone()
    size = dot(rest, rest)
    goal = 1e-12 * size
    for _ in range(_CG_STEPS):
        (image,) = torch.autograd.grad(marginals, leaf, search, retain_graph=True)
        curvature = dot(search, image)
        busy = (size > goal) & (curvature > 1e-14 * dot(search, search))
        if not busy.any():
            break
        step = torch.where(busy, size / curvature.where(busy, 1), 0)
        solution = solution + step * search
        rest = rest - step * image.masked_fill(forbidden, 0)
        smaller = dot(rest, rest)
        search = rest + torch.where(busy, smaller / size.where(busy, 1), 0) * search
        size = smaller
    return solution


def _descend(objective: Callable[[Tensor], Tensor], theta: Tensor, direction: Tensor, slope: Tensor) -> Tensor:
    """theta + t · direction for the largest t = 1, ½, ¼, … that lowers the objective, per example."""
    with torch.no_grad():
        start, step = objective(theta), torch.ones_like(slope)
        for _ in range(_HALVINGS):
            worse = objective(theta + step * direction) > start - 1e-4 * step * slope + 1e-12 * start.abs()
            if not worse.any():
                break
            step = torch.where(worse, step / 2, step)
        return theta + torch.where(worse, 0, step) * direction

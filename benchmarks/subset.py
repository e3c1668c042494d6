"""Subsets of bounded size: projection, best subset, marginals."""

from __future__ import annotations

from collections.abc import Iterator

import torch

import pullback as pb

from ._harness import OURS, Figure, absolute, agree, case, faster_than, take_turns

BATCH, ITEMS, K = 32, 1000, 50

# Seconds for the batch, as stored with the other figures of the peers: lp-sparsemap's budget factor, one thread.
LP_SPARSEMAP = {1.0: 28.9e-3, 0.1: 31.2e-3}


def random_scores(scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(BATCH, ITEMS, generator=torch.Generator().manual_seed(0))


def sorting(scores: torch.Tensor) -> torch.Tensor:
    """The projection on exactly K items by sorting the 2n breakpoints: what one writes in plain PyTorch.

    Σ clip(s − τ, 0, 1) is linear between breakpoints s and s − 1; find the piece that crosses K, and interpolate.
    """
    points = torch.cat([scores, scores - 1], -1).sort(-1).values  # (batch, 2n), ascending
    ordered = scores.sort(-1).values
    sums = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))

    def excess(level: torch.Tensor) -> torch.Tensor:
        """Σ max(s − level, 0) for every level."""
        below = torch.searchsorted(ordered, level)
        return (sums[..., -1:] - sums.gather(-1, below)) - (ITEMS - below) * level

    totals = excess(points) - excess(points + 1)  # descending from n to 0
    right = (totals > K).sum(-1, keepdim=True).clamp(1, 2 * ITEMS - 1)
    upper, lower = totals.gather(-1, right - 1), totals.gather(-1, right)
    left_point, right_point = points.gather(-1, right - 1), points.gather(-1, right)
    tau = left_point + (right_point - left_point) * (upper - K) / (upper - lower).clamp_min(1e-12)
    return (scores - tau).clamp(0, 1)


@case("subset.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """The projection on 50 of 1000 items, batch 32, float32: time per row, against sorting and lp-sparsemap."""
    for scale in (10.0, 1.0, 0.1, 0.01):
        scores, size = random_scores(scale), f"{BATCH} × {ITEMS}, k = {K}, scale {scale:g}"
        exactly, at_most = pb.Subset(K), pb.Subset.at_most(K)
        agree(exactly.sparsemap(scores.double()), sorting(scores.double()), "sparsemap", 1e-9)
        times = take_turns(
            {
                OURS: lambda: exactly.sparsemap(scores),
                "at most k": lambda: at_most.sparsemap(scores),
                "sorting": lambda: sorting(scores),
            }
        )
        yield absolute(times, size=size, at_most=10e-6, per=BATCH, unit="s/row", note=_stored(scale))
        yield faster_than(times, "sorting", size=size)
        bounded = times.median("at most k")
        yield Figure(f"{size}, at most k", bounded / BATCH, "s/row", at_most=10e-6, times={OURS: bounded})


def _stored(scale: float) -> str:
    stored = LP_SPARSEMAP.get(scale)
    return f"lp-sparsemap, stored: {1e6 * stored / BATCH:.0f} µs/row" if stored else ""


@case("subset.sparsemap_backward")
def sparsemap_backward() -> Iterator[Figure]:
    """Forward and backward of the projection, batch 32, float32: time per row."""
    scores, cotangent = random_scores().requires_grad_(), random_scores(0.5)
    subset = pb.Subset(K)
    times = take_turns({OURS: lambda: torch.autograd.grad(subset.sparsemap(scores), scores, cotangent)})
    yield absolute(times, size=f"{BATCH} × {ITEMS}, k = {K}", per=BATCH, unit="s/row")


@case("subset.argmax")
def argmax() -> Iterator[Figure]:
    """The best 50 of 1000 items against torch.topk and a scatter."""
    scores, subset = random_scores(), pb.Subset(K)

    def topk() -> torch.Tensor:
        return torch.zeros_like(scores).scatter(-1, scores.topk(K, sorted=False).indices, 1.0)

    agree(subset.argmax(scores), topk(), "argmax", 0.0)
    times = take_turns({OURS: lambda: subset.argmax(scores), "topk": topk})
    yield faster_than(times, "topk", size=f"{BATCH} × {ITEMS}, k = {K}")


def recursion(scores: torch.Tensor) -> torch.Tensor:
    """The log-partition function in the log domain, one tensor operation per item: what one writes in plain PyTorch."""
    chart = torch.full((*scores.shape[:-1], K + 1), -torch.inf, dtype=scores.dtype)
    chart[..., 0] = 0
    for i in range(scores.shape[-1]):
        moved = torch.nn.functional.pad(chart[..., :-1] + scores[..., i, None], (1, 0), value=-torch.inf)
        chart = torch.logaddexp(chart, moved)
    return chart[..., K]


@case("subset.marginals")
def marginals() -> Iterator[Figure]:
    """Marginals of 50 of 1000 items, their backward, and the log-partition function against a recursion in torch."""
    scores, cotangent, subset = random_scores(), random_scores(0.5), pb.Subset(K)
    leaf, size = random_scores().requires_grad_(), f"{BATCH} × {ITEMS}, k = {K}"
    agree(subset.log_partition(scores), recursion(scores), "log_partition", 1e-4)
    times = take_turns({OURS: lambda: subset.log_partition(scores), "torch, value only": lambda: recursion(scores)})
    yield faster_than(times, "torch, value only", size=size)
    yield absolute(times, size=f"{size}, value and marginals", per=BATCH, unit="s/row")
    times = take_turns({OURS: lambda: torch.autograd.grad(subset.marginals(leaf), leaf, cotangent)})
    yield absolute(times, size=f"{size}, marginals and their backward", per=BATCH, unit="s/row")

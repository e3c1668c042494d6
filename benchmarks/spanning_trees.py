"""Spanning trees against SciPy's, the Laplacian in torch.linalg, and SparseMAP against the vertex active set."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import pullback as pb

from ._harness import OURS, Figure, absolute, agree, case, faster_than, optional, take_turns, with_gradient

SIZES = ((32, 10), (64, 25), (32, 50), (8, 100))  # graphs, nodes
SCALES = (10.0, 3.0, 1.0, 0.3, 0.1, 0.01)
SCIPY, LAPLACIAN, ACTIVE_SET = "SciPy", "torch.linalg", "active set"
TREES = pb.SpanningTree()


def random_scores(batch: int, n: int, scale: float = 1.0) -> Tensor:
    scores = scale * torch.randn(batch, n, n, generator=torch.Generator().manual_seed(n))
    return (scores + scores.mT) / 2**0.5


def size_of(batch: int, n: int) -> str:
    return f"{batch} × {n} nodes"


def best_by_scipy(scores: Tensor) -> Tensor:
    """SciPy's minimum spanning tree of each graph, upper halves alone; to SciPy a cost of zero is no edge."""
    find = optional("scipy.sparse.csgraph").minimum_spanning_tree
    costs = (scores.amax() + 1 - scores).triu(1).numpy()
    return torch.stack([torch.from_numpy(find(cost).toarray() != 0) for cost in costs])


def log_determinant(scores: Tensor) -> Tensor:
    """The matrix-tree theorem as one writes it in torch: log det of the Laplacian without a node."""
    weights = (scores - torch.diag_embed(torch.full(scores.shape[:-1], torch.inf))).exp()
    laplacian = torch.diag_embed(weights.sum(-1)) - weights
    return torch.linalg.slogdet(laplacian[..., 1:, 1:]).logabsdet


@case("spanning_trees.argmax")
def argmax() -> Iterator[Figure]:
    """The best tree of each graph, against SciPy's."""
    for batch, n in SIZES:
        scores = random_scores(batch, n)
        theirs = (lambda: best_by_scipy(scores)) if optional("scipy.sparse.csgraph") else None
        if theirs:
            agree(TREES.argmax(scores).triu(), theirs().to(scores.dtype), "best tree")
        times = take_turns({OURS: lambda: TREES.argmax(scores), SCIPY: theirs})
        yield faster_than(times, SCIPY, at_least=5.0, size=size_of(batch, n))


@case("spanning_trees.log_partition")
def log_partition() -> Iterator[Figure]:
    """Log-partition and its gradient, against the determinant of the Laplacian in torch.

    With 10 nodes both are mostly what PyTorch needs to call operators and to go back through them.
    """
    for batch, n in SIZES:
        scores = random_scores(batch, n).requires_grad_()
        agree(TREES.log_partition(scores), log_determinant(scores), "log-partition", 1e-3)
        for what in ("forward", "with gradient"):
            ours, theirs = (
                (lambda f=f: f(scores.detach()))
                if what == "forward"
                else (lambda f=f: with_gradient(lambda: f(scores), scores))
                for f in (TREES.log_partition, log_determinant)
            )
            times = take_turns({OURS: ours, LAPLACIAN: theirs})
            yield faster_than(times, LAPLACIAN, at_least=1.5, size=f"{what}, {size_of(batch, n)}")


@case("spanning_trees.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP, forward, from peaked to flat scores; at 25 nodes also against the vertex active set."""
    for batch, n in ((64, 25), (16, 50)):
        for scale in SCALES:
            scores = random_scores(batch, n, scale)
            few = scores[:2]
            agree(TREES.sparsemap(few), TREES.support(few).mean(), "sparsemap", 1e-4)
            ours, size = {OURS: lambda: TREES.sparsemap(scores)}, f"{size_of(batch, n)}, scale {scale:g}"
            yield absolute(take_turns(ours, rounds=(1, 10)), size=size, per=batch, unit="s/graph")
            if n == 25 and scale >= 0.3:
                times = take_turns({**ours, ACTIVE_SET: lambda: TREES.support(scores)}, rounds=(1, 5))
                yield faster_than(times, ACTIVE_SET, size=size)

"""Paths, segmentations and alignments against torch-struct, a loop in torch and the vertex active set."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import pullback as pb
from pullback.operators import segmentation as operators

from ._harness import OURS, Figure, absolute, agree, case, faster_than, optional, slower_than, take_turns, with_gradient

TORCH_STRUCT, ACTIVE_SET, LOOP = "torch-struct", "active set", "torch loop"
SCALES = (1000.0, 30.0, 1.0, 0.1, 0.0)


def random_scores(*shape: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(shape[1]))


def bounded(structure: pb.Structure, shape: tuple[int, ...], size: str) -> Iterator[Figure]:
    """SparseMAP at every scale, compared with that of scale 1."""
    unit = random_scores(*shape)
    for scale in SCALES:
        scores = scale * unit
        times = take_turns(
            {OURS: lambda: structure.sparsemap(scores), "scale 1": lambda: structure.sparsemap(unit)}, rounds=(2, 9)
        )
        note = f"{1e6 * times.median(OURS) / shape[0]:.0f} µs/example"
        yield slower_than(times, "scale 1", at_most=20.0, size=f"{size}, scale {scale:g}", note=note)


# ---- segmentations


def _semi_markov(scores: Tensor) -> Tensor | None:
    """The potentials of torch-struct, with transitions: (batch, n, w + 1, label, label before), none of width 0."""
    if not optional("torch_struct"):
        return None
    t = scores.shape[-1]
    wider = torch.nn.functional.pad(scores, (0, 0, 1, 0), value=-1e9)
    return wider.unsqueeze(-1).expand(*wider.shape, t).contiguous().requires_grad_()


@case("segmentation.sums")
def segmentation_sums() -> Iterator[Figure]:
    """Log-partition forward and backward against torch-struct, whose sum counts each label before the first."""
    for shape in ((16, 25, 4, 5), (16, 50, 6, 5)):
        scores, structure = random_scores(*shape).requires_grad_(), pb.Segmentation()
        potentials, theirs = _semi_markov(scores.detach()), None
        if potentials is not None:
            value = lambda: optional("torch_struct").SemiMarkovCRF(potentials).partition
            agree(structure.log_partition(scores), value() - torch.tensor(shape[3]).log(), "log_partition", 1e-3)
            theirs = lambda: with_gradient(value, potentials)
        ours = lambda: with_gradient(lambda: structure.log_partition(scores), scores)
        times = take_turns({OURS: ours, TORCH_STRUCT: theirs}, rounds=(3, 15))
        batch, n, w, t = shape
        yield faster_than(times, TORCH_STRUCT, at_least=20.0, size=f"{batch} × {n}, width {w}, {t} labels")


@case("segmentation.sparsemap")
def segmentation_sparsemap() -> Iterator[Figure]:
    """SparseMAP against the vertex active set, and its time from peaked to flat scores."""
    shape, structure = (16, 25, 4, 5), pb.Segmentation()
    start = torch.empty(16, 0, 25, dtype=torch.int32)
    for scale in (1.0, 0.1):
        scores = random_scores(*shape, scale=scale)
        active_set = lambda: operators.segmentations.mixture(scores, None, start, 1e-10, 10_000, 1000)[0]
        agree(structure.sparsemap(scores), active_set(), "sparsemap", 1e-4)
        times = take_turns({OURS: lambda: structure.sparsemap(scores), ACTIVE_SET: active_set}, rounds=(2, 9))
        target = 30.0 if scale == 0.1 else None
        yield faster_than(times, ACTIVE_SET, at_least=target, size=f"16 × 25, width 4, 5 labels, scale {scale:g}")
    yield from bounded(structure, shape, "16 × 25, width 4, 5 labels")


# ---- alignments


def _by_diagonals(scores: Tensor) -> Tensor:
    """The log-partition of global alignments, one anti-diagonal of cells after the other."""
    batch, n, m, _ = scores.shape
    none = -1e30
    place = (torch.arange(n)[:, None] + torch.arange(m))[None, :, :, None].expand(batch, n, m, 3)
    skewed = scores.new_full((batch, n, n + m - 1, 3), none).scatter(2, place, scores)  # cell (i, j) at (i, i + j)
    before = scores.new_full((batch, n), none)
    now = torch.cat([scores[:, 0, 0, :1], before[:, 1:]], 1)
    pad = scores.new_full((batch, 1), none)
    for d in range(1, n + m - 1):
        moves = torch.stack([torch.cat([pad, before[:, :-1]], 1), torch.cat([pad, now[:, :-1]], 1), now], -1)
        before, now = now, (moves + skewed[:, :, d]).logsumexp(-1)
    return now[:, -1]


@case("alignment.sums")
def alignment_sums() -> Iterator[Figure]:
    """Log-partition forward and backward against a loop over anti-diagonals in torch."""
    for batch, n, m in ((16, 25, 25), (16, 100, 100)):
        scores, structure = random_scores(batch, n, m, 3).requires_grad_(), pb.Alignment()
        agree(structure.log_partition(scores), _by_diagonals(scores), "log_partition", 1e-3)
        contenders = {
            OURS: lambda: with_gradient(lambda: structure.log_partition(scores), scores),
            LOOP: lambda: with_gradient(lambda: _by_diagonals(scores), scores),
        }
        times = take_turns(contenders, rounds=(3, 15))
        size = f"{batch} × {n} × {m}"
        yield faster_than(times, LOOP, at_least=5.0, size=size)
        yield absolute(times, at_most=0.6e-3 if n == 25 else None, size=size)


@case("alignment.sparsemap")
def alignment_sparsemap() -> Iterator[Figure]:
    """SparseMAP from peaked to flat scores, by flows, by the active set and by the interior."""
    yield from bounded(pb.Alignment(), (16, 25, 25, 3), "global, 16 × 25 × 25")
    yield from bounded(pb.Alignment(kind="dtw"), (16, 12, 12), "dtw, 16 × 12 × 12")
    yield from bounded(pb.Alignment(kind="dtw"), (2, 40, 40), "dtw, 2 × 40 × 40")
    yield from bounded(pb.Alignment(kind="monotonic"), (2, 30, 60), "monotonic, 2 × 30 × 60")
    yield from bounded(pb.Alignment(kind="monotonic"), (2, 60, 70), "monotonic, 2 × 60 × 70")
    yield from bounded(pb.Alignment(kind="local"), (2, 25, 25, 3), "local, 2 × 25 × 25")


# ---- paths


@case("path.operations")
def path_operations() -> Iterator[Figure]:
    """A grid given as a path, against the alignment that it is: the price of a graph for each example."""
    n, m = 25, 25
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    node = i * m + j + 1
    tails = torch.stack([node - m - 1, node - m, node - 1], -1)
    exists = torch.stack([(i > 0) & (j > 0), i > 0, j > 0], -1)
    edges = torch.stack([tails, node.unsqueeze(-1).expand_as(tails)], -1).masked_fill(~exists.unsqueeze(-1), -1)
    edges[0, 0, 0] = torch.tensor([0, 1])
    paths, scores = pb.Path(edges.reshape(-1, 2), 0, n * m), random_scores(16, n, m, 3)
    for name in ("argmax", "marginals", "sparsemap"):
        ours, theirs = getattr(paths, name), getattr(pb.Alignment(), name)
        agree(ours(scores.flatten(1)), theirs(scores).flatten(1), name)
        times = take_turns({OURS: lambda: ours(scores.flatten(1)), "Alignment": lambda: theirs(scores)}, rounds=(3, 15))
        yield slower_than(times, "Alignment", at_most=2.0, size=f"{name}, 16 × {len(edges.reshape(-1, 2))} edges")

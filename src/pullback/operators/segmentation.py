"""The operators of segmentations: scores (*batch, n, w, t), transitions (*batch, t, t) if there are any, lengths.

With transitions, all but the active set go through a graph in which a transition at each position is a part of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pullback import kernels
from pullback.operators._derivatives import projection_operator
from pullback.operators._family import family
from pullback.operators._flat import GAP_OF_INTERIOR, Flat
from pullback.operators._paths import Array, PathKernels, holds_bad_scores
from pullback.operators._threads import Kernel


def _segment(scores: Array, lengths: Array) -> tuple[Array, Array]:
    lattice: Any = kernels.paths.segmentations
    return lattice(*scores.shape[1:]), lengths


def graph_of(event: Sequence[int]) -> Tensor:
    """The graph of segmentations with parts of this shape, in which node i stands before position i."""
    lattice: Any = kernels.paths.segmentations
    return torch.from_numpy(lattice(*event)[0])


def _refusal(example: str, scores: Array, lengths: Any, *_: Any) -> str:
    n, w, _ = scores.shape
    ends = np.add.outer(np.arange(n), np.arange(w)) < lengths
    if holds_bad_scores(scores[ends]):
        return f"Segmentation: the scores of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Segmentation: {example} has no segmentation whose scores are all above -inf within its mask."


_KERNELS = PathKernels(_segment)
_INPUTS = "scores[n, w, t], lengths[] <= n"
_OPTIONS: dict[str, Any] = {
    "work": lambda scores, *_: 5.0 * scores[0].size,
    "refusal": _refusal,
    "structure": "Segmentation",
}

segmentations = family("segmentation", _INPUTS, "n, w, t", _KERNELS, is_lattice=True, **_OPTIONS)
sparsemap = projection_operator(
    f"segmentation_sparsemap({_INPUTS}) -> point[n, w, t]",
    _KERNELS.project,
    jacobian=_KERNELS.project_backward,
    keeps="lengths point",
    **{**_OPTIONS, "work": lambda scores, *_: 100.0 * scores[0].size},
)


# ---- with transitions


def _refuse_joined(example: str, scores: Array, transitions: Array, lengths: Any, *_: Any) -> str:
    n, w, _ = scores.shape
    ends = np.add.outer(np.arange(n), np.arange(w)) < lengths
    for name, given in (("scores", scores[ends]), ("transitions", transitions)):
        if holds_bad_scores(given):
            return f"Segmentation: the {name} of {example} contain NaN or +inf; expected numbers or -inf."
    return f"Segmentation: {example} has no segmentation that its scores, transitions and mask allow."


def _join(parts: Array, steps: Array) -> Array:
    """Numbers of segments and of transitions, the same at every position, as one for each part: (batch, parts)."""
    n = parts.shape[1]
    everywhere = np.broadcast_to(steps[:, None], (len(parts), n, *steps.shape[1:]))
    return np.concatenate([parts.reshape(len(parts), -1), everywhere.reshape(len(parts), -1)], 1)


def _part(joined: Array, parts: Array, steps: Array | None, lo: int, hi: int) -> None:
    """Writes numbers of parts where they belong; a transition's is the sum over all positions."""
    _, n, w, t = parts.shape
    parts[lo:hi] = joined[lo:hi, : n * w * t].reshape(-1, n, w, t)
    if steps is not None:
        steps[lo:hi] = joined[lo:hi, n * w * t :].reshape(-1, n, t, t).sum(1)


def _through(kernel: Kernel, given: tuple[Array, ...], parts: Array, steps: Array | None, lo: int, hi: int) -> int:
    """Runs a kernel of paths that finds one number for each part, and writes these where they belong."""
    found = np.empty_like(given[0])
    report = kernel(*given, found, lo, hi)
    _part(found, parts, steps, lo, hi)
    return report


class JoinedKernels:
    """The kernels of paths through the graph of segmentations and their transitions."""

    @staticmethod
    def read(scores: Array, transitions: Array, lengths: Array) -> tuple[Array, Array, Array]:
        lattice: Any = kernels.paths.joined_segmentations
        end: Any = kernels.paths.joined_end
        return _join(scores, transitions), lattice(*scores.shape[1:]), end(lengths, scores.shape[3])

    @classmethod
    def argmax(cls, scores: Array, transitions: Array, lengths: Array, vertex: Array, lo: int, hi: int) -> int:
        return _through(kernels.paths.argmax, cls.read(scores, transitions, lengths), vertex, None, lo, hi)

    @classmethod
    def max_marginals(cls, scores: Array, transitions: Array, lengths: Array, best: Array, lo: int, hi: int) -> int:
        return _through(kernels.paths.max_marginals, cls.read(scores, transitions, lengths), best, None, lo, hi)

    @classmethod
    def topk(cls, scores: Array, transitions: Array, lengths: Array, *rest: Any) -> int:
        k, vertices, size, lo, hi = rest
        given = cls.read(scores, transitions, lengths)
        found = np.zeros((len(scores), k, given[0].shape[1]), scores.dtype)
        report = kernels.paths.topk(*given, k, found, size, lo, hi)
        vertices[lo:hi] = found[lo:hi, :, : scores[0].size].reshape(-1, k, *scores.shape[1:])
        return report

    @classmethod
    def log_partition(cls, scores: Array, transitions: Array, lengths: Array, *rest: Any) -> int:
        return kernels.paths.log_partition(*cls.read(scores, transitions, lengths), *rest)

    @classmethod
    def partition(cls, scores: Array, transitions: Array, lengths: Array, *rest: Any) -> int:
        value, marginals, steps, lo, hi = rest
        given = *cls.read(scores, transitions, lengths), value
        return _through(kernels.paths.partition, given, marginals, steps, lo, hi)

    @classmethod
    def hessian_product(cls, scores: Array, transitions: Array, lengths: Array, *rest: Any) -> int:
        direction, along, product, product_steps, lo, hi = rest
        given = *cls.read(scores, transitions, lengths), _join(direction, along)
        return _through(kernels.paths.hessian_product, given, product, product_steps, lo, hi)

    @classmethod
    def sample(cls, scores: Array, transitions: Array, lengths: Array, *rest: Any) -> int:
        seeds, count, drawn, lo, hi = rest
        given = cls.read(scores, transitions, lengths)
        found = np.empty((len(scores), count, given[0].shape[1]), scores.dtype)
        report = kernels.paths.sample(*given, seeds, count, found, lo, hi)
        drawn[lo:hi] = found[lo:hi, :, : scores[0].size].reshape(hi - lo, count, *scores.shape[1:])
        return report

    @staticmethod
    def mixture(scores: Array, transitions: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        return kernels.segments.mixture(scores, numbers[0], (transitions,), *rest)

    @staticmethod
    def mixture_backward(scores: Array, transitions: Array, numbers: tuple[Any, ...], *rest: Any) -> int:
        return kernels.segments.mixture_backward(scores, numbers[0], (transitions,), *rest)

    @staticmethod
    def spread(share: float, parts: Array, product: Array) -> None:
        labels = parts % len(product)
        np.add.at(product, (labels[:-1], labels[1:]), share)


@dataclass(frozen=True, kw_only=True)
class SegmentationInterior(Flat):
    """What vertices take long for, by an interior-point method over the same graph."""

    def patience(self, lengths: Array, event: Sequence[int]) -> Array | None:
        """As many rounds as take the time of the interior, as measured."""
        _, w, t = event
        return (4 * lengths * math.sqrt(w * t)).astype(np.int64)

    def project(self, scores: Array, lengths: Array, numbers: Sequence[Any], point: Array, rest: Array) -> Array:
        joined, *graphs = JoinedKernels.read(_wide(scores), _wide(numbers[0]), lengths)
        nearest, left, gap = np.zeros(joined.shape), np.zeros(joined.shape), np.full(len(scores), np.inf)
        kernels.paths.approach(joined, *graphs, scores[0].size, GAP_OF_INTERIOR, nearest, left, gap, 0, len(scores))
        _part(nearest, point, None, 0, len(scores))
        _part(left, rest, None, 0, len(scores))
        solved: Array = gap < np.inf
        return solved

    def differentiate(self, rest: Array, lengths: Array, numbers: Sequence[Any], gradient: Array) -> tuple[Array, ...]:
        joined, *graphs = JoinedKernels.read(_wide(rest), _wide(numbers[0]), lengths)
        along, product = _join(_wide(gradient), np.zeros(numbers[0].shape)), np.zeros(joined.shape)
        kernels.paths.approach_backward(joined, *graphs, rest[0].size, along, product, 0, len(rest))
        products = np.empty(rest.shape), np.empty(numbers[0].shape)
        _part(product, *products, 0, len(rest))
        return products


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


def _work_of_joined(scores: Array, *_: Any) -> float:
    return 5.0 * float(scores[0].size) + 5.0 * float(scores.shape[1] * scores.shape[3] ** 2)


joined = family(
    "joined_segmentation",
    "scores[n, w, t], transitions[t, t], lengths[] <= n",
    "n, w, t",
    JoinedKernels,
    capacity="8 * n + 1",
    also="transitions",
    flat=SegmentationInterior(least=2, parts=math.inf, rounds=256),
    is_lattice=True,
    work=_work_of_joined,
    refusal=_refuse_joined,
    structure="Segmentation",
)

"""Segmentations: sequences cut into labelled segments."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pullback.operators import segmentation as operators
from pullback.operators import tagging
from pullback.operators._check import check
from pullback.operators._family import Family
from pullback.structures._capabilities import at_least_zero
from pullback.structures._checks import check_parts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._listed import Index, are_indices, list_parts, write_parts
from pullback.structures._paths import list_paths
from pullback.structures._tables import check_table, expected, fit_table


@dataclass(frozen=True, eq=False)
class Segmentation(CompiledLattice):
    """Sequences of n positions cut into labelled segments of at most w positions: semi-Markov models.

    Scores: (..., n, w, t); scores[..., i, k, label] is that of a segment which begins at position i, is k + 1 positions
    wide, and has one of t labels.  The segments of a vertex cover every position once.

    lengths: the number of positions of each example, n if not given;  segments that end beyond it are padding.
    mask: (..., n, w, t), true for segments that are allowed.
    transitions: (t, t) or (..., t, t); transitions[a, b] is added to the score where a segment labelled b follows one
    labelled a, and −∞ forbids it.  Gradients reach it through `log_partition`, `marginals`, `entropy`, `log_prob`,
    `sparsemap` and `support`.  Without it, labels follow each other freely.
    tolerance: the largest gap that `solve` and `support`, with transitions SparseMAP too, may stop at, see
    `Structure.tolerance`; None is exact.

    There are N(n) = t · (N(n − 1) + … + N(n − w)) of them, N(0) = 1.  Argmax, log-partition, marginals and a sample
    take O(n w t), and O(n t²) more with transitions.  SparseMAP is a projection onto flows, by Newton's method on its
    dual.  With transitions it is argmax ⟨s, μ⟩ + own_score(μ) − ½‖μ‖² with the norm of the segments alone, by the
    active-set method, and where that would take hundreds of rounds, by an interior-point method through the graph of
    segments and transitions.  `project` knows the forbidden transitions and not the scores of the others.  Reference:
    Sarawagi and Cohen (2004).
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    transitions: Tensor | None = None
    tolerance: float | None = None
    event_dims = 3

    def __post_init__(self) -> None:
        check_tolerance("Segmentation", self.tolerance)
        if self.transitions is not None:
            check_table("Segmentation", "transitions", self.transitions, 2)

    def sparsemap(self, scores: Tensor) -> Tensor:
        if self.transitions is not None:
            return super().sparsemap(scores)
        return operators.sparsemap(*self._prepare(scores))

    @property
    def _operators(self) -> Family:
        return operators.segmentations if self.transitions is None else operators.joined

    def _inputs(self, scores: Tensor) -> tuple[Any, ...]:
        if self.transitions is None:
            return super()._inputs(scores)
        scores, lengths = self._prepare(scores)
        return scores, self._table(scores), lengths

    def check_event(self, event: torch.Size) -> None:
        if self.transitions is not None and event[2] != self.transitions.shape[-1]:
            raise ValueError(
                f"Segmentation: scores have parts of shape {tuple(event)} and transitions "
                f"{tuple(self.transitions.shape)}; expected (..., n, w, {self.transitions.shape[-1]})."
            )

    # ---- scores of its own

    @property
    def has_own_scores(self) -> bool:  # type: ignore[override]
        return self.transitions is not None

    def own_score(self, point: Tensor) -> Tensor:
        """The transitions of each vertex; of a mixture the largest that an expected score can be.

        Differentiable in the transitions, not in `point`.
        """
        if self.transitions is None:
            return super().own_score(point)
        self._check_facts(point.shape)
        point = point.detach() if point.is_floating_point() else point.to(self.transitions.dtype)  # integers know no −∞
        _, (n, w, t) = self._split(point.shape)
        last = self._slots((n, w, t)).to(point.device)[..., 0].flatten()  # position of each (start, width)
        begun = point.sum(-2)[..., 1:, :]  # (..., n − 1, t)
        ended = torch.zeros_like(point.sum(-2)).index_add(-2, last, point.flatten(-3, -2))[..., :-1, :]
        ended = ended * (begun.sum(-1, keepdim=True) > 0)  # behind the last segment nothing begins
        transitions = self._table(point)
        check(
            (transitions < torch.inf).flatten(-2).all(-1),
            "Segmentation: the transitions of example {example} contain NaN or +inf; expected numbers or -inf.",
        )
        steps = transitions.unsqueeze(-3).expand(*begun.shape, t)
        table = torch.nn.functional.pad(steps, (0, 0, 0, 2))  # no scores of a start and an end
        return tagging.couple(torch.stack([ended, begun], -2), table, None)[0].sum(-1)

    def entropy(self, scores: Tensor) -> Tensor:
        if self.transitions is None:
            return super().entropy(scores)
        scores = self.restrict(scores)
        exact, transitions, lengths = self._inputs(self._without_offset(scores.double()))
        value, marginals, steps = operators.joined.partition(exact, transitions, lengths)
        entropy = value - expected(exact.flatten(-3), marginals.flatten(-3))
        entropy = entropy - expected(transitions.flatten(-2), steps.flatten(-2))
        return at_least_zero(entropy).to(scores.dtype)

    def project(self, point: Tensor) -> Tensor:
        if self.transitions is None:
            return super().project(point)
        forbidden = self.transitions.detach() == -torch.inf
        if not torch.compiler.is_compiling() and not forbidden.any():
            return replace(self, transitions=None).sparsemap(point)  # sooner
        allowing = torch.zeros_like(self.transitions).masked_fill(forbidden, -torch.inf)
        return replace(self, transitions=allowing).sparsemap(point)

    def contains(self, vertices: Tensor) -> Tensor:
        if self.transitions is None:
            return super().contains(vertices)
        whole = replace(self, transitions=None).contains(vertices)
        return whole & (self.own_score(vertices.masked_fill(~self.widen(whole), 0)) > -torch.inf)

    def _table(self, scores: Tensor) -> Tensor:
        """The transitions of each example: (*batch, t, t)."""
        batch, t = self.batch_shape(scores), scores.shape[-1]
        shape = torch.Size((*batch, t, t))
        return fit_table("Segmentation", "transitions", self.transitions, scores, shape).expand(shape)  # type: ignore

    # ---- what a segmentation is

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor | None:
        positions, widths = (torch.arange(size, device=device) for size in shape[-3:-1])
        ends = positions[:, None, None] + widths[:, None] + 1
        last = torch.tensor(shape[-3], device=device) if self.lengths is None else self.lengths.to(device)
        return self._with_mask(ends <= last[..., None, None, None], device)

    def _slots(self, event: Sequence[int]) -> Tensor:
        """The last position of a segment."""
        last = torch.arange(event[0])[:, None, None] + torch.arange(event[1])[:, None]
        return last.clamp_max(event[0] - 1).expand(*event)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        graph = operators.graph_of(event)
        listed = list_paths("Segmentation", graph, length[0], torch.Size(event).numel())
        return listed.reshape(-1, *event).to(torch.get_default_dtype())

    # ---- segments

    @staticmethod
    def segments(vertex: Tensor) -> list[Any]:
        """The segments (start, width, label) of a segmentation (n, w, t), in order; lists of them for a batch."""
        check_parts("Segmentation.segments", "vertex", vertex, "n, w, t")
        return list_parts(vertex, 3, lambda one: [(start, k + 1, label) for start, k, label in one.nonzero().tolist()])

    @staticmethod
    def vertex(segments: Sequence[Any] | Tensor, n: int, w: int, t: int) -> Tensor:
        """The segmentation (n, w, t) that has the segments (start, width, label); a batch from lists of them.

        They may come in any order.  Without any the sequence has no positions, and its row is zero.
        """

        def index_of(segment: Sequence[Any]) -> Index:
            if not are_indices(segment, (n, w + 1, t)) or segment[1] == 0 or segment[0] + segment[1] > n:
                raise ValueError(
                    f"Segmentation.vertex: a segment is {segment}; expected (start, width, label) within {n} "
                    f"positions, at most {w} wide, with a label below {t}."
                )
            start, width, label = segment
            return start, width - 1, label

        def check_cover(segments: Sequence[Any]) -> None:
            end = 0
            for start, width, _ in sorted(segments):
                if start != end:
                    raise ValueError(
                        f"Segmentation.vertex: the segments are {segments}, of which one begins at {start}; expected "
                        f"one at {end}, where those before it end: segments cover every position once."
                    )
                end = start + width

        return write_parts("Segmentation.vertex", segments, (n, w, t), index_of, check_cover)

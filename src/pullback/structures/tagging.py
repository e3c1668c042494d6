"""Taggings: sequences of tags with scores for each tag, whose transitions belong to the structure."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pullback.operators import tagging
from pullback.operators._family import Family
from pullback.structures._capabilities import at_least_zero, relative_to_best
from pullback.structures._checks import check_parts, check_tolerance
from pullback.structures._compiled import CompiledLattice
from pullback.structures._numbers import in_single
from pullback.structures._one_hot import chosen_index, one_hot
from pullback.structures._schemes import Scheme, bio, bioes
from pullback.structures._sequences import list_padded_sequences
from pullback.structures._tables import check_table, expected, fit_table


@dataclass(frozen=True, eq=False)
class Tagging(CompiledLattice):
    """Sequences of n tags out of t, as a CRF layer has them: scores of tags, and of transitions between neighbors.

    Scores: (..., n, t); a vertex is one-hot at each position.  The score of a sequence z is

        ⟨scores, z⟩ + start[z₀] + Σᵢ transitions[zᵢ₋₁, zᵢ] + end[zₙ₋₁]

    transitions: (t, t) or (..., t, t); transitions[a, b] is that of tag a at position i − 1 and tag b at i.
    lengths: the number of tags of each example, n if not given;  positions beyond it are padding.
    mask: (..., n, t), true for tags that are allowed; with it `log_partition` sums over the sequences that agree with
    what is known of the tags.
    start, end: (t,) or (..., t), scores of the first and the last tag, 0 if not given.
    tolerance: the largest gap that SparseMAP may stop at, see `Structure.tolerance`; None is exact.

    −∞ forbids a transition, a first or a last tag; `Tagging.bio` and `Tagging.bioes` make such tables.  Gradients reach
    transitions, start and end through `log_partition`, `marginals`, `entropy`, `log_prob`, `sparsemap` and `support`.

    There are tⁿ sequences.  Argmax (Viterbi), log-partition and marginals (forward–backward) take O(n t²).  SparseMAP,
    argmax ⟨s, μ⟩ + own_score(μ) − ½‖μ‖² with the norm of the tags alone, is found by the active-set method, and where
    scores are so flat that hundreds of sequences would mix, by an interior-point method in some dozen steps of O(n t³).
    `project` knows the forbidden transitions and not the scores of the others.

    >>> tags = Tagging(torch.tensor([[0.0, 2.0], [0.0, 0.0]]))        # tag 1 often follows tag 0
    >>> scores = torch.tensor([[0.0, 1.0], [0.0, 0.5], [0.7, 0.0]])
    >>> tags.argmax(scores)
    tensor([[1., 0.],
            [0., 1.],
            [1., 0.]])
    """

    transitions: Tensor
    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    start: Tensor | None = None
    end: Tensor | None = None
    tolerance: float | None = None
    event_dims = 2
    fixed_sums = (-1,)

    def __post_init__(self) -> None:
        check_tolerance("Tagging", self.tolerance)
        for name, dims in (("transitions", 2), ("start", 1), ("end", 1)):
            if getattr(self, name) is not None or name == "transitions":
                check_table("Tagging", name, getattr(self, name), dims)

    # ---- tables of transitions

    @staticmethod
    def bio(labels: Sequence[str]) -> Scheme:
        """The tags O, B-X, I-X of spans with these labels: an I-X follows B-X or I-X alone.

        Gives their names, and the transitions, start and end that allow nothing else, 0 or −∞: add scores to them.

        >>> names, transitions, start, end = Tagging.bio(["PER", "LOC"])
        >>> names
        ('O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC')
        >>> tags = Tagging(transitions, start=start, end=end)
        """
        return bio(labels)

    @staticmethod
    def bioes(labels: Sequence[str]) -> Scheme:
        """The tags O, B-X, I-X, E-X, S-X: a span is S-X, or B-X, any number of I-X, and E-X.  As `bio` has them."""
        return bioes(labels)

    # ---- operations that only taggings have

    def pair_marginals(self, scores: Tensor) -> Tensor:
        """The probability of each pair of neighbors, (..., n, t, t) by [i, tag at i − 1, tag at i] as in `Chain`.

        Of position 0 only the row 0 is used.  Differentiable.
        """
        scores, table, lengths = self._inputs(scores)
        transitions, start, end = table[..., None, :-2, :], table[..., None, -2:-1, :], table[..., None, -1:, :]
        first, last = (at[..., None, None] for at in self._ends(scores))
        pairs = scores.unsqueeze(-2) + torch.where(first, start, transitions) + torch.where(last, end, 0.0)
        return tagging.pairs(pairs, lengths)[1].to(scores.dtype)

    def log_partition(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        tables = self.transitions, self.start, self.end
        if tagging.is_one_step(scores, *tables):
            return tagging.shared_log_partition(scores, *tables, lengths)
        return self._sum(scores, self._table(scores), lengths)

    def entropy(self, scores: Tensor) -> Tensor:
        scores = self.restrict(scores)
        exact, table, lengths = self._inputs(self._without_offset(scores.double()))
        value, marginals, uses = tagging.sequences.partition(exact, table, lengths)
        entropy = value - expected(exact, marginals).sum(-1) - expected(table, uses).sum(-1)
        return at_least_zero(entropy).to(scores.dtype)

    # ---- scores of its own

    has_own_scores = True

    def own_score(self, point: Tensor) -> Tensor:
        """start, transitions and end of each vertex; of a mixture the largest that an expected score can be.

        Differentiable in start, transitions and end, not in `point`.
        """
        self._check_facts(point.shape)
        point = point if point.is_floating_point() else point.to(self.transitions.dtype)  # integers know no −∞
        exact = in_single(point.detach())
        return tagging.couple(exact, self._table(exact), self._lengths_of(exact))[0].to(point.dtype)

    def project(self, point: Tensor) -> Tensor:
        tables = {"transitions": self.transitions, "start": self.start, "end": self.end}
        allowing: dict[str, Any] = {
            name: None if table is None else torch.where(table == -torch.inf, table.detach(), 0.0)
            for name, table in tables.items()
        }
        return replace(self, **allowing).sparsemap(point)

    # ---- what a tagging is

    @property
    def _operators(self) -> Family:
        return tagging.sequences

    def check_event(self, event: torch.Size) -> None:
        t = self.transitions.shape[-1]
        if event[1] != t:
            raise ValueError(
                f"Tagging: scores have parts of shape {tuple(event)} and transitions {tuple(self.transitions.shape)}; "
                f"expected (..., n, {t})."
            )

    def contains(self, vertices: Tensor) -> Tensor:
        self.check_event(vertices.shape[-2:])
        allowed = self.allowed(vertices.shape, vertices.device)
        inside = vertices.new_ones((), dtype=torch.bool) if allowed is None else allowed
        used = vertices != 0
        length = vertices.shape[-2] if self.lengths is None else self.lengths.to(vertices.device).unsqueeze(-1)
        tagged = torch.arange(vertices.shape[-2], device=vertices.device) < length
        fits = ((vertices == 1) & inside | ~used).all(-1) & (used.sum(-1) == tagged)
        whole = fits.all(-1)
        clean = vertices.masked_fill(~self.widen(whole), 0)
        return whole & (self.own_score(clean) > -torch.inf)

    def _without_offset(self, scores: Tensor) -> Tensor:
        return relative_to_best(scores, -1)

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[0])[:, None].expand(*event)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        return self.one_hot(list_padded_sequences("Tagging", length[0], event[1], event[0]), event[1])

    # ---- tags

    @staticmethod
    def tags(vertices: Tensor) -> Tensor:
        """The tags (..., n) of sequences given as vertices (..., n, t); −1 for padding."""
        check_parts("Tagging.tags", "vertices", vertices, "n, t")
        return chosen_index(vertices)

    @staticmethod
    def one_hot(tags: Tensor, t: int) -> Tensor:
        """The vertices (..., n, t) of sequences given as tags (..., n) out of t; −1 is padding."""
        return one_hot("Tagging.one_hot", "tags", tags, t)

    # ---- plumbing

    def _inputs(self, scores: Tensor) -> tuple[Any, ...]:
        scores, lengths = self._prepare(scores)
        return scores, self._table(scores), lengths

    def _table(self, scores: Tensor) -> Tensor:
        """Transitions, start and end of each example in one, as the operators take them: (*batch, t + 2, t)."""
        batch, t = self.batch_shape(scores), scores.shape[-1]
        transitions = fit_table("Tagging", "transitions", self.transitions, scores, (*batch, t, t))
        start, end = (
            scores.new_zeros(1, t)
            if given is None
            else fit_table("Tagging", name, given, scores, (*batch, t)).unsqueeze(-2)
            for name, given in (("start", self.start), ("end", self.end))
        )
        if not transitions.dim() == start.dim() == end.dim() == 2:
            transitions, start, end = (given.expand(*batch, -1, t) for given in (transitions, start, end))
        return torch.cat((transitions, start, end), -2).expand(*batch, t + 2, t)

    def _ends(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Which position is the first, and which the last: (n,), or (*batch, n) where lengths differ."""
        positions = torch.arange(scores.shape[-2], device=scores.device)
        lengths = scores.shape[-2] if self.lengths is None else self.lengths.to(scores.device).unsqueeze(-1)
        return positions == 0, positions == lengths - 1

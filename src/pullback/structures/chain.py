"""Linear chains: sequences of tags whose neighbors score together."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pullback.operators import chain
from pullback.structures._slots import Slots
from pullback.structures._structure import Enumerable, KBest, LogLinear, draw

_MOST = 2**22


@dataclass(frozen=True, eq=False)
class Chain(Slots, LogLinear, KBest, Enumerable):
    """Sequences of n tags out of t.

    Scores: (..., n, t, t); scores[..., i, a, b] is that of tag a at position i − 1 and tag b at i.  Of position 0 only
    the row a = 0 is read, scores[..., 0, 0, b]; its other rows are exactly zero in every output and gradient.

    lengths: the number of tags of each example, n if not given;  positions beyond it are padding.
    mask: (..., n, t, t), true for pairs of tags that are allowed.

    There are tⁿ sequences.  Argmax (Viterbi), log-partition and marginals (forward–backward) take O(n t²).  SparseMAP
    is a projection onto the flows through the lattice of tags, by Newton's method on its dual.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None

    @property
    def event_dims(self) -> int:
        return 3

    def argmax(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        return chain.argmax(scores.detach(), lengths)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return chain.sparsemap(*self._prepare(scores))

    def log_partition(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        if torch.is_grad_enabled() and scores.requires_grad:
            return chain.partition(scores, lengths)[0]
        return chain.log_partition(scores, lengths)

    def marginals(self, scores: Tensor) -> Tensor:
        return chain.partition(*self._prepare(scores))[1]

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        return draw(chain.sample, *self._prepare(scores), sample_shape, generator)

    def _best(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return chain.topk(*self._prepare(scores), k)

    def _mix(self, scores: Tensor, lengths: Tensor, start: Tensor, *limits: float) -> tuple[Tensor, ...]:
        return chain.mixture(scores, lengths, start, *limits)

    # ---- what a sequence is

    def check_event(self, event: torch.Size) -> None:
        if event[1] != event[2]:
            raise ValueError(f"Chain: scores have parts of shape {tuple(event)}; expected (..., n, t, t).")

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        n, t = shape[-3:-1]
        pairs = (torch.arange(n, device=device)[:, None, None] > 0) | (torch.arange(t, device=device)[:, None] == 0)
        inside = super().allowed(shape, device)
        return pairs if inside is None else pairs & inside

    def vertices(self, event: Sequence[int]) -> Tensor:
        n, t = event[0], event[1]
        lengths = [n] if self.lengths is None else sorted(set(self.lengths.flatten().tolist()))
        return torch.cat([self._list_sequences(length, n, t) for length in lengths])

    def _list_sequences(self, length: int, n: int, t: int) -> Tensor:
        if t**length > _MOST:
            raise ValueError(f"Chain: {length} tags out of {t} have {t**length} sequences; expected at most {_MOST}.")
        tags = torch.tensor(list(itertools.product(range(t), repeat=length)), dtype=torch.long).reshape(-1, length)
        return self.pairs(torch.nn.functional.pad(tags, (0, n - length), value=-1), t)

    def _slots(self, event: Sequence[int]) -> Tensor:
        return torch.arange(event[0])[:, None, None].expand(*event)

    # ---- tags

    @staticmethod
    def tags(pairs: Tensor) -> Tensor:
        """Sequences as pairs of tags (..., n, t, t) as tags (..., n); −1 for padding."""
        found = pairs.sum(-2) != 0
        return torch.where(found.any(-1), found.to(torch.uint8).argmax(-1), -1)

    @staticmethod
    def pairs(tags: Tensor, t: int) -> Tensor:
        """Tags (..., n) out of t, −1 for padding, as pairs of tags (..., n, t, t)."""
        one = torch.nn.functional.one_hot(tags.clamp_min(0), t) * (tags >= 0).unsqueeze(-1)
        before = torch.nn.functional.pad(one[..., :-1, :], (0, 0, 1, 0))
        before[..., 0, 0] = 1  # position 0 has no tag before it, and reads row 0
        return (before.unsqueeze(-1) * one.unsqueeze(-2)).to(torch.get_default_dtype())

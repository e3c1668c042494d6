"""Segmentations: sequences cut into labeled segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.operators import paths
from pullback.operators._family import Family
from pullback.structures._compiled import Compiled
from pullback.structures._paths import list_paths


@dataclass(frozen=True, eq=False)
class Segmentation(Compiled):
    """Sequences of n positions cut into labeled segments of at most w positions: semi-Markov models.

    Scores: (..., n, w, t); scores[..., i, k, label] is that of a segment which begins at position i, is k + 1 positions
    wide, and has one of t labels.  The segments of a vertex cover every position once.

    lengths: the number of positions of each example, n if not given;  segments that end beyond it are padding.
    mask: (..., n, w, t), true for segments that are allowed.

    There are N(n) = t · (N(n − 1) + … + N(n − w)) of them, N(0) = 1.  Argmax, log-partition, marginals and a sample
    take O(n w t).  SparseMAP is a projection onto flows, by Newton's method on its dual.  Reference: Sarawagi and Cohen
    (2004).
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    event_dims = 3

    def sparsemap(self, scores: Tensor) -> Tensor:
        return paths.segmentation_sparsemap(*self._prepare(scores))

    @property
    def _operators(self) -> Family:
        return paths.segmentations

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
        graph = paths.segmentation_graph(event)
        listed = list_paths("Segmentation", graph, length[0], torch.Size(event).numel())
        return listed.reshape(-1, *event).to(torch.get_default_dtype())

    # ---- segments

    @staticmethod
    def segments(parts: Tensor) -> list[Any]:
        """The segments (start, width, label) of a segmentation (n, w, t), in order; lists of them for a batch."""
        if parts.dim() > 3:
            return [Segmentation.segments(example) for example in parts]
        return [(start, width + 1, label) for start, width, label in parts.nonzero().tolist()]

    @staticmethod
    def parts(segments: Sequence[Any], n: int, w: int, t: int) -> Tensor:
        """The segmentation (n, w, t) that has the segments (start, width, label); a batch from lists of them."""
        if any(len(each) == 0 or isinstance(each[0], Sequence) for each in segments):
            return torch.stack([Segmentation.parts(example, n, w, t) for example in segments])
        found = torch.zeros(n, w, t)
        for start, width, label in segments:
            if not (start >= 0 and 1 <= width <= w and start + width <= n and 0 <= label < t):
                raise ValueError(
                    f"Segmentation: a segment is {(start, width, label)}; expected (start, width, label) within {n} "
                    f"positions, at most {w} wide, with a label below {t}."
                )
            found[start, width - 1, label] = 1
        return found

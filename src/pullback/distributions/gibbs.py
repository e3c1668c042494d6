"""Gibbs distributions: conditional random fields, of any structure that has a partition function."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import register_kl

from pullback.distributions._distribution import StructureDistribution, check_same
from pullback.structures._capabilities import LogLinear, require
from pullback.structures._structure import Structure


class Gibbs(StructureDistribution):
    """The Gibbs distribution p(z) ∝ exp⟨s, z⟩ over the vertices of a structure; a CRF, or exponential family.

    Where the structure has scores of its own, such as the transitions of a `Tagging`, they count as well.  Gradients
    reach the scores, and those of the structure, through `log_prob`, `entropy`, `mean`, `variance` and
    `torch.distributions.kl_divergence`.

    structure: one with a partition function; `structure.offers(pb.LogLinear)` tells.
    scores: (*batch, *event), one for each part;  −∞ forbids a part, and padding is never read.

    >>> from pullback import Subset
    >>> pairs = Gibbs(Subset(2), torch.tensor([0.0, 0.0, 1.0]))
    >>> pairs.log_prob(torch.tensor([1.0, 1.0, 0.0])).exp()
    tensor(0.1554)
    >>> pairs.mean
    tensor([0.5777, 0.5777, 0.8446])
    """

    structure: LogLinear

    def __init__(self, structure: Structure, scores: Tensor, validate_args: bool | None = None) -> None:
        super().__init__(structure, scores, validate_args)
        require(structure, LogLinear, "Gibbs")

    def sample(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.structure.sample(self.scores, sample_shape, generator=generator)

    def entropy(self) -> Tensor:
        return self.structure.entropy(self.scores)

    def _log_prob(self, vertices: Tensor) -> Tensor:
        return self.structure.log_prob(self.scores, vertices)

    @property
    def mode(self) -> Tensor:
        """The likeliest vertex."""
        return self.structure.argmax(self.scores)

    @property
    def mean(self) -> Tensor:
        """The expected vertex: the marginals."""
        return self.structure.marginals(self.scores)

    @property
    def variance(self) -> Tensor:
        """The variance of each part, μ (1 − μ)."""
        if not self.structure.is_zero_one:
            raise TypeError(
                f"Gibbs: the variance follows from the mean where vertices are zeros and ones, and those of "
                f"{type(self.structure).__name__} are not."
            )
        mean = self.mean
        return mean * (1 - mean)


@register_kl(Gibbs, Gibbs)  # type: ignore[untyped-decorator]
def _divergence(p: Gibbs, q: Gibbs) -> Tensor:
    """Σ p(z) (log p(z) − log q(z)) = ⟨s − t, marginals(s)⟩ − log_partition(s) + log_partition(t).

    What the structure adds to the score of a vertex is the same for both.
    """
    check_same(p, q)
    structure = p.structure
    s, t = (structure.restrict(one.scores).double() for one in (p, q))
    mean = structure.marginals(s)
    apart = structure.count_once((s - t).masked_fill(mean == 0, 0) * mean).flatten(-structure.event_dims).sum(-1)
    divergence = apart - structure.log_partition(s) + structure.log_partition(t)
    divergence = divergence + (-divergence.detach()).clamp_min(0)  # a difference of sums may round below 0
    return divergence.to(torch.promote_types(p.scores.dtype, q.scores.dtype))

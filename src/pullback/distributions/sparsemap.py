"""The distribution over few vertices that SparseMAP finds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import register_kl

from pullback.distributions._distribution import StructureDistribution, check_same
from pullback.structures._checks import check_sample_shape
from pullback.structures._results import Mixture
from pullback.structures._structure import Structure


class SparseMAPDistribution(StructureDistribution):
    """The mixture of few vertices whose mean is `sparsemap(scores)`.

    Any structure has one; no sum over all vertices is needed, and an expectation is a short sum over `mixture`.  A
    vertex outside of it has probability 0.  The mean is unique, the mixture need not be: it is the one that
    `structure.support` finds.  Gradients reach the scores through the probabilities, and so through `log_prob`,
    `entropy`, `mean`, `variance` and `torch.distributions.kl_divergence`.

    structure: any.  scores: (*batch, *event), one for each part;  −∞ forbids a part, and padding is never read.
    mixture: the vertices in use and their probabilities, a `Mixture` that is made once.

    >>> from pullback import Subset
    >>> pairs = SparseMAPDistribution(Subset(2), torch.tensor([0.5, 0.2, 0.0, -9.0]))
    >>> pairs.mixture.vertices
    tensor([[1., 1., 0., 0.],
            [1., 0., 1., 0.],
            [0., 1., 1., 0.]])
    >>> pairs.mixture.probabilities
    tensor([0.5667, 0.3667, 0.0667])
    """

    mixture: Mixture

    def __init__(self, structure: Structure, scores: Tensor, validate_args: bool | None = None) -> None:
        super().__init__(structure, scores, validate_args)
        found = structure.support(scores)
        self.mixture = Mixture(found.vertices.to(scores.dtype), found.probabilities.to(scores.dtype), found.size)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        sample_shape = check_sample_shape("SparseMAPDistribution", sample_shape)
        vertices, probabilities, size = self.mixture
        device = torch.device("cpu") if generator is None else generator.device
        shape = (sample_shape.numel(), *self.batch_shape)
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float64, device=device).to(vertices.device)
        ends = probabilities.detach().double().cumsum(-1)
        passed = ends <= uniforms.unsqueeze(-1) * ends[..., -1:]
        drawn = torch.minimum(passed.sum(-1), size - 1)  # (samples, *batch)
        index = self.structure.widen(drawn).expand(*shape, *self.event_shape)
        chosen = vertices.detach().movedim(len(self.batch_shape), 0).gather(0, index)
        return chosen.reshape(*sample_shape, *self.scores.shape)

    def entropy(self) -> Tensor:
        return -_expected_log(self.mixture.probabilities)

    def _log_prob(self, vertices: Tensor) -> Tensor:
        mixed = self.mixture.vertices.movedim(len(self.batch_shape), 0)
        probability = vertices.new_zeros(vertices.shape[: vertices.dim() - len(self.event_shape)])
        for vertex, share in zip(mixed, self.mixture.probabilities.movedim(-1, 0)):
            is_it = (vertices == vertex).flatten(-len(self.event_shape)).all(-1)
            probability = probability + torch.where(is_it, share, 0)
        return _log(probability).masked_fill(probability == 0, -torch.inf)

    def expand(
        self, batch_shape: Sequence[int], _instance: SparseMAPDistribution | None = None
    ) -> SparseMAPDistribution:
        new = super().expand(batch_shape, _instance)
        vertices, probabilities, size = self.mixture
        batch, m = new.batch_shape, probabilities.shape[-1:]
        new.mixture = Mixture(
            vertices.expand(*batch, *m, *self.event_shape), probabilities.expand(*batch, *m), size.expand(batch)
        )
        return new

    @property
    def mode(self) -> Tensor:
        """The likeliest vertex; not always the argmax of the structure."""
        vertices, probabilities, _ = self.mixture
        if self.batch_shape.numel() == 0:
            return torch.zeros_like(self.scores)
        index = self.structure.widen(probabilities.argmax(-1, keepdim=True))
        return vertices.take_along_dim(index, len(self.batch_shape)).squeeze(len(self.batch_shape))

    @property
    def mean(self) -> Tensor:
        """The expected vertex: the point that `sparsemap` finds."""
        return self.mixture.mean()

    @property
    def variance(self) -> Tensor:
        """The variance of each part, Σ p(z) (z − μ)²."""
        away = self.mixture.vertices - self.mean.unsqueeze(len(self.batch_shape))
        return Mixture(away.square(), self.mixture.probabilities, self.mixture.size).mean()


@register_kl(SparseMAPDistribution, SparseMAPDistribution)  # type: ignore[untyped-decorator]
@register_kl(SparseMAPDistribution, StructureDistribution)  # type: ignore[untyped-decorator]
def _divergence(p: SparseMAPDistribution, q: StructureDistribution) -> Tensor:
    """Σ p(z) (log p(z) − log q(z)) over the vertices that p mixes; +∞ where one of them has no probability in q."""
    check_same(p, q)
    p = p.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))
    vertices, probabilities, _ = p.mixture
    log_q = q._log_prob(vertices.movedim(len(p.batch_shape), 0)).movedim(0, -1)
    used = probabilities > 0
    expected = torch.where(used, probabilities * log_q.masked_fill(~used, 0), 0).sum(-1)
    divergence = _expected_log(probabilities) - expected
    return divergence + (-divergence.detach()).clamp_min(0)  # a difference of sums may round below 0


@register_kl(StructureDistribution, SparseMAPDistribution)  # type: ignore[untyped-decorator]
def _divergence_to_a_mixture(p: StructureDistribution, q: SparseMAPDistribution) -> Tensor:
    raise TypeError(
        f"KL({type(p).__name__}, SparseMAPDistribution) is infinite, since SparseMAP leaves most structures without "
        "probability; expected the other order, with the SparseMAPDistribution first, which is finite."
    )


def _log(probabilities: Tensor) -> Tensor:
    """The logarithm, and 0 of 0: its derivative there is not to spoil the others."""
    return torch.where(probabilities > 0, probabilities, 1).log()


def _expected_log(probabilities: Tensor) -> Tensor:
    """Σ p log p over the last dimension."""
    return (probabilities * _log(probabilities)).sum(-1)

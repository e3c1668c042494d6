"""Expected downstream losses, summed over a list of vertices."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, cooled, evaluate, redeem, weigh
from pullback.regularizers._options import Number, check_count, check_number
from pullback.structures._capabilities import Enumerable, KBest, LogLinear, require
from pullback.structures._structure import Structure

_TRIES = 16  # draws in which `SumAndSample` looks for a vertex outside its list


class Summands(ABC):
    """The vertices that an expected loss is summed over, and the weight of each."""

    @property
    @abstractmethod
    def evaluations(self) -> int | None:
        """How many vertices there are; None if that depends on structure and scores."""

    @abstractmethod
    def weighted(self, structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Vertices (m, *batch, *event) and their weights (m, *batch), which carry the gradient to the scores.

        Σ weight · L(vertex) is the expected loss under some distribution, in value and in gradient: exactly, or on
        average where vertices are drawn.  A vertex of weight 0 need not make sense.
        """

    def baseline(self, losses: Tensor, weights: Tensor) -> Tensor | None:
        """A number for each example, to be subtracted from all losses where the weights sum to 1 on average alone.

        It may not depend on what was drawn.  `losses` and `weights`, (m, *batch), do not require grad.
        """
        return None


@dataclass(frozen=True)
class AllVertices(Summands):
    """Every vertex with its probability p(z) ∝ exp⟨s, z⟩; for structures that have few."""

    @property
    def evaluations(self) -> None:
        return None

    def weighted(self, structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor]:
        log_linear = require(structure, LogLinear, "minimum_risk")
        vertices = require(structure, Enumerable, "minimum_risk").enumerate(scores.shape).vertices.to(scores)
        event = vertices.shape[1:]
        every = vertices.reshape(-1, *(1,) * len(structure.batch_shape(scores)), *event).expand(-1, *scores.shape)
        return every, log_linear.log_prob(scores, every).exp()


@dataclass(frozen=True)
class SparseSupport(Summands):
    """The few vertices that sparsemap(s) mixes, with their probabilities in the mixture; any structure has them.

    As many as the largest support in the batch.  Reference: Correia, Niculae, Aziz and Martins (2020).
    """

    @property
    def evaluations(self) -> None:
        return None

    def weighted(self, structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor]:
        support = structure.support(scores)
        most = int(support.size.max())
        vertices = support.vertices.movedim(len(structure.batch_shape(scores)), 0)[:most]
        return vertices.to(scores.dtype), support.probabilities.movedim(-1, 0)[:most]


@dataclass(frozen=True)
class BestVertices(Summands):
    """The `k` best vertices with probabilities ∝ exp⟨s, z⟩ that sum to 1 over them: biased, for want of the others."""

    k: int

    def __post_init__(self) -> None:
        check_count("BestVertices: k", self.k)

    @property
    def evaluations(self) -> int:
        return self.k

    def weighted(self, structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor]:
        best = require(structure, KBest, "topk_expectation").topk(scores.double(), self.k)
        vertices = best.vertices.movedim(len(structure.batch_shape(scores)), 0)
        return vertices.to(scores.dtype), best.scores.softmax(-1).movedim(-1, 0).to(scores.dtype)


@dataclass(frozen=True, eq=False)
class SumAndSample(Summands):
    """The `k` best vertices with their exact probabilities p(z) ∝ exp⟨s, z⟩, and one draw that stands for the rest.

    Unbiased: the draw z comes from p(z | not one of the best), and its weight is the probability P that those leave
    over; p(z) / P, as a constant, divides the derivative of p(z).  It is the first such vertex among 16 draws from p.
    Where none of them is one, it has no weight, for which its weight elsewhere is divided by 1 − (1 − P)¹⁶, the
    probability to find one.  Reference: Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019).
    """

    k: int
    generator: torch.Generator | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_count("SumAndSample: k", self.k)

    @property
    def evaluations(self) -> int:
        return self.k + 1

    def weighted(self, structure: Structure, scores: Tensor) -> tuple[Tensor, Tensor]:
        log_linear = require(structure, LogLinear, "sum_and_sample")
        best = require(structure, KBest, "sum_and_sample").topk(scores.detach(), self.k)
        vertices = best.vertices.movedim(len(structure.batch_shape(scores)), 0).to(scores.dtype)
        drawn = log_linear.sample(scores.detach(), (_TRIES,), generator=self.generator)
        outside = torch.stack([(drawn != z).flatten(-structure.event_dims).any(-1) for z in vertices]).all(0)
        first = structure.widen(outside.int().argmax(0, keepdim=True)).expand(1, *scores.shape)
        vertices = torch.cat([vertices, drawn.gather(0, first).to(scores.dtype)])
        log_p = log_linear.log_prob(scores.double(), vertices)
        listed = torch.arange(self.k, device=log_p.device).reshape(-1, *(1,) * best.size.dim()) < best.size
        p = log_p[:-1].exp().masked_fill(~listed, 0)
        listed_in_all = p.detach().sum(0).clamp_max(1)  # 1 − P
        tries = torch.arange(_TRIES, device=p.device).reshape(-1, *(1,) * listed_in_all.dim())
        rest = outside.any(0) / (listed_in_all**tries).sum(0)  # P / (1 − (1 − P)¹⁶), without the cancellation
        drawn_weight = rest * (log_p[-1] - log_p[-1].detach()).exp()
        return vertices, torch.cat([p, drawn_weight[None]]).to(scores.dtype)

    def baseline(self, losses: Tensor, weights: Tensor) -> Tensor:
        """The mean loss of the best vertices, which no draw decides; 0 where their probabilities round to 0."""
        total = weights[:-1].sum(0)
        return torch.where(total > 0, (losses * weights)[:-1].sum(0) / total.where(total > 0, 1), 0)


class Expectation(Estimator, nn.Module):
    """The expected loss, summed over vertices: Σ p(z) L(z), differentiated through the probabilities.

    The loss may be a black box; the decoder gets the gradient of the expectation.  One evaluation for each vertex.

    summands: which vertices, with which probabilities: `AllVertices()`, `SparseSupport()`, `BestVertices(k)` or
    `SumAndSample(k)`.
    temperature: divides the scores.  A number, a tensor with one for each example, or a function of no arguments that
    returns either; a `Parameter` is trained with the model.
    """

    def __init__(self, summands: Summands, temperature: Number = 1.0) -> None:
        super().__init__()
        if not isinstance(summands, Summands):
            raise TypeError(f"Expectation: summands is {summands!r}; expected Summands such as AllVertices().")
        check_number("Expectation: temperature", temperature, above=True)
        self.summands, self.temperature = summands, temperature

    @property
    def evaluations(self) -> int | None:
        return self.summands.evaluations

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        scores = structure.restrict(scores)
        if scores.numel() == 0:
            return evaluate(structure, downstream, scores)
        scores, ticket = weigh(structure, scores)
        vertices, weights = self.summands.weighted(structure, cooled(structure, scores, self.temperature))
        losses = _losses(structure, downstream, vertices, weights)
        expected = torch.where(weights > 0, weights * losses, 0).sum(0)
        baseline = self.summands.baseline(losses.detach(), weights.detach())
        if baseline is not None:
            expected = expected - baseline * (weights - weights.detach()).sum(0)
        return redeem(ticket, expected)

    def extra_repr(self) -> str:
        return f"{self.summands}, temperature={self.temperature}"


def _losses(structure: Structure, downstream: Loss, vertices: Tensor, weights: Tensor) -> Tensor:
    """downstream(vertices[i]) for each i: (m, *batch).

    Where a weight is zero the decoder sees the example's heaviest vertex in place of one that need not make sense.
    """
    heaviest = structure.widen(weights.argmax(0, keepdim=True)).expand(1, *vertices.shape[1:])
    safe = vertices.gather(0, heaviest)[0]
    counts = structure.widen(weights > 0)
    return torch.stack(
        [evaluate(structure, downstream, torch.where(count, z, safe)) for z, count in zip(vertices, counts)]
    )


def minimum_risk(temperature: Number = 1.0) -> Expectation:
    """Minimum-risk training: the exact expected loss, by enumeration.

    Σ p(z) L(z) over all vertices, p(z) ∝ exp⟨s / T, z⟩;  gradient = J ℓ: the Jacobian of the probabilities times the
    vector of losses.

    Costs one evaluation per vertex.  Needs a partition function and a list of vertices; the loss may be a black box.
    What every other method of this kind estimates: use it where vertices are few.
    Reference: Smith and Eisner (2006); Stoyanov et al. (2011).
    """
    return Expectation(AllVertices(), temperature)


def sparse_marginalization(temperature: Number = 1.0) -> Expectation:
    """Sparse marginalization: the expected loss under the SparseMAP distribution.

    Σ p(z) L(z) over the few z that sparsemap(s / T) mixes, differentiated through p.

    Costs one projection, and as many evaluations as the largest support in the batch: many while scores are flat, about
    one when they are peaked.  Needs an argmax alone; the loss may be a black box.  Exact for its own
    distribution, where others sample.
    Reference: Correia, Niculae, Aziz and Martins (2020).
    """
    return Expectation(SparseSupport(), temperature)


def topk_expectation(k: int = 4, temperature: Number = 1.0) -> Expectation:
    """Top-k expectation: the expected loss under the Gibbs distribution of the `k` best structures alone.

    Σ p(z) L(z) over the k best z, p(z) ∝ exp⟨s / T, z⟩ and summing to 1 over them.

    Costs k evaluations and one call of `topk`.  Needs `topk` alone; the loss may be a black box.  No noise, but blind
    to the rest: for scores that leave most of the probability to few.
    """
    return Expectation(BestVertices(k), temperature)


def sum_and_sample(k: int = 3, temperature: Number = 1.0, *, generator: torch.Generator | None = None) -> Expectation:
    """Sum and sample: the expected loss over the `k` best structures exactly, and over the rest by one draw.

    Σ p(z) L(z) over the k best z, plus P L(z̃), z̃ ~ p(z | not one of the best), where P is the probability that they
    leave over;  p(z) ∝ exp⟨s / T, z⟩.  Unbiased, with a variance that vanishes as the k best take all.

    Costs k + 1 evaluations, one call of `topk` and 16 samples.  Needs a partition function and `topk`; the loss may be
    a black box.  For scores that leave most of the probability to few structures, and not all of it.
    Reference: Liu, Regier, Tripuraneni, Jordan and McAuliffe (2019).
    """
    return Expectation(SumAndSample(k, generator=generator), temperature)

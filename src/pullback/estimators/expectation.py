"""Expected downstream losses, computed exactly over a list of vertices."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, cooled, evaluate
from pullback.regularizers._options import Number, check_number
from pullback.structures._capabilities import Enumerable, LogLinear, require
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class MinimumRisk(Estimator):
    """The exact expected loss Σ p(z) L(z) over all vertices, p(z) ∝ exp⟨s, z⟩.

    Costs one downstream evaluation per vertex; the loss may be a black box.
    """

    @property
    def evaluations(self) -> None:
        return None

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        log_linear = require(structure, LogLinear, "minimum_risk")
        scores = structure.restrict(scores)
        vertices = require(structure, Enumerable, "minimum_risk").enumerate(scores.shape).vertices.to(scores)
        event = vertices.shape[1:]
        every = vertices.reshape(-1, *(1,) * len(structure.batch_shape(scores)), *event).expand(-1, *scores.shape)
        probabilities = log_linear.log_prob(scores, every).exp()
        return _expected(structure, downstream, every, probabilities)


class SparseMarginalization(Estimator, nn.Module):
    """The expected loss Σ p(z) L(z) under the SparseMAP distribution, exact because few p(z) are positive.

    Costs as many downstream evaluations as the largest support in the batch; the loss may be a black box.
    `temperature` is a number, a tensor with one for each example, or a function of no arguments that returns either; a
    `Parameter` is trained with the model.
    Reference: Correia, Niculae, Aziz and Martins (2020).
    """

    def __init__(self, temperature: Number = 1.0) -> None:
        super().__init__()
        check_number("SparseMarginalization: temperature", temperature, above=True)
        self.temperature = temperature

    @property
    def evaluations(self) -> None:
        return None

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        scores = structure.restrict(scores)
        if scores.numel() == 0:
            return evaluate(structure, downstream, scores)
        support = structure.support(cooled(structure, scores, self.temperature))
        batch_dims = len(structure.batch_shape(scores))
        most = int(support.size.max())
        vertices = support.vertices.movedim(batch_dims, 0)[:most].to(scores.dtype)
        return _expected(structure, downstream, vertices, support.probabilities.movedim(-1, 0)[:most])

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


def _expected(structure: Structure, downstream: Loss, vertices: Tensor, probabilities: Tensor) -> Tensor:
    """Σᵢ probabilities[i] · downstream(vertices[i]), per example.

    Where a probability is zero the decoder sees the example's likeliest vertex in place of one that need not make
    sense.
    """
    likeliest = probabilities.argmax(0, keepdim=True)
    index = structure.widen(likeliest).expand(1, *vertices.shape[1:])
    safe = vertices.gather(0, index)[0]
    total = torch.zeros_like(probabilities[0])
    for vertex, probability in zip(vertices, probabilities):
        counts = probability > 0
        losses = evaluate(structure, downstream, torch.where(structure.widen(counts), vertex, safe))
        total = total + torch.where(counts, probability * losses, 0)
    return total


def minimum_risk() -> MinimumRisk:
    """Minimum-risk training: the exact expected loss, by enumeration.

    Σ p(z) L(z),  gradient = J ℓ: the Jacobian of the probabilities times the vector of losses.
    Reference: Smith and Eisner (2006); Stoyanov et al. (2011).
    """
    return MinimumRisk()


def sparse_marginalization(temperature: Number = 1.0) -> SparseMarginalization:
    """Sparse marginalization: the expected loss under the SparseMAP distribution.

    Σ p(z) L(z) over the few z that sparsemap(s / T) mixes, differentiated through p.
    """
    return SparseMarginalization(temperature)

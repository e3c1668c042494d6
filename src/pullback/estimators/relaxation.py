"""Continuous relaxations of the argmax, and straight-through with their Jacobian."""

import torch
from torch import Tensor, nn

from pullback.estimators._estimator import Estimator, Loss, cooled, follow
from pullback.estimators.sample import Sample
from pullback.regularizers._options import Number, check_number
from pullback.regularizers._regularizer import Prediction, Regularizer
from pullback.regularizers.entropy import Entropy
from pullback.regularizers.squared_norm import SquaredNorm
from pullback.regularizers.tsallis import Tsallis
from pullback.regularizers.unregularized import Unregularized
from pullback.structures._structure import Structure


class Relaxation(nn.Module, Estimator):
    """Decode from a regularizer's prediction and differentiate it.

    μ = regularizer.predict(s / temperature),  gradient = J(s)ᵀ ∇L.  With `decodes_from` the decoder sees another
    prediction, such as a `Sample()`, and the Jacobian stays that of μ: straight-through.  `temperature` is a number, a
    tensor with one for each example, or a function of no arguments that returns either and is asked at every call; a
    tensor may require grad, and a `Parameter` is trained, saved and moved with the model.  Scores of a structure's own,
    such as those of transitions, are not divided by it.
    """

    def __init__(
        self, regularizer: Regularizer, temperature: Number = 1.0, decodes_from: Prediction | None = None
    ) -> None:
        super().__init__()
        if not isinstance(regularizer, Regularizer):
            raise TypeError(f"Relaxation: regularizer is {regularizer!r}; expected a Regularizer such as Entropy().")
        check_number("Relaxation: temperature", temperature, above=True)
        self.regularizer, self.temperature, self.decodes_from = regularizer, temperature, decodes_from

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return follow(structure, downstream, self(structure, scores))

    @property
    def evaluations(self) -> int:
        return 1

    def forward(self, structure: Structure, scores: Tensor) -> Tensor:
        """The point; its gradient is linear in what arrives, so it means the same however losses are weighted."""
        relaxed = self.regularizer.predict(structure, cooled(structure, scores, self.temperature))
        if self.decodes_from is None:
            return relaxed
        return self.decodes_from.predict(structure, scores.detach()) + (relaxed - relaxed.detach())

    def extra_repr(self) -> str:
        shown = "" if isinstance(self.regularizer, nn.Module) else f"{self.regularizer}, "
        return f"{shown}temperature={self.temperature}, decodes_from={self.decodes_from}"


def structured_attention(temperature: Number = 1.0) -> Relaxation:
    """Structured attention: decode from the marginals (softmax when flat).

    μ = marginals(s / T),  gradient = Cov(z) ∇L(μ) / T.

    Costs one evaluation and one call of marginals.  Needs a partition function, and a decoder that accepts mixtures of
    all structures.  The smooth baseline.  Reference: Kim et al. (2017).
    """
    return Relaxation(Entropy(), temperature)


def sparsemap(temperature: Number = 1.0) -> Relaxation:
    """SparseMAP: decode from the nearest point of the polytope (sparsemax when flat).

    μ = argmin ½‖μ − s / T‖²,  gradient = J ∇L(μ) / T, J the projection onto μ's face.

    Costs one evaluation and one projection.  Needs an argmax alone, and a decoder that accepts mixtures, of few
    structures here.  The relaxation for structures without a partition function, and for choices that become sharp.
    Reference: Niculae et al. (2018).
    """
    return Relaxation(SquaredNorm(), temperature)


def entmax(alpha: Number = 1.5, temperature: Number = 1.0) -> Relaxation:
    """α-entmax, between softmax (α = 1) and sparsemax (α = 2); categorical choices only.

    p = argmax ⟨s / T, p⟩ + H_α(p),  gradient = J ∇L(p) / T.

    Costs one evaluation and one entmax.  Needs unit vectors (`Categorical`, and `Independent` of it), and a decoder
    that accepts mixtures; α says how sparse they are.  Reference: Peters, Niculae and Martins (2019).
    """
    return Relaxation(Tsallis(alpha), temperature)


def ste_marginals(temperature: Number = 1.0) -> Relaxation:
    """Straight-through with the full Jacobian of the marginals.

    Decodes from argmax(s),  gradient = Cov(z) ∇L(argmax(s)) / T.

    Costs one evaluation, one argmax and one call of marginals.  Needs a partition function.  For decoders that must
    see one structure; unlike `ste`, it knows how parts depend on each other.
    """
    return Relaxation(Entropy(), temperature, decodes_from=Unregularized())


def ste_sparsemap(temperature: Number = 1.0) -> Relaxation:
    """Straight-through with the full Jacobian of SparseMAP.

    Decodes from argmax(s),  gradient = J ∇L(argmax(s)) / T, J the projection onto the face of sparsemap(s / T).

    Costs one evaluation, one argmax and one projection.  Needs an argmax alone.  Like `ste_marginals` without a
    partition function; zero wherever sparsemap(s / T) is a single structure, which a higher T makes rarer.
    """
    return Relaxation(SquaredNorm(), temperature, decodes_from=Unregularized())


def simple(temperature: Number = 1.0, *, generator: torch.Generator | None = None) -> Relaxation:
    """SIMPLE: decode from an exact draw, differentiate the exact marginals.

    z ~ p(z) ∝ exp⟨s, z⟩,  gradient = Cov(z) ∇L(z) / T, the Jacobian of marginals(s / T).

    Costs one evaluation, one draw and one call of marginals.  Needs a partition function; proposed for subsets of k
    items (`Subset`).  A good first choice among the methods that explore, with nothing to tune.
    Reference: Ahmed et al. (2023).
    """
    return Relaxation(Entropy(), temperature, decodes_from=Sample(generator=generator))

"""Negative Shannon entropy: the prediction is the marginals."""

from dataclasses import dataclass

from torch import Tensor

from pullback.regularizers._regularizer import MirrorMap
from pullback.structures._capabilities import LogLinear, require
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Entropy(MirrorMap):
    """Ω(μ) = −max H(p) over distributions p with mean μ: marginals (softmax when flat), and the CRF loss.

    The gradient of Ω at a point μ = marginals(s) is s.  At a part that is exactly 0 its limit is −∞; there, as wherever
    a part is not in use, the gradient is 0.
    """

    def require(self, structure: Structure) -> None:
        require(structure, LogLinear, "Entropy")

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return require(structure, LogLinear, "Entropy").marginals(scores)

    def conjugate(self, structure: Structure, scores: Tensor) -> Tensor:
        return require(structure, LogLinear, "Entropy").log_partition(scores)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        return -require(structure, LogLinear, "Entropy").maximum_entropy(point)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        if scores is None:
            raise TypeError(
                "Exponentiated gradient keeps its points strictly inside the polytope, as marginals of known scores; "
                "it can start at Entropy() alone, not at a given point."
            )
        return scores

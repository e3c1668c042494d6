"""No regularizer: the prediction is the argmax."""

from dataclasses import dataclass

from torch import Tensor

from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Unregularized(Regularizer):
    """Ω = 0: MAP, and the perceptron loss."""

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return structure.argmax(scores)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        return -structure.own_score(point)

"""No regularizer: the prediction is the argmax."""

from dataclasses import dataclass

from torch import Tensor

from pullback.regularizers._regularizer import MirrorMap
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Unregularized(MirrorMap):
    """Ω = 0: MAP, and the perceptron loss.

    A mirror step over it is a step in the scores, seen through the argmax: argmax(s − η ∇L).
    """

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return structure.argmax(scores)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        return -structure.own_score(point)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        if scores is None:
            raise TypeError(
                "Many scores have the same argmax: a mirror step over Unregularized() can start there alone, where the "
                "scores are known, not at a given point."
            )
        return scores

"""Half the squared Euclidean norm: the prediction is SparseMAP."""

from dataclasses import dataclass

from torch import Tensor

from pullback.regularizers._regularizer import MirrorMap
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class SquaredNorm(MirrorMap):
    """Ω(μ) = ½‖μ‖²: SparseMAP (sparsemax when flat), and the SparseMAP loss.

    Reference: Niculae et al. (2018).
    """

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        return structure.sparsemap(scores)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        squares = 0.5 * structure.count_once(point.square()).flatten(-structure.event_dims).sum(-1)
        return squares - structure.own_score(point) if structure.has_own_scores else squares

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        if not structure.has_own_scores:
            return point
        if scores is None:
            raise TypeError(
                f"SquaredNorm: {type(structure).__name__} has scores of its own, so a mirror step can start at "
                "SquaredNorm() alone, whose scores are known, not at a given point."
            )
        return scores

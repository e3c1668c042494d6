"""Mirror descent: steps in the scores, seen through a regularizer's prediction."""

from dataclasses import dataclass, field

from torch import Tensor

from pullback.descents._descent import Descent, Iterate
from pullback.regularizers._regularizer import MirrorMap, same
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Mirror(Descent):
    """μ ← predict(∇Ω(μ) − η ∇L(μ)): mirror descent.

    Over `Entropy` this is exponentiated gradient, p ∝ p exp(−η ∇L), and in general the Kullback–Leibler projection onto
    the marginal polytope: marginals(s − η ∇L).  Over `SquaredNorm` it is projected gradient.  Over `Unregularized` it
    is a step in the scores, argmax(s − η ∇L).
    Reference: Kivinen and Warmuth (1997); Beck and Teboulle (2003).
    """

    regularizer: MirrorMap = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.regularizer, MirrorMap):
            raise TypeError(
                f"Mirror: regularizer is {self.regularizer!r}; expected a MirrorMap such as Entropy(), "
                "SquaredNorm() or Unregularized()."
            )

    def move(self, structure: Structure, iterate: Iterate, change: Tensor) -> Iterate:
        known = iterate.scores if same(iterate.regularizer, self.regularizer) else None
        scores = self.regularizer.mirror(structure, iterate.point, known) + change
        return Iterate(self.regularizer.predict(structure, scores), self.regularizer, scores)

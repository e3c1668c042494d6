"""A label that is known, with no way to it."""

from dataclasses import dataclass

from torch import Tensor

from pullback.descents._descent import Downstream, Iterate, Pullback, Pulled
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Given(Pullback):
    """The label is given, and the downstream loss is not asked; without a label, the start itself: nothing is learned.

    label: shaped like the scores.
    """

    label: Tensor | None = None

    @property
    def uses_gradient_at_start(self) -> bool:
        return False

    @property
    def evaluations(self) -> int:
        return 0

    def pull(self, structure: Structure, start: Iterate, downstream: Downstream) -> Pulled:
        return Pulled(start.point, start.point if self.label is None else self.label.to(start.point))

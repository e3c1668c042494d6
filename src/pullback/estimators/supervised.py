"""Two yardsticks for every other estimator: nothing to learn, and the true label."""

from collections.abc import Callable

from torch import Tensor, nn

from pullback.descents.given import Given
from pullback.estimators._estimator import Estimator, Loss, Replay
from pullback.estimators._inspection import Label
from pullback.estimators.spigot import PREDICTIONS
from pullback.estimators.surrogate import Surrogate
from pullback.regularizers._labels import check_shape, inside
from pullback.regularizers._options import by_name
from pullback.regularizers._regularizer import Regularizer
from pullback.structures._structure import Structure


def frozen(decodes_from: Regularizer | str = "unregularized") -> Surrogate:
    """No gradient for the scores: the decoder trains on what the encoder happens to predict.

    z = argmax(s),  target = z,  gradient = 0.  `decodes_from` is what the decoder sees in place of the argmax, a
    regularizer or one of "unregularized", "entropy", "squared_norm".

    Costs one evaluation and one argmax.  Needs an argmax alone.  The baseline of every comparison: what does not beat
    it has learned nothing through the structure.

    The scores receive zeros, so that any training loop works; an optimizer that decays weights still decays those of
    the encoder, unless it is not given them.
    """
    if isinstance(decodes_from, str):
        decodes_from = by_name("frozen: decodes_from", decodes_from, PREDICTIONS)
    return Surrogate(decodes_from, Given(), decodes_from=decodes_from)


class Supervised(Estimator, nn.Module):
    """A given label in place of a pulled-back one.

    label: a point of the polytope for each example, shaped like the scores, or a function of no arguments that returns
    that of the batch, asked whenever `loss` is called.  One that lies outside is refused, as by `FenchelYoungLoss`.
    prediction: the intermediate loss: `Unregularized` (perceptron), `Entropy` (CRF), `SquaredNorm` (SparseMAP).
    """

    def __init__(self, label: Tensor | Callable[[], Tensor], prediction: Regularizer) -> None:
        super().__init__()
        self.label, self.prediction = label, prediction

    @property
    def evaluations(self) -> int:
        return 1

    def loss(self, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
        return self._surrogate(structure, scores).loss(structure, scores, downstream)

    def _inspect_label(self, structure: Structure, scores: Tensor, downstream: Loss, replay: Replay) -> Label:
        return self._surrogate(structure, scores)._inspect_label(structure, scores, downstream, replay)

    def _surrogate(self, structure: Structure, scores: Tensor) -> Surrogate:
        label = self.label if isinstance(self.label, Tensor) else self.label()
        if not isinstance(label, Tensor):
            raise TypeError(f"supervised: label() is a {type(label).__name__}; expected a tensor.")
        check_shape("supervised", label, scores)
        return Surrogate(self.prediction, Given(inside("supervised", structure, label.detach())))


def supervised(label: Tensor | Callable[[], Tensor], prediction: Regularizer | str = "unregularized") -> Supervised:
    """Supervision of the structure itself: what the scores would learn if its label were known.

    gradient = prediction − label: that of the Fenchel–Young loss of `prediction`, a regularizer or one of
    "unregularized" (perceptron), "entropy" (CRF), "squared_norm" (SparseMAP).  The decoder trains on argmax(s), and
    sends nothing back.

    Costs one evaluation, one argmax and one prediction.  Needs labels, and what `prediction` needs.  What pulled-back
    labels are measured against, where true ones exist.

    label: a tensor shaped like the scores, or a function of no arguments that returns the label of the batch:

        estimator = pb.supervised(lambda: batch.trees, prediction="entropy")
    """
    if isinstance(prediction, str):
        prediction = by_name("supervised: prediction", prediction, PREDICTIONS)
    if not (isinstance(label, Tensor) or callable(label)):
        raise TypeError(
            f"supervised: label is a {type(label).__name__}; expected a tensor shaped like the scores, or a function "
            "that returns one."
        )
    return Supervised(label, prediction)

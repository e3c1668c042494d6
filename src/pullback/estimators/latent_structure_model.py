"""The encoder–argmax–decoder model as a module."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pullback.estimators._estimator import Estimator
from pullback.regularizers._regularizer import Regularizer
from pullback.regularizers.unregularized import Unregularized
from pullback.structures._structure import Structure


def _cross_entropies(prediction: Tensor, label: Tensor) -> Tensor:
    return cross_entropy(prediction, label, reduction="none")


class LatentStructureModel(nn.Module):
    """Predicts ŷ = decoder(x, argmax ⟨encoder(x), z⟩), and trains both networks with an estimator.

    encoder(x): scores of the parts.  decoder(x, z): the prediction ŷ; z is a vertex, or a point for methods that relax.
    structure: a `Structure`, or a function of x that makes the structure of a batch (its lengths, its masks).
    criterion(ŷ, y): one loss per example; cross-entropy if not given.
    test_point: what the decoder sees outside training: the argmax if not given, the prediction of a `Regularizer`, or
    the point of an `Estimator` that is callable, such as the one it is trained with.

    What an estimator or a test point learns or remembers, such as a temperature, a baseline or a step size, is saved,
    moved and trained with the model.
    """

    def __init__(
        self,
        encoder: Callable[[Any], Tensor],
        decoder: Callable[[Any, Tensor], Any],
        estimator: Estimator,
        structure: Structure | Callable[[Any], Structure],
        criterion: Callable[[Any, Any], Tensor] | None = None,
        test_point: Regularizer | Estimator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(estimator, Estimator):
            raise TypeError(
                f"LatentStructureModel: estimator is {estimator!r}; expected an Estimator such as spigot()."
            )
        self.encoder, self.decoder, self.estimator = encoder, decoder, estimator
        self.structure, self.criterion = structure, criterion or _cross_entropies
        self.test_point = test_point or Unregularized()

    def structure_of(self, x: Any) -> Structure:
        """The structure of the batch `x`."""
        return self.structure if isinstance(self.structure, Structure) else self.structure(x)

    def latent(self, x: Any) -> Tensor:
        """The point the decoder sees at test time."""
        structure, scores = self.structure_of(x), self.encoder(x)
        if isinstance(self.test_point, Estimator):
            return self.test_point(structure, scores)
        return self.test_point.predict(structure, scores)

    def forward(self, x: Any) -> Any:
        """The prediction at test time."""
        return self.decoder(x, self.latent(x))

    def loss(self, x: Any, y: Any) -> Tensor:
        """One loss per example: the estimator's in training mode, that of the prediction otherwise."""
        if not self.training:
            losses: Tensor = self.criterion(self(x), y)
            return losses
        return self.estimator.loss(
            self.structure_of(x), self.encoder(x), lambda point: self.criterion(self.decoder(x, point), y)
        )

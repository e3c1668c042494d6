"""The entropy of pairs: the prediction is Sinkhorn's."""

import torch
from torch import Tensor

from pullback.operators._convergence import warn_of_gap
from pullback.regularizers._options import Number, check_count, check_number
from pullback.regularizers._parametrized import Parametrized
from pullback.structures._capabilities import Transport, require
from pullback.structures._structure import Structure


class Sinkhorn(Parametrized):
    """Ω(μ) = T Σ μ log μ: entropy-regularized transport, on `Matching`.

    μ_ij = exp((s_ij − u_i − v_j) / T − 1), with prices u, v of rows and columns such that the sums of μ are those of a
    mixture of matchings; it tends to the argmax as T → 0.  Computed with logarithms, by Sinkhorn's sweeps and Newton's
    steps on the prices; differentiated exactly, at the solution.

    temperature: a number, a tensor that broadcasts to the batch and may require grad, or a function of no arguments
    that returns either; a `Parameter` is trained, saved and moved with the model.  tolerance: the error of a sum of
    rows or columns at which the search ends; a search that has not come so far after `max_iterations` warns.

    The gradient of Ω at a part that is exactly 0 is −∞ in the limit; there it is 0, as wherever a part is not in use.
    Reference: Cuturi (2013); Mena et al. (2018).
    """

    parameter = "temperature"

    def __init__(self, temperature: Number = 1.0, *, tolerance: float = 1e-6, max_iterations: int = 1000) -> None:
        super().__init__()
        check_number("Sinkhorn: temperature", temperature, above=True)
        check_number("Sinkhorn: tolerance", tolerance, above=True, tensors=False)
        check_count("Sinkhorn: max_iterations", max_iterations)
        self.temperature, self.tolerance, self.max_iterations = temperature, tolerance, max_iterations

    def require(self, structure: Structure) -> None:
        require(structure, Transport, "Sinkhorn")

    def predict(self, structure: Structure, scores: Tensor) -> Tensor:
        transport = require(structure, Transport, "Sinkhorn").transport
        plan = transport(self._cooled(structure, scores), tolerance=self.tolerance, max_iterations=self.max_iterations)
        if not torch.compiler.is_compiling() and bool((plan.error > self.tolerance).any()):
            warn_of_gap(f"Sinkhorn stopped where a sum is off by {float(plan.error.max()):.1e}.")
        return plan.point

    def _cooled(self, structure: Structure, scores: Tensor) -> Tensor:
        """s / T; a part that is forbidden or padding stays so and sends nothing to the temperature."""
        temperature = self._now
        if not isinstance(temperature, Tensor):
            return scores / temperature
        scores = structure.restrict(scores)
        forbidden = scores == -torch.inf
        cooled = scores.masked_fill(forbidden, 0) / self._per_example(structure, scores)
        return cooled.masked_fill(forbidden, -torch.inf)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        negative_entropy = torch.xlogy(point, torch.where(point > 0, point, 1))
        return (self._per_example(structure, point) * negative_entropy).flatten(-structure.event_dims).sum(-1)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        return scores if scores is not None else self._per_example(structure, point) * (point.log() + 1)

    @property
    def _limits(self) -> tuple[float, int]:
        return self.tolerance, self.max_iterations

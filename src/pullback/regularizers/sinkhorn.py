"""The entropy of pairs: the prediction is Sinkhorn's."""

import torch
from torch import Tensor, nn

from pullback.operators._convergence import warn_of_gap
from pullback.regularizers._options import check_count, check_number
from pullback.regularizers._regularizer import MirrorMap
from pullback.structures._capabilities import Transport, require
from pullback.structures._structure import Structure


class Sinkhorn(MirrorMap, nn.Module):
    """Ω(μ) = T Σ μ log μ: entropy-regularized transport, on `Matching`.

    μ_ij = exp((s_ij − u_i − v_j) / T − 1), with prices u, v of rows and columns such that the sums of μ are those of a
    mixture of matchings; it tends to the argmax as T → 0.  Computed with logarithms, by Sinkhorn's sweeps and Newton's
    steps on the prices; differentiated exactly, at the solution.

    temperature: a number, or a tensor that broadcasts to the batch and may require grad; a `Parameter` is trained,
    saved and moved with the model.  tolerance: the error of a sum of rows or columns at which the search ends; a search
    that has not come so far after `max_iterations` warns.

    The gradient of Ω at a part that is exactly 0 is −∞ in the limit; there it is 0, as wherever a part is not in use.
    Reference: Cuturi (2013); Mena et al. (2018).
    """

    def __init__(
        self, temperature: float | Tensor = 1.0, *, tolerance: float = 1e-6, max_iterations: int = 1000
    ) -> None:
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
        if not isinstance(self.temperature, Tensor):
            return scores / self.temperature
        scores = structure.restrict(scores)
        forbidden = scores == -torch.inf
        cooled = scores.masked_fill(forbidden, 0) / self._temperature(structure, scores)
        return cooled.masked_fill(forbidden, -torch.inf)

    def value(self, structure: Structure, point: Tensor) -> Tensor:
        negative_entropy = torch.xlogy(point, torch.where(point > 0, point, 1))
        return (self._temperature(structure, point) * negative_entropy).flatten(-structure.event_dims).sum(-1)

    def mirror(self, structure: Structure, point: Tensor, scores: Tensor | None) -> Tensor:
        return scores if scores is not None else self._temperature(structure, point) * (point.log() + 1)

    def _temperature(self, structure: Structure, like: Tensor) -> Tensor:
        """T per example, ready to meet points."""
        temperature = torch.as_tensor(self.temperature, dtype=like.dtype, device=like.device)
        return temperature if temperature.dim() == 0 else structure.widen(temperature)

    def extra_repr(self) -> str:
        given = self.temperature
        return f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else f"{given:g}"

    def __eq__(self, other: object) -> bool:
        """Of the same numbers, or of the same tensor: two tensors may change apart."""
        if not isinstance(other, Sinkhorn):
            return NotImplemented
        numbers = not (isinstance(self.temperature, Tensor) or isinstance(other.temperature, Tensor))
        limits = (self.tolerance, self.max_iterations) == (other.tolerance, other.max_iterations)
        same = self.temperature is other.temperature or (numbers and bool(self.temperature == other.temperature))
        return limits and same

    def __hash__(self) -> int:
        return hash(Sinkhorn)

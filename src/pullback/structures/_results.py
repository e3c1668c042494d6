"""What structures answer with, where one tensor does not do: small immutable records."""

from typing import NamedTuple

from torch import Tensor


class Mixture(NamedTuple):
    """A point as a mixture of few vertices.

    vertices: (*batch, m, *event), zeros beyond `size`;  probabilities: (*batch, m);  size: (*batch), how many are in
    use.
    """

    vertices: Tensor
    probabilities: Tensor
    size: Tensor

    def mean(self) -> Tensor:
        """The point that is mixed: (*batch, *event)."""
        event_dims = self.vertices.dim() - self.probabilities.dim()
        weights = self.probabilities[(...,) + (None,) * event_dims]
        return (weights * self.vertices).sum(self.probabilities.dim() - 1)


class Solution(NamedTuple):
    """A SparseMAP solution and how it was found; nothing in it requires grad.

    gap: (*batch), ⟨s − μ, argmax(s − μ) − μ⟩, which bounds ‖μ − sparsemap(s)‖² from above and is 0 at the solution.
    iterations: (*batch), calls of the argmax, 0 where there is a direct way.  converged: (*batch), whether the gap is
    within the tolerance.
    """

    mixture: Mixture
    gap: Tensor
    iterations: Tensor
    converged: Tensor


class TopK(NamedTuple):
    """The best vertices in decreasing order of score.

    vertices: (*batch, k, *event), zeros beyond `size`;  scores: (*batch, k), −∞ beyond `size`;  size: (*batch), below k
    only if there are no more.
    """

    vertices: Tensor
    scores: Tensor
    size: Tensor


class TransportPlan(NamedTuple):
    """The entropic mixture of matchings, and how it was found; only the point may require grad.

    point: (*batch, n, m).  row_prices: (*batch, n), column_prices: (*batch, m), with which a search for scores nearby
    may start.  iterations: (*batch).  error: (*batch), the most that the sum of a row or column is off.
    """

    point: Tensor
    row_prices: Tensor
    column_prices: Tensor
    iterations: Tensor
    error: Tensor


class Enumeration(NamedTuple):
    """Every vertex that some example of a batch may take.

    vertices: (m, *event);  belongs: (m, *batch), whether a vertex is one of the example's.
    """

    vertices: Tensor
    belongs: Tensor

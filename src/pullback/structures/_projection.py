"""SparseMAP by the active-set method, for any structure that can give its best vertex."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor


class Projection(NamedTuple):
    """A SparseMAP solution as a mixture of vertices, and how it was reached; nothing in it requires grad.

    vertices: (*batch, m, *event), zeros beyond `count`;  probabilities: (*batch, m);  count, iterations, gap and
    converged: (*batch).  The gap is ⟨s − μ, argmax(s − μ) − μ⟩.
    """

    vertices: Tensor
    probabilities: Tensor
    count: Tensor
    iterations: Tensor
    gap: Tensor
    converged: Tensor


def project(argmax: Callable[[Tensor], Tensor], scores: Tensor, event_dims: int) -> Projection: ...

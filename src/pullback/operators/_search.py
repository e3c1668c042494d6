"""The search for the nearest mixture of vertices, where the argmax is called from Python.

A round asks for one more vertex of every example, and a kernel takes it into the active set.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.operators._kernel_operator import name_example
from pullback.operators._threads import Kernel, over_batch

_TIED = 1e-9  # vertices are on the same face if their values for s − μ are this near


class Found(NamedTuple):
    """The vertices that mix to a projection, and how they were found; nothing in it requires grad.

    vertices: (*batch, m, *event), zeros beyond `size`;  probabilities: (*batch, m);  size, gap, iterations and
    converged: (*batch).  The gap is ⟨s − μ, argmax(s − μ) − μ⟩, and bounds ‖μ − sparsemap(s)‖² from above; iterations
    are calls of the argmax.
    """

    vertices: Tensor
    probabilities: Tensor
    size: Tensor
    gap: Tensor
    iterations: Tensor
    converged: Tensor


def check_start(structure: str, start: Tensor, batch_shape: torch.Size, event: torch.Size) -> None:
    """Vertices to begin with: some number of them for every example."""
    if not isinstance(start, Tensor):
        raise TypeError(f"{structure}: start is a {type(start).__name__}; expected vertices in a tensor.")
    shape = (*batch_shape, *start.shape[len(batch_shape) : len(batch_shape) + 1], *event)
    if tuple(start.shape) != shape:
        expected = ", ".join(map(str, (*batch_shape, "k", *event)))
        raise ValueError(
            f"{structure}: start has shape {tuple(start.shape)}; expected ({expected}), k vertices of each example."
        )


class Search:
    """The arrays of the active-set kernel, whose first axis counts the examples, and the argmax that feeds it."""

    vertices: NDArray[Any]  # (batch, capacity, parts)
    factor: NDArray[Any]  # (batch, capacity + 3, capacity)
    weights: NDArray[Any]  # (batch, capacity)

    def __init__(
        self, argmax: Callable[[Tensor], Tensor], scores: Tensor, event_dims: int, each: bool, tolerance: float
    ) -> None:
        self.argmax, self.like, self.each = argmax, scores, each
        self.batch_shape = scores.shape[: scores.dim() - event_dims]
        self.event = scores.shape[scores.dim() - event_dims :]
        self.batch, self.parts = self.batch_shape.numel(), self.event.numel()
        exact = scores.detach().to("cpu", torch.float64).reshape(self.batch, self.parts)
        self.scores: NDArray[Any] = exact.contiguous().numpy()  # for other strides kernels would be compiled anew
        self.requested, self.size = tolerance, np.ones(self.batch)
        # Vertices come in the dtype of the scores, in which zeros and ones are exact.
        self.dtype = np.float64 if scores.dtype == torch.float64 else np.float32
        self.point = np.zeros((self.batch, self.parts))
        self.count, self.iterations = np.zeros(self.batch, np.int64), np.zeros(self.batch, np.int64)
        self.status = np.zeros(self.batch, np.int64)
        self.gap = np.full(self.batch, np.inf)
        self.resize(min(8, self.parts + 2))

    @property
    def rounding(self) -> NDArray[Any]:
        """Of ⟨s − μ, z⟩; parts that no answer has used do not count, however low their scores are."""
        return 1e-15 * self.parts * self.size

    @property
    def tolerance(self) -> NDArray[Any]:
        return self.requested + self.rounding

    def resize(self, capacity: int) -> None:
        """Room for `capacity` vertices per example; those there are stay."""
        vertices = np.zeros((self.batch, capacity, self.parts), self.dtype)
        factor, weights = np.zeros((self.batch, capacity + 3, capacity)), np.zeros((self.batch, capacity))
        if hasattr(self, "weights"):
            old = self.weights.shape[1]
            vertices[:, :old], weights[:, :old] = self.vertices, self.weights
            factor[:, :old, :old], factor[:, -3:, :old] = self.factor[:, :old], self.factor[:, -3:]
        self.vertices, self.factor, self.weights = vertices, factor, weights

    def make_room(self) -> None:
        """At most parts + 1 vertices are affinely independent, and one more place is for the answer in question."""
        capacity = self.weights.shape[1]
        if self.count.max() >= capacity:
            self.resize(min(2 * capacity, self.parts + 2))

    def call(self, kernel: Kernel, *arguments: Any) -> int:
        capacity = self.weights.shape[1]
        return over_batch(kernel, arguments, batch=self.batch, work=self.batch * capacity * (self.parts + capacity))

    def begin(self, start: Tensor) -> None:
        """The projection onto the hull of the given vertices."""
        check_start("search", start, self.batch_shape, self.event)
        pool = self.read(start, torch.Size((self.batch, -1, self.parts)))
        self.measure(np.abs(pool).max(1, initial=0.0))
        pool[~pool.any(-1)] = np.nan  # padding
        self.resize(max(self.weights.shape[1], min(pool.shape[1], self.parts + 1) + 1))
        arrays = (self.vertices, self.factor, self.weights, self.count, self.point)
        self.call(kernels.active_set.seed, self.scores, pool, self.tolerance, *arrays)

    def measure(self, used: NDArray[Any]) -> None:
        """Takes note of the parts in use: the size of their scores, and of a vertex there, is the unit of rounding."""
        used = np.abs(used)
        scores = np.where((used != 0) & np.isfinite(self.scores), np.maximum(np.abs(self.scores), used), 0.0)
        self.size = np.maximum(self.size, (scores * used).max(1, initial=1.0))

    def ask(self, pull: NDArray[Any], which: NDArray[Any]) -> NDArray[Any]:
        """The best vertices for `pull`, at least where `which` is true."""
        given = torch.from_numpy(pull).to(self.like.device)
        if not self.each:
            return self.read(self.argmax(given.reshape(self.batch_shape + self.event)), given.shape)
        answer = np.zeros((self.batch, self.parts), self.dtype)
        for b in np.flatnonzero(which):
            answer[b] = self.read(self.argmax(given[b].reshape(self.event)), given[b].shape)
        return answer

    def read(self, answer: Tensor, shape: torch.Size) -> NDArray[Any]:
        return answer.detach().to("cpu", torch.float64).reshape(shape).numpy().astype(self.dtype, "C")

    def run(self, max_iterations: int) -> None:
        running, rounds = self.status == 0, 0
        while running.any() and rounds < max_iterations:
            rounds += 1
            answer = self.ask(self.scores - self.point, running)
            self.measure(answer)
            # The last round only measures the gap: what it would add could not be certified.
            limit = self.tolerance if rounds < max_iterations else np.full(self.batch, np.inf)
            self.make_room()
            arrays = (self.vertices, self.factor, self.weights, self.count, self.point, self.gap, self.status)
            bad = self.call(kernels.active_set.grow, self.scores, answer, limit, *arrays)
            if bad >= 0:
                raise ValueError(
                    f"scores of {name_example(bad, self.batch_shape)} leave no vertex: its argmax is not finite."
                )
            self.iterations += running
            self.refuse_negative_gaps(running)
            running = self.status == 0

    def refuse_negative_gaps(self, running: NDArray[np.bool_]) -> None:
        """No vertex of the point's own mixture may do better than the best vertex."""
        low = running & (self.gap < -self.tolerance)
        if low.any():
            index = int(low.argmax())
            raise ValueError(
                f"the argmax of {name_example(index, self.batch_shape)} scores {-self.gap[index]:.1e} less than a "
                "mixture of vertices it was given or has answered before (a negative gap): either it does not "
                "maximize, or `start` holds something that is not a vertex.  An argmax that is only nearly the best "
                "needs a larger tolerance."
            )

    def span_faces(self) -> None:
        """Tied vertices, until those of every example span the face that its point lies on.

        A direction g that is orthogonal to the span is constant on the face exactly if the face adds nothing to the
        span.  So the argmax of s − μ ± εg, for a random g, finds a new vertex on one side or the other.
        """
        random = np.random.default_rng(0)
        pull = self.scores - self.point
        tied = _TIED + self.rounding
        growing: NDArray[np.bool_] = self.gap <= self.tolerance
        while growing.any():
            direction = random.standard_normal(self.scores.shape)
            direction[np.isneginf(self.scores)] = 0.0
            self.call(kernels.active_set.leave_span, direction, self.vertices, self.factor, self.count)
            direction *= 100 * tied[:, None] / np.abs(direction).max(1, initial=1.0)[:, None]
            grown = np.zeros((2, self.batch), bool)
            for side, found in zip((1.0, -1.0), grown):
                answer = self.ask(pull + side * direction, growing)
                self.iterations += growing
                self.make_room()
                slack = np.where(growing, tied, -np.inf)
                arrays = (self.vertices, self.factor, self.weights, self.count, self.point, found)
                self.call(kernels.active_set.widen, self.scores, answer, slack, *arrays)
            growing = np.logical_or(*grown)

    def result(self) -> Found:
        most = int(self.count.max(initial=1))
        inside = np.arange(most) < self.count[:, None]
        vertices = np.where(inside[..., None], self.vertices[:, :most], 0.0)
        weights = np.where(inside, self.weights[:, :most], 0.0)

        def away(array: NDArray[Any], *event: int, dtype: torch.dtype | None = None) -> Tensor:
            return torch.from_numpy(array).to(self.like.device, dtype).reshape((*self.batch_shape, *event))

        return Found(
            away(vertices, most, *self.event, dtype=self.like.dtype),
            away(weights, most, dtype=self.like.dtype),
            away(self.count),
            away(self.gap),
            away(self.iterations),
            away(self.gap <= self.tolerance),
        )

"""SparseMAP by the active-set method, for any structure that can give its best vertex."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import name_example, over_batch

_TIED = 1e-9  # vertices are on the same face if their values for s − μ are this near


class ConvergenceWarning(UserWarning):
    """A projection ended before its Frank–Wolfe gap was within the tolerance."""


class ConvergenceError(RuntimeError):
    """What a `ConvergenceWarning` becomes when the caller is strict."""


class Projection(NamedTuple):
    """A SparseMAP solution as a mixture of vertices, and how it was reached; nothing in it requires grad.

    vertices: (*batch, m, *event), zeros beyond `count`;  probabilities: (*batch, m);  count, iterations, gap and
    converged: (*batch).  The gap is ⟨s − μ, argmax(s − μ) − μ⟩, and bounds ‖μ − sparsemap(s)‖² from above; iterations
    are calls of the argmax.
    """

    vertices: Tensor
    probabilities: Tensor
    count: Tensor  # type: ignore[assignment]
    iterations: Tensor
    gap: Tensor
    converged: Tensor


def project(
    argmax: Callable[[Tensor], Tensor],
    scores: Tensor,
    event_dims: int,
    *,
    each: bool = False,
    start: Tensor | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 5000,
    strict: bool = False,
    spanning: bool = False,
) -> Projection:
    """The projection of `scores` onto the convex hull of what `argmax` can answer.

    Every round asks for argmax(s − μ) in double precision, for the whole batch, or with `each` for one instance after
    the other; besides, it costs O(count · parts + count²).  An example has converged when its gap is at most
    `tolerance`, and what rounding adds to it where the vertices have large scores.  Those that have not after
    `max_iterations` rounds, or for which the argmax has no new answer, are warned about, or raise if `strict`.  `start`
    (*batch, k, *event) holds vertices to begin with, padded with zeros, such as those of an earlier solution.

    The gap is quadratic in the distance, so it vanishes before the vertices in use span the face that μ lies on.  With
    `spanning`, vertices that are tied with them follow, with probability 0, until the face is spanned: its span, not
    theirs, is where μ moves when s does.
    """
    # The search calls back into Python, so it is not compiled; decorating it would import the whole compiler.
    solve = torch.compiler.disable(_solve) if torch.compiler.is_compiling() else _solve
    found: Projection = solve(argmax, scores, event_dims, each, start, tolerance, max_iterations, spanning)
    if not found.converged.all():
        _complain(found, tolerance, strict)
    return found


def _solve(
    argmax: Callable[[Tensor], Tensor],
    scores: Tensor,
    event_dims: int,
    each: bool,
    start: Tensor | None,
    tolerance: float,
    max_iterations: int,
    spanning: bool,
) -> Projection:
    search = _Search(argmax, scores, event_dims, each, tolerance)
    if start is not None:
        search.begin(start)
    search.run(max_iterations)
    if spanning:
        search.span_faces()
    return search.result()


def moving_point(scores: Tensor, found: Projection, event_dims: int) -> Tensor:
    """The point that `found` mixes, as a function of the scores it was found for.

    μ + P(s − s₀), with P the orthogonal projector onto the span of the vertices' differences: from a `spanning`
    projection this has the Jacobian of SparseMAP.  Differentiable in the scores.
    """
    weights = found.probabilities[(...,) + (None,) * event_dims]
    point = (weights * found.vertices).sum(-1 - event_dims)
    if not (torch.is_grad_enabled() and scores.requires_grad):
        return point
    first = found.vertices.select(scores.dim() - event_dims, 0).unsqueeze(-1 - event_dims)
    inside = torch.arange(found.probabilities.shape[-1], device=scores.device) < found.count.unsqueeze(-1)
    rows = ((found.vertices - first).flatten(-event_dims) * inside.unsqueeze(-1)).double()
    unused = 1.0 - inside.double()
    unused[..., 0] = 1.0  # the first differs from itself by nothing: its equation is x = 0
    factor = torch.linalg.cholesky(rows @ rows.mT + torch.diag_embed(unused))
    moved = scores.masked_fill(scores == -torch.inf, 0).flatten(-event_dims).double()
    moved = (moved - moved.detach()).unsqueeze(-1)
    step = rows.mT @ torch.cholesky_solve(rows @ moved, factor)
    return point + step.squeeze(-1).reshape(scores.shape).to(scores.dtype)


def check_start(start: Tensor, batch_shape: torch.Size, event: torch.Size) -> None:
    """Vertices to begin with: some number of them for every example."""
    shape = (*batch_shape, *start.shape[len(batch_shape) : len(batch_shape) + 1], *event)
    if tuple(start.shape) != shape:
        raise ValueError(f"start has shape {tuple(start.shape)}; expected (*batch, k, *event) = {shape}.")


def _complain(found: Projection, tolerance: float, strict: bool) -> None:
    late = ~found.converged.flatten()
    rounds = int(found.iterations.flatten()[late].max())
    message = (
        f"SparseMAP did not converge for {int(late.sum())} of {late.numel()} examples after {rounds} rounds: "
        f"the largest gap is {float(found.gap.flatten()[late].max()):.1e}, "
        f"expected at most {tolerance:.1e}."
    )
    if strict:
        raise ConvergenceError(message)
    warnings.warn(message, ConvergenceWarning, stacklevel=3)


class _Search:
    """The arrays of the active-set kernel, whose first axis counts the examples, and the argmax that feeds it."""

    vertices: NDArray[Any]  # (batch, capacity, parts)
    factor: NDArray[Any]  # (batch, capacity + 2, capacity)
    weights: NDArray[Any]  # (batch, capacity)

    def __init__(
        self, argmax: Callable[[Tensor], Tensor], scores: Tensor, event_dims: int, each: bool, tolerance: float
    ) -> None:
        self.argmax, self.like, self.each = argmax, scores, each
        self.batch_shape = scores.shape[: scores.dim() - event_dims]
        self.event = scores.shape[scores.dim() - event_dims :]
        self.batch, self.parts = self.batch_shape.numel(), self.event.numel()
        self.scores: NDArray[Any] = scores.detach().to("cpu", torch.float64).reshape(self.batch, self.parts).numpy()
        self.requested, self.size = tolerance, np.ones(self.batch)
        # Zeros and ones are exact in any dtype; double precision is for callers who asked for it.
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
        factor, weights = np.zeros((self.batch, capacity + 2, capacity)), np.zeros((self.batch, capacity))
        if hasattr(self, "weights"):
            old = self.weights.shape[1]
            vertices[:, :old], weights[:, :old] = self.vertices, self.weights
            factor[:, :old, :old], factor[:, -2:, :old] = self.factor[:, :old], self.factor[:, -2:]
        self.vertices, self.factor, self.weights = vertices, factor, weights

    def make_room(self) -> None:
        """At most parts + 1 vertices are affinely independent, and one more place is for the answer in question."""
        capacity = self.weights.shape[1]
        if self.count.max() >= capacity:
            self.resize(min(2 * capacity, self.parts + 2))

    def call(self, kernel: Callable[..., int], *arguments: Any) -> int:
        capacity = self.weights.shape[1]
        return over_batch(kernel, *arguments, batch=self.batch, work=self.batch * capacity * (self.parts + capacity))

    def begin(self, start: Tensor) -> None:
        """The projection onto the hull of the given vertices."""
        check_start(start, self.batch_shape, self.event)
        if not bool(((start == 0) | (start == 1)).all()):
            raise ValueError("start holds numbers other than 0 and 1; expected vertices.")
        pool = start.detach().to("cpu", torch.float64).reshape(self.batch, -1, self.parts).numpy().astype(self.dtype)
        pool[~pool.any(-1)] = np.nan  # padding
        self.resize(max(self.weights.shape[1], min(pool.shape[1], self.parts + 1) + 1))
        arrays = (self.vertices, self.factor, self.weights, self.count, self.point)
        self.call(kernels.active_set.seed, self.scores, pool, self.tolerance, *arrays)

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
        return answer.detach().to("cpu", torch.float64).reshape(shape).numpy().astype(self.dtype)

    def run(self, max_iterations: int) -> None:
        running, rounds = self.status == 0, 0
        while running.any() and rounds < max_iterations:
            rounds += 1
            answer = self.ask(self.scores - self.point, running)
            used = np.where((answer != 0) & np.isfinite(self.scores), self.scores, 0.0)
            self.size = np.maximum(self.size, np.abs(used).max(1, initial=1.0))
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
            running = self.status == 0

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

    def result(self) -> Projection:
        most = int(self.count.max(initial=1))
        inside = np.arange(most) < self.count[:, None]
        vertices = np.where(inside[..., None], self.vertices[:, :most], 0.0)
        weights = np.where(inside, self.weights[:, :most], 0.0)

        def away(array: NDArray[Any], *event: int, dtype: torch.dtype | None = None) -> Tensor:
            return torch.from_numpy(array).to(self.like.device, dtype).reshape((*self.batch_shape, *event))

        return Projection(
            away(vertices, most, *self.event, dtype=self.like.dtype),
            away(weights, most, dtype=self.like.dtype),
            away(self.count),
            away(self.iterations),
            away(self.gap),
            away(self.gap <= self.tolerance),
        )

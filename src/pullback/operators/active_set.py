"""SparseMAP for any structure that can give its best vertex, by the active-set method.

The search calls the argmax from Python, round by round, with the rounds themselves in a kernel.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.operators._convergence import ConvergenceError, warn_of_gap
from pullback.operators._kernel_operator import EXAMPLES, name_example
from pullback.operators._register import register
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


def search(
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
) -> Found:
    """The projection of `scores` onto the convex hull of what `argmax` can answer.

    Every round asks for argmax(s − μ) in double precision, for the whole batch, or with `each` for one instance after
    the other; besides, it costs O(size · parts + size²).  An example has converged when its gap is at most
    `tolerance`, and what rounding adds to it where the vertices have large scores.  Those that have not after
    `max_iterations` rounds, or for which the argmax has no new answer, are warned about, or raise if `strict`.  `start`
    (*batch, k, *event) holds vertices to begin with, padded with zeros, such as those of an earlier solution.

    The gap is quadratic in the distance, so it vanishes before the vertices in use span the face that μ lies on.  With
    `spanning`, vertices that are tied with them follow, with probability 0, until the face is spanned: its span, not
    theirs, is where μ moves when s does.
    """
    state = _Search(argmax, scores, event_dims, each, tolerance)
    if start is not None:
        state.begin(start)
    state.run(max_iterations)
    if spanning:
        state.span_faces()
    found = state.result()
    if not found.converged.all():
        _complain(found, tolerance, strict)
    return found


def point_of(found: Found, event_dims: int) -> Tensor:
    """The point that the vertices mix to."""
    weights = found.probabilities[(...,) + (None,) * event_dims]
    return (weights * found.vertices).sum(-1 - event_dims)


def differentiate(found: Found, gradient: Tensor, event_dims: int) -> Tensor:
    """The Jacobian of SparseMAP, from a `spanning` search, times `gradient`.

    It is P, the orthogonal projector onto the span of the vertices' differences.
    """
    first = found.vertices.select(gradient.dim() - event_dims, 0).unsqueeze(-1 - event_dims)
    inside = torch.arange(found.probabilities.shape[-1], device=gradient.device) < found.size.unsqueeze(-1)
    rows = ((found.vertices - first).flatten(-event_dims) * inside.unsqueeze(-1)).double()
    unused = 1.0 - inside.double()
    unused[..., 0] = 1.0  # the first differs from itself by nothing: its equation is x = 0
    factor = torch.linalg.cholesky(rows @ rows.mT + torch.diag_embed(unused))
    column = gradient.flatten(-event_dims).double().unsqueeze(-1)
    product = rows.mT @ torch.cholesky_solve(rows @ column, factor)
    return product.squeeze(-1).reshape(gradient.shape).to(gradient.dtype)


def check_start(start: Tensor, batch_shape: torch.Size, event: torch.Size) -> None:
    """Vertices to begin with: some number of them for every example."""
    shape = (*batch_shape, *start.shape[len(batch_shape) : len(batch_shape) + 1], *event)
    if tuple(start.shape) != shape:
        raise ValueError(f"start has shape {tuple(start.shape)}; expected (*batch, k, *event) = {shape}.")


def _complain(found: Found, tolerance: float, strict: bool) -> None:
    late = ~found.converged.flatten()
    rounds = int(found.iterations.flatten()[late].max())
    message = (
        f"SparseMAP did not converge for {int(late.sum())} of {late.numel()} examples after {rounds} rounds: "
        f"the largest gap is {float(found.gap.flatten()[late].max()):.1e}, "
        f"expected at most {tolerance:.1e}."
    )
    if strict:
        raise ConvergenceError(message)
    warn_of_gap(message)


class _Nearest(torch.autograd.Function):
    """The point that a search finds, with what it found kept for the derivative."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, find: Callable[..., Found], event_dims: int) -> Tensor:
        ctx.found, ctx.event_dims = find(scores, spanning=True), event_dims
        return point_of(ctx.found, event_dims)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return differentiate(ctx.found, gradient, ctx.event_dims), None, None


def eager_nearest(scores: Tensor, find: Callable[..., Found], event_dims: int) -> Tensor:
    """The nearest point by the search `find`, outside of compilers and transforms."""
    if torch.is_grad_enabled() and scores.requires_grad:
        point: Tensor = _Nearest.apply(scores, find, event_dims)  # type: ignore[no-untyped-call]
        return point
    return point_of(find(scores.detach()), event_dims)


# ---- as an operator, for compilers and vmap

SEARCHES: list[Callable[[list[Tensor]], Callable[..., Found]]] = []
"""Searches by number: each takes the tensors that belong to a structure, and gives a function of scores."""


def _nearest(scores: Tensor, facts: list[Tensor], number: int, event_dims: int) -> Tensor:
    return point_of(SEARCHES[number](facts)(scores), event_dims)


def _nearest_backward(gradient: Tensor, scores: Tensor, facts: list[Tensor], number: int, event_dims: int) -> Tensor:
    return differentiate(SEARCHES[number](facts)(scores, spanning=True), gradient, event_dims)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *_, scores, facts, ctx.number, ctx.event_dims = inputs
    ctx.save_for_backward(scores, *facts)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The Jacobian is symmetric, and constant wherever it exists; so this is its own derivative too."""
    scores, *facts = ctx.saved_tensors
    product = nearest_backward(gradient, scores, facts, ctx.number, ctx.event_dims)
    return product, [None] * len(facts), None, None


def _differentiate_again(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    product, *rest = _differentiate(ctx, gradient)
    return product, None, *rest


nearest = register(
    "nearest(Tensor scores, Tensor[] facts, int number, int event_dims) -> Tensor",
    _nearest,
    lambda scores, *_: scores.new_empty(scores.shape),
    save=_save,
    backward=_differentiate,
)
"""The nearest point by the search of that number; it is searched for again where a derivative is asked for."""

nearest_backward = register(
    "nearest_backward(Tensor gradient, Tensor scores, Tensor[] facts, int number, int event_dims) -> Tensor",
    _nearest_backward,
    lambda gradient, *_: gradient.new_empty(gradient.shape),
    save=_save,
    backward=_differentiate_again,
)


def _example() -> tuple[Any, ...]:
    """Choices between two items; the search has the number that it is given here."""

    def one_of_two(facts: list[Tensor]) -> Callable[..., Found]:
        best = lambda scores: torch.nn.functional.one_hot(scores.argmax(-1), 2)
        return lambda scores, **options: search(best, scores, 1, **options)

    SEARCHES.append(one_of_two)
    scores = torch.tensor([[0.3, 0.9], [2.0, 0.1]], dtype=torch.float64)
    return scores, [], len(SEARCHES) - 1, 1


EXAMPLES["nearest"] = lambda: (_example()[0].requires_grad_(), *_example()[1:])
EXAMPLES["nearest_backward"] = lambda: (_example()[0].requires_grad_(), *_example())


# ---- the rounds


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

    def call(self, kernel: Kernel, *arguments: Any) -> int:
        capacity = self.weights.shape[1]
        return over_batch(kernel, arguments, batch=self.batch, work=self.batch * capacity * (self.parts + capacity))

    def begin(self, start: Tensor) -> None:
        """The projection onto the hull of the given vertices."""
        check_start(start, self.batch_shape, self.event)
        if not bool(((start == 0) | (start == 1)).all()):
            raise ValueError("start holds numbers other than 0 and 1; expected vertices.")
        pool = start.detach().to("cpu", torch.float64).reshape(self.batch, -1, self.parts).numpy().astype(self.dtype)
        self.measure(pool.max(1, initial=0.0))
        pool[~pool.any(-1)] = np.nan  # padding
        self.resize(max(self.weights.shape[1], min(pool.shape[1], self.parts + 1) + 1))
        arrays = (self.vertices, self.factor, self.weights, self.count, self.point)
        self.call(kernels.active_set.seed, self.scores, pool, self.tolerance, *arrays)

    def measure(self, used: NDArray[Any]) -> None:
        """Takes note of the scores of parts in use, whose size is the unit of rounding."""
        scores = np.where((used != 0) & np.isfinite(self.scores), self.scores, 0.0)
        self.size = np.maximum(self.size, np.abs(scores).max(1, initial=1.0))

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

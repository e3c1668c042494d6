"""SparseMAP for any structure that can give its best vertex, by the active-set method.

The search (`_search`) calls the argmax from Python, round by round.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pullback.operators._convergence import ConvergenceError, warn_of_gap
from pullback.operators._kernel_operator import EXAMPLES
from pullback.operators._register import register
from pullback.operators._search import Found, Search

GAP = 1e-9
"""Where a search ends whose caller does not say: about as far as rounding allows."""


def search(
    argmax: Callable[[Tensor], Tensor],
    scores: Tensor,
    event_dims: int,
    *,
    each: bool = False,
    start: Tensor | None = None,
    tolerance: float = GAP,
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
    state = Search(argmax, scores, event_dims, each, tolerance)
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

"""A structure known by its argmax alone."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.operators._check import check
from pullback.operators._search import Found, check_start
from pullback.operators.active_set import GAP, search
from pullback.structures._checks import check_flag, check_tolerance
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Oracle(Structure):
    """Whatever `best(scores)` chooses among: the caller brings the argmax, as a Python function, and nothing else.

    `best` takes scores (..., *event) with `event_dims` dimensions of parts and gives the best vertex, zeros and ones in
    the same shape; with `batched=False` it is called with one instance at a time, and with `numpy=True` it takes and
    gives NumPy arrays.  A forbidden part has score −∞, and no vertex may use it.

    SparseMAP comes by the active-set method, which asks `best` for argmax(s − μ), in double precision, until the gap is
    at most `tolerance`, 1e-9 if None.  After `max_iterations` rounds it warns with `ConvergenceWarning`, or raises
    `ConvergenceError` if `strict`.  A `best` that rounds, or is only nearly the best, needs a larger tolerance.

    >>> import torch
    >>> def best_two(scores):
    ...     return torch.zeros_like(scores).scatter(-1, scores.topk(2).indices, 1.0)
    >>> Oracle(best_two).sparsemap(torch.tensor([0.5, 0.2, 0.0, -9.0]))
    tensor([0.9333, 0.6333, 0.4333, 0.0000])
    """

    best: Callable[[Any], Any]
    _: KW_ONLY
    event_dims: int = 1
    batched: bool = True
    numpy: bool = False
    tolerance: float | None = None
    max_iterations: int = 5000
    strict: bool = False

    def __post_init__(self) -> None:
        if not callable(self.best):
            raise TypeError(f"Oracle: best is a {type(self.best).__name__}; expected a function of the scores.")
        for name in ("event_dims", "max_iterations"):
            count = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ValueError(f"Oracle: {name} is {count!r}; expected an integer ≥ 1.")
        for option in ("batched", "numpy", "strict"):
            check_flag("Oracle", option, getattr(self, option))
        check_tolerance("Oracle", self.tolerance)

    def argmax(self, scores: Tensor) -> Tensor:
        """What `best` answers: zeros and ones, shaped like `scores`."""
        scores = self.restrict(scores).detach()
        if scores.numel() == 0:
            return scores.clone()
        if self.batched:
            return self._ask(scores)
        rows = scores.reshape(-1, *scores.shape[scores.dim() - self.event_dims :])
        return torch.stack([self._ask(row) for row in rows]).reshape(scores.shape)

    def restrict(self, scores: Tensor) -> Tensor:
        scores = super().restrict(scores)
        numbers = (scores < torch.inf).flatten(-self.event_dims).all(-1)
        check(numbers, "Oracle: the scores of example {example} contain NaN or +inf; expected numbers or -inf.")
        return scores

    def _search(self, scores: Tensor, *, spanning: bool = False, start: Tensor | None = None) -> Found:
        return search(
            self._ask,
            scores,
            self.event_dims,
            each=not self.batched,
            start=start,
            tolerance=self._tolerance_or(GAP),
            max_iterations=self.max_iterations,
            strict=self.strict,
            spanning=spanning and self._is_exact,
        )

    def _known_vertices(self, start: Tensor, scores: Tensor) -> Tensor:
        """All of them: asking about each would cost as much as the search, which notices where one is no vertex."""
        check_start("Oracle", start, *self._split(scores.shape))
        if not bool(((start == 0) | (start == 1)).all()):
            raise ValueError("Oracle: start holds numbers other than 0 and 1; expected vertices.")
        return start

    def _ask(self, scores: Tensor) -> Tensor:
        given = scores.clone()  # the function may write into what it gets
        if self.numpy:
            given = given.to("cpu", torch.promote_types(given.dtype, torch.float32))
        answer = self.best(given.numpy() if self.numpy else given)
        vertex = torch.as_tensor(answer).detach().to(scores)
        if vertex.shape != scores.shape:
            raise ValueError(
                f"Oracle: best gave shape {tuple(vertex.shape)} for scores of shape {tuple(scores.shape)}; "
                "expected the same shape."
            )
        if not bool(((vertex == 0) | (vertex == 1)).all()):
            raise ValueError("Oracle: best gave numbers other than 0 and 1; expected a vertex.")
        return vertex

"""One choice out of n."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from pullback.operators import simplex
from pullback.operators._check import check
from pullback.operators._register import is_plain_eager
from pullback.structures._capabilities import Enumerable, KBest, Simplex, at_least_zero
from pullback.structures._checks import broadcasts, check_sample_shape
from pullback.structures._items import are_subsets
from pullback.structures._numbers import in_single
from pullback.structures._random import uniforms
from pullback.structures._results import Mixture, Solution
from pullback.structures._supports import solution_of_support


def _check(ok: Tensor, scores: Tensor) -> None:
    """Raises where an example is not `ok`, and says what is wrong with its scores, which have been restricted."""
    if is_plain_eager() and not ok.is_meta and bool(ok.all()):
        return
    is_number = (scores < torch.inf).all(-1)
    check(is_number, simplex.NOT_NUMBERS.format(example="example {example}"))
    check(ok | ~is_number, simplex.NO_CHOICE.format(example="example {example}"))


@dataclass(frozen=True, eq=False)
class Categorical(Simplex, KBest, Enumerable):
    """One of n categories.

    Scores: (..., n); the polytope is the simplex, marginals are the softmax and sparsemap is the sparsemax.

    lengths: the number of categories of each example, n if not given;  categories beyond it are padding.
    mask: (..., n), true for categories that may be chosen.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    fixed_sums = (-1,)

    def argmax(self, scores: Tensor) -> Tensor:
        restricted = self.restrict(scores).detach()
        best = restricted.max(-1, keepdim=True)
        _check(best.values.isfinite().squeeze(-1), restricted)
        return torch.zeros_like(scores, dtype=best.values.dtype).scatter(-1, best.indices, 1.0)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """Sparsemax: the nearest point of the simplex.  O(n).  Reference: Martins and Astudillo (2016)."""
        return simplex.sparsemax(self.restrict(scores))

    def entmax(self, scores: Tensor, alpha: float | Tensor) -> Tensor:
        """α-entmax, α ≥ 1: softmax at 1, sparsemax at 2, sparse for any α > 1.  Reference: Peters et al. (2019).

        alpha: a number, or a tensor that broadcasts to the batch and may require grad.  The numbers 1, 1.5 and 2 are
        computed directly; others by a bracketed root finder.
        """
        if not isinstance(alpha, Tensor):
            given: Any = alpha
            if isinstance(given, bool) or not isinstance(given, Real):
                raise TypeError(f"Categorical: alpha is {alpha!r}; expected a number ≥ 1, or a tensor of them.")
            direct = {1.0: self.marginals, 1.5: self._entmax15, 2.0: self.sparsemap}.get(float(alpha))
            if direct is not None:
                return direct(scores)
        scores = self.restrict(scores)
        orders = torch.as_tensor(alpha, dtype=torch.float64, device=scores.device)
        if not broadcasts(orders.shape, scores.shape[:-1]):
            raise ValueError(
                f"Categorical: alpha has shape {tuple(orders.shape)}; expected one that broadcasts to the batch, "
                f"{tuple(scores.shape[:-1])}."
            )
        inside = (orders.detach() >= 1) & (orders.detach() < torch.inf)
        check(inside, "Categorical: alpha{example} is below 1 or not finite; expected numbers ≥ 1.")
        return simplex.entmax(scores, orders.expand(scores.shape[:-1]))

    def _entmax15(self, scores: Tensor) -> Tensor:
        return simplex.entmax15(self.restrict(scores))

    def support(self, scores: Tensor) -> Mixture:
        self._refuse_vmap("support", scores)
        point = self.sparsemap(scores)
        size = (point > 0).sum(-1)
        best = point.detach().topk(int(size.max()) if size.numel() else 0, -1)
        vertices = torch.nn.functional.one_hot(best.indices, point.shape[-1]).to(point.dtype)
        return Mixture(vertices * (best.values > 0).unsqueeze(-1), point.gather(-1, best.indices), size)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        return solution_of_support(self, scores, start)

    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        scores = self.restrict(scores)
        n = scores.shape[-1]
        best = scores.topk(min(k, n), -1)
        _check(best.values[..., 0].isfinite(), scores)
        size = (scores > -torch.inf).sum(-1).clamp_max(k)
        vertices = torch.nn.functional.one_hot(best.indices, n) * (best.values > -torch.inf).unsqueeze(-1)
        return torch.nn.functional.pad(vertices.to(scores.dtype), (0, 0, 0, max(0, k - n))), size

    def log_partition(self, scores: Tensor) -> Tensor:
        """log Σ eˢ."""
        scores = self.restrict(scores)
        exact = in_single(scores)
        best = exact.detach().amax(-1, keepdim=True)
        rest = (exact - best).logsumexp(-1)  # at most log n, so its derivative loses no digits of large scores
        _check(rest.detach().isfinite(), scores.detach())
        return (best.squeeze(-1) + rest).to(scores.dtype)

    def marginals(self, scores: Tensor) -> Tensor:
        """Softmax."""
        scores = self.restrict(scores)
        p = scores.softmax(-1)
        _check(~p.detach()[..., 0].isnan(), scores.detach())
        return p

    def entropy(self, scores: Tensor) -> Tensor:
        """−Σ p log p."""
        scores = self.restrict(scores)
        log_p = scores.double().log_softmax(-1)
        log_p = log_p.masked_fill(log_p == -torch.inf, 0)  # where p is 0
        return at_least_zero(-(self.marginals(scores.double()) * log_p).sum(-1)).to(scores.dtype)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        """−Σ p log p: a point of the simplex is the mean of one distribution only.

        Its derivative grows without bound as a probability vanishes; at exactly 0 it is taken to be 0.
        """
        one = (point.detach().sum(-1) - 1).abs() <= max(1e-4, 10 * torch.finfo(point.dtype).eps)
        allowed = self.allowed(point.shape, point.device)
        inside = one & (point >= 0).all(-1) & are_subsets(point.detach().ceil(), allowed)
        check(inside, "Categorical: the point of example {example} lies outside the polytope; expected probabilities.")
        return at_least_zero(-torch.xlogy(point, torch.where(point > 0, point, 1)).sum(-1))

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        sample_shape = check_sample_shape("Categorical", sample_shape)
        scores = self.restrict(scores).detach()
        reached = self.marginals(scores.double()).cumsum(-1)
        total = reached[..., -1:]
        drawn = uniforms((*sample_shape, *scores.shape[:-1], 1), generator, scores.device) * total
        drawn = drawn.minimum(total.nextafter(torch.zeros_like(total)))  # a product may be rounded up
        is_reached = (drawn < reached).to(scores.dtype)  # 0, …, 0, 1, …, 1
        return is_reached.diff(prepend=torch.zeros_like(is_reached[..., :1]))

    def vertices(self, event: Sequence[int]) -> Tensor:
        return torch.eye(event[-1])

    def contains(self, vertices: Tensor) -> Tensor:
        return are_subsets(vertices, self.allowed(vertices.shape, vertices.device)) & (vertices.sum(-1) == 1)

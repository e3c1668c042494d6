"""Rankings: the orders of n items."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators import ranking
from pullback.operators._check import check
from pullback.structures._capabilities import Enumerable, KBest, LogLinear, vertices_by_length
from pullback.structures._checks import broadcasts
from pullback.structures._limits import check_count
from pullback.structures._structure import Structure


def _is_entropic(regularizer: str) -> bool:
    if regularizer not in ("squared_norm", "entropy"):
        raise ValueError(f'Ranking: regularizer is {regularizer!r}; expected a name: "squared_norm" or "entropy".')
    return regularizer == "entropy"


@dataclass(frozen=True, eq=False)
class Ranking(Enumerable):
    """Ranks 1, 2, …, n, dealt out to n items: the higher an item's score, the larger its rank.

    Scores: (..., n).  A vertex is a permutation of the ranks, not zeros and ones, and the polytope is the
    permutahedron.  For ranks with 1 at the best item, negate the scores.

    lengths: the number of items of each example, n if not given;  items beyond it are padding.
    values: what is dealt out instead of 1, 2, …, n; (n,), or (..., n) with a row for each example.  The highest score
    has the largest value; an example of length l deals out its first l values.

    Every item has a rank, so a score of −∞ is refused.  Of equal scores, the later item has the larger rank.

    Argmax by sorting, SparseMAP by isotonic regression of the sorted scores: O(n) for both.  There is no
    partition function: to sum over all orders takes exponential time.  Reference: Blondel et al. (2020).

    >>> import torch
    >>> scores = torch.tensor([0.3, 2.0, -1.0, 0.5])
    >>> Ranking().argmax(scores)
    tensor([2., 4., 1., 3.])
    >>> Ranking().soft_rank(scores, temperature=1.0)
    tensor([2.3667, 4.0000, 1.0667, 2.5667])
    """

    lengths: Tensor | None = None
    _: KW_ONLY
    values: Tensor | None = None
    is_zero_one = False
    fixed_sums = (-1,)

    def __post_init__(self) -> None:
        if self.values is not None and not isinstance(self.values, Tensor):
            raise TypeError(f"Ranking: values are a {type(self.values).__name__}; expected a tensor of numbers.")

    def argmax(self, scores: Tensor) -> Tensor:
        """The ranks of the scores: 1 for the lowest, or the least of the values."""
        scores, lengths = self._prepare(scores)
        return ranking.argmax(scores.detach(), self._per_example(scores).detach(), lengths)

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The point of the permutahedron nearest to `scores`: soft ranks.  Differentiable, also in the values."""
        return self._project(scores)

    # ---- soft ranks and soft sorting

    def soft_rank(
        self, scores: Tensor, *, temperature: float | Tensor = 1.0, regularizer: str = "squared_norm"
    ) -> Tensor:
        """Ranks that move with the scores: argmax ⟨s / τ, μ⟩ − Ω(μ) over the permutahedron.

        They are the ranks where scores are far apart for the temperature τ, and their mean where scores are equal.
        regularizer: "squared_norm" for Ω(μ) = ½‖μ‖², which makes it `sparsemap(scores / temperature)`, or "entropy" for
        Σ μ log μ − μ, which needs values above 0.  temperature: a number above 0, or a tensor with one per example.
        """
        return self._project(self._cooled(scores, temperature), entropic=_is_entropic(regularizer))

    def soft_sort(
        self, scores: Tensor, *, temperature: float | Tensor = 1.0, regularizer: str = "squared_norm"
    ) -> Tensor:
        """The scores of each example in ascending order, softened: the point nearest to (1, 2, …, n) / τ.

        Nearest among mixtures of permutations of the scores.  They are in order where τ is small, and their mean where
        it is large.  Padding is zero.  temperature: a number above 0, or a tensor with one per example.

        regularizer: "squared_norm" for that, or "entropy" for log argmax ⟨(1, …, n) / τ, μ⟩ − Σ μ log μ − μ among
        mixtures of permutations of exp(scores), computed with logarithms: then all become the logarithm of the mean of
        exp(scores) where τ is large.
        """
        scores, lengths = self._prepare(scores)
        positions = torch.arange(1, scores.shape[-1] + 1, dtype=torch.float64, device=scores.device)
        positions = (positions / self._temperature(temperature, scores)).expand(scores.shape)
        if _is_entropic(regularizer):
            point = ranking.project_logarithms(positions, scores.double(), lengths)[0]
        else:
            point = ranking.project(positions, scores.double(), lengths, False)[0]
        return point.to(scores.dtype)

    # ---- what a ranking is

    def vertices(self, event: Sequence[int]) -> Tensor:
        n = event[-1]
        rows = self._dealt(n, None).detach().reshape(-1, n)

        def deal(length: tuple[int, ...]) -> Tensor:
            (most,) = length
            count = math.factorial(most)
            check_count("Ranking", len(rows) * count)
            orders = torch.tensor(list(itertools.permutations(range(most))), dtype=torch.long)
            dealt = rows[:, orders.reshape(count, most)].flatten(0, 1)
            dealt = dealt if self.values is None else dealt.unique(dim=0)  # some values may be equal
            return torch.nn.functional.pad(dealt, (0, n - most))

        return vertices_by_length(self, event, deal)

    def contains(self, vertices: Tensor) -> Tensor:
        vertices = vertices if vertices.is_floating_point() else vertices.double()
        inside = self.allowed(vertices.shape, vertices.device)
        inside = torch.ones_like(vertices, dtype=torch.bool) if inside is None else inside
        values = self._dealt(vertices.shape[-1], vertices.device).to(vertices.dtype).expand(vertices.shape)
        found, expected = (given.masked_fill(~inside, torch.inf).sort(-1).values for given in (vertices, values))
        return ((vertices == 0) | inside).all(-1) & (found == expected).all(-1)

    # ---- plumbing

    def _cooled(self, scores: Tensor, temperature: float | Tensor) -> Tensor:
        """s / τ; padding sends nothing to the temperature, whatever it holds."""
        scores = self._checked(scores)
        divisor = self._temperature(temperature, scores)
        if isinstance(divisor, Tensor):
            self._check_facts(scores.shape)
            inside = self.allowed(scores.shape, scores.device)
            scores = scores if inside is None else scores.masked_fill(~inside, 0)
        return scores / divisor

    def _temperature(self, temperature: float | Tensor, scores: Tensor) -> float | Tensor:
        """A temperature, ready to divide the scores of each example."""
        if isinstance(temperature, Tensor):
            if temperature.dtype == torch.bool or temperature.is_complex():
                raise TypeError(f"Ranking: temperature has dtype {temperature.dtype}; expected real numbers.")
            check(temperature > 0, "Ranking: temperature{example} is not above 0; expected numbers above 0.")
            batch = self.batch_shape(scores)
            if not broadcasts(temperature.shape, batch):
                raise ValueError(
                    f"Ranking: temperature has shape {tuple(temperature.shape)}; expected one that broadcasts to the "
                    f"batch, {tuple(batch)}."
                )
            return self.widen(temperature) if temperature.dim() else temperature
        expected = "expected a number above 0, or a tensor with one per example"
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
            raise TypeError(f"Ranking: temperature is {temperature!r}; {expected}.")
        if not temperature > 0:
            raise ValueError(f"Ranking: temperature is {temperature!r}; {expected}.")
        return temperature

    def why_not(self, capability: type[Structure]) -> str:
        if capability is LogLinear:
            return (
                "a sum over all orders is out of reach; `sparsemap` is differentiable, and "
                '`soft_rank(scores, regularizer="entropy")` is smooth.'
            )
        if capability is KBest:
            return "orders are not listed by their score; `enumerate` gives all orders of a few items."
        return super().why_not(capability)

    def _project(self, scores: Tensor, entropic: bool = False) -> Tensor:
        scores, lengths = self._prepare(scores)
        values = self._per_example(scores)
        if entropic:
            inside = self.allowed(scores.shape, scores.device)
            positive = values > 0 if inside is None else (values > 0) | ~inside
            check(
                positive.all(-1),
                "Ranking: the values of example {example} are not all above 0; expected numbers above 0 for the "
                "entropy.",
            )
        return ranking.project(scores, values, lengths, entropic)[0]

    def _per_example(self, scores: Tensor) -> Tensor:
        """The values of each example, in double precision."""
        values = self._dealt(scores.shape[-1], scores.device)
        if not broadcasts(values.shape, scores.shape):
            raise ValueError(
                f"Ranking: values have shape {tuple(values.shape)}; expected ({scores.shape[-1]},) or the shape of the "
                f"scores, {tuple(scores.shape)}."
            )
        return values.double().expand(scores.shape)

    def _dealt(self, n: int, device: torch.device | None) -> Tensor:
        """The values of n items, as they were given."""
        if self.values is None:
            return torch.arange(1.0, n + 1, device=device)
        if self.values.shape[-1:] != (n,):
            raise ValueError(f"Ranking: values have shape {tuple(self.values.shape)}; expected (..., {n}).")
        values = self.values.to(device)
        return values if values.is_floating_point() else values.to(torch.get_default_dtype())

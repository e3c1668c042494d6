"""Which gradient is right: estimators beside the exact gradient of the expected loss."""

import copy
import functools
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.estimators._estimator import Estimator, Loss, Memory
from pullback.estimators._inspection import is_nothing
from pullback.estimators.catalog import get_estimator
from pullback.estimators.expectation import minimum_risk
from pullback.estimators.score_function import reinforce
from pullback.regularizers._options import check_count
from pullback.structures._capabilities import Enumerable, LogLinear, require
from pullback.structures._limits import TooManyVertices
from pullback.structures._structure import Structure

_AT_ONCE = 16  # samples of one call, where the exact gradient is estimated
_MOST_LISTED = 4096  # vertices that are decoded one by one for the exact gradient


@dataclass(frozen=True)
class GradientRow:
    """One estimator, averaged over the examples of the batch.

    cosine: of the mean of the draws with the exact gradient; 1 is the right direction.  Noise that is left in the mean
    takes it down: without bias it is about 1 / √(1 + variance / draws).
    bias: ‖E gradient − exact‖ / ‖exact‖, the root of the mean square over examples.  The mean of the draws is further
    away, by variance / draws in the square, and so is an exact gradient that was estimated: both are taken off, and
    where nothing is left the bias is 0.
    scale: how long the mean is along the exact one, 1 if as long.
    variance: E ‖gradient − E gradient‖² / ‖exact‖²; 0 if the estimator is deterministic, or drawn once.  So
    bias² + variance is the mean square of the error.
    zeros: the share of examples and draws with no gradient at all.
    evaluations, solver_calls: of the downstream loss and of the structure, in a training step;  seconds: that it takes.
    draws: how often it was run; two are enough to see that an estimator is deterministic.
    """

    name: str
    cosine: float
    bias: float
    scale: float
    variance: float
    zeros: float
    evaluations: float
    solver_calls: float
    seconds: float
    draws: int


@dataclass(frozen=True)
class GradientComparison:
    """Estimators beside the exact gradient; `print` shows a table, the best direction first.

    exact: the gradient of E L(z) under the Gibbs distribution of the scores, shaped like them.
    standard_error: of `exact`, in the same unit as `bias`, where it was estimated by samples; 0 if by enumeration.
    draws: how often a stochastic estimator was run.
    """

    rows: tuple[GradientRow, ...]
    exact: Tensor
    standard_error: float
    draws: int

    def __str__(self) -> str:
        header = ("estimator", "cosine", "bias", "scale", "variance", "zeros", "decoder", "solver", "ms")
        lines = [
            (
                row.name,
                f"{row.cosine:.3f}",
                f"{row.bias:.3g}",
                f"{row.scale:.3g}",
                f"{row.variance:.3g}",
                f"{row.zeros:.0%}",
                f"{row.evaluations:.4g}",
                f"{row.solver_calls:.4g}",
                f"{1e3 * row.seconds:.3g}",
            )
            for row in sorted(self.rows, key=lambda row: -row.cosine)
        ]
        widths = [max(map(len, column)) for column in zip(header, *lines)]

        def show(cells: Iterable[str]) -> str:
            first, *others = (cell.rjust(width) for cell, width in zip(cells, widths))
            return "  ".join([first.strip().ljust(widths[0]), *others])

        how = (
            "by enumeration"
            if self.standard_error == 0
            else f"by samples, relative standard error {self.standard_error:.2g}"
        )
        return "\n".join([show(header), *map(show, lines), f"exact gradient {how}; {self.draws} draws"])

    def to_pandas(self) -> Any:
        """The rows as a `pandas.DataFrame`, where pandas is installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas: pandas is not installed; `pip install pandas` brings it.") from error
        return pandas.DataFrame([asdict(row) for row in self.rows]).set_index("name")

    def plot(self) -> Any:
        """Direction against variance, one point for each estimator: a matplotlib figure, where that is installed."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("plot: matplotlib is not installed; `pip install matplotlib` brings it.") from error
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        axes = figure.subplots()
        for row in self.rows:
            axes.scatter(row.variance, row.cosine, s=30 + 6 * row.evaluations, alpha=0.7)
            axes.annotate(row.name, (row.variance, row.cosine), xytext=(4, 4), textcoords="offset points", fontsize=8)
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.set_xlabel("variance / ‖exact‖²")
        axes.set_ylabel("cosine with the exact gradient")
        axes.set_title("size: decoder evaluations", fontsize=9)
        return figure


def compare_gradients(
    structure: Structure,
    scores: Tensor,
    downstream: Loss,
    estimators: Mapping[str, Estimator] | Iterable[str],
    *,
    draws: int = 100,
    samples: int = 4096,
    generator: torch.Generator | None = None,
) -> GradientComparison:
    """Each estimator's gradient beside the exact gradient of the expected loss E L(z), z ~ p(z) ∝ exp⟨s, z⟩.

    estimators: a dictionary of them, or names in the catalog.
    draws: how often a stochastic estimator is run.
    samples: where there are too many vertices to decode them all, the exact gradient is estimated by REINFORCE with a
    leave-one-out baseline and so many samples; the comparison then says how exact that is.
    generator: where the seed of all draws comes from; estimators that have one of their own draw from that.

    Random numbers, and what estimators remember, are put back afterwards.

    Estimators that pull labels back point downhill at a length of their own: compare their `cosine`, not their `bias`.
    """
    check_count("compare_gradients: draws", draws)
    check_count("compare_gradients: samples", samples)
    require(structure, LogLinear, "compare_gradients")
    if isinstance(estimators, str):
        raise TypeError(f"compare_gradients: estimators is {estimators!r}; expected a list of names or a dictionary.")
    chosen = estimators if isinstance(estimators, Mapping) else {name: _named(name) for name in estimators}
    memories = [Memory(one) for one in chosen.values()]
    with torch.random.fork_rng([scores.device] if scores.device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        exact = _exact(structure, scores, downstream, samples)
        rows = [_row(name, one, structure, scores, downstream, exact, draws) for name, one in chosen.items()]
    for memory in memories:
        memory.restore()
    return GradientComparison(tuple(rows), exact.gradient, exact.standard_error, draws)


def _named(name: str) -> Estimator:
    if not isinstance(name, str):
        raise TypeError(
            f"compare_gradients: estimators has a {type(name).__name__} in it; expected a list of names, or a "
            'dictionary such as {"spigot, small": pb.spigot(0.1)}.'
        )
    return get_estimator(name)


def _gradient(estimator: Estimator, structure: Structure, scores: Tensor, downstream: Loss) -> Tensor:
    given = scores.detach().clone().requires_grad_()
    with torch.enable_grad():
        losses = estimator.loss(structure, given, downstream)
        if not losses.requires_grad:
            return torch.zeros_like(given)
        (gradient,) = torch.autograd.grad(losses.sum(), given, allow_unused=True)
    return torch.zeros_like(given) if gradient is None else gradient


@dataclass(frozen=True)
class _Exact:
    """The gradient of the expected loss, and how far off it is, E ‖gradient − exact‖² of each example."""

    gradient: Tensor
    parts: Tensor  # the gradient with the parts of a structure in one dimension, in double precision
    squared_error: Tensor

    @property
    def standard_error(self) -> float:
        """Relative to the gradient, the mean over examples."""
        if not bool(self.squared_error.any()):
            return 0.0
        return float((self.squared_error.sqrt() / self.parts.norm(dim=-1)).nanmean())


def _exact(structure: Structure, scores: Tensor, downstream: Loss, samples: int) -> _Exact:
    """By enumeration, or by samples if there are too many structures."""
    dims = structure.event_dims
    if structure.offers(Enumerable) and _is_short(structure, scores):
        gradient = _gradient(minimum_risk(), structure, scores, downstream)
        parts = gradient.flatten(-dims).double()
        return _Exact(gradient, parts, torch.zeros_like(parts[..., 0]))
    estimator, rounds = reinforce(_AT_ONCE, "leave_one_out"), max(2, math.ceil(samples / _AT_ONCE))
    drawn = torch.stack([_gradient(estimator, structure, scores, downstream) for _ in range(rounds)])
    mean, variance = drawn.mean(0), drawn.double().var(0).flatten(-dims).sum(-1)
    return _Exact(mean, mean.flatten(-dims).double(), variance / rounds)


def _is_short(structure: Structure, scores: Tensor) -> bool:
    if not structure.has_own_scores and scores.numel():
        # The logarithm of how many there are: lists that are too long to be used may also be too long to be made.
        count = require(structure, LogLinear, "compare_gradients").log_partition(torch.zeros_like(scores)).amax()
        if float(count) > math.log(_MOST_LISTED) + 0.01:
            return False
    try:
        listed = require(structure, Enumerable, "compare_gradients").enumerate(scores.shape)
    except TooManyVertices:
        return False
    return len(listed.vertices) <= _MOST_LISTED


def _row(
    name: str,
    estimator: Estimator,
    structure: Structure,
    scores: Tensor,
    downstream: Loss,
    exact: _Exact,
    draws: int,
) -> GradientRow:
    calls = 0

    def counted(point: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return downstream(point)

    watched, solver = _watched(structure)
    _gradient(estimator, watched, scores, counted)  # loads and compiles what is needed
    calls, solver.calls = 0, 0
    found: list[Tensor] = []
    begin = time.perf_counter()
    while len(found) < draws:
        found.append(_gradient(estimator, watched, scores, counted))
        if len(found) == 2 and torch.equal(found[0], found[1]) and bool(found[0].any()):
            break  # deterministic; where nothing arrives, more draws may tell
    seconds = (time.perf_counter() - begin) / len(found)
    dims = structure.event_dims
    drawn = torch.stack([gradient.flatten(-dims).double() for gradient in found])  # (draws, *batch, parts)
    true, mean = exact.parts, drawn.mean(0)
    variance = (drawn - mean).square().sum((0, -1)) / max(len(found) - 1, 1)
    squared_bias = (mean - true).square().sum(-1) - variance / len(found) - exact.squared_error
    length = true.norm(dim=-1)
    in_use = ~is_nothing(length)  # an example whose expected loss cannot be lowered says nothing about directions

    def average(per_example: Tensor) -> float:
        return float(per_example[in_use].mean()) if bool(in_use.any()) else math.nan

    along = (mean * true).sum(-1)
    return GradientRow(
        name=name,
        cosine=average(along / (length * mean.norm(dim=-1)).clamp_min(1e-300)),
        bias=math.sqrt(max(average(squared_bias / length.square()), 0.0)),  # noise may have taken it below 0
        scale=average(along / length.square()),
        variance=average(variance / length.square()),
        zeros=float(is_nothing(drawn.norm(dim=-1)).double().mean()),
        evaluations=calls / len(found),
        solver_calls=solver.calls / len(found),
        seconds=seconds,
        draws=len(found),
    )


class _Solver:
    """How often a structure was asked to solve something."""

    VERBS = ("argmax", "sparsemap", "project", "support", "solve", "marginals", "log_partition", "sample", "topk")

    def __init__(self) -> None:
        self.calls = 0
        self.depth = 0


def _watched(structure: Structure) -> tuple[Structure, _Solver]:
    """A copy of the structure that counts what it is asked for from outside."""
    solver = _Solver()

    def watch(method: Any) -> Any:
        @functools.wraps(method)
        def counting(self: Any, *arguments: Any, **options: Any) -> Any:
            solver.calls += solver.depth == 0
            solver.depth += 1
            try:
                return method(self, *arguments, **options)
            finally:
                solver.depth -= 1

        return counting

    kind = type(structure)
    verbs = {verb: watch(getattr(kind, verb)) for verb in _Solver.VERBS if hasattr(kind, verb)}
    copied = copy.copy(structure)
    object.__setattr__(copied, "__class__", type(kind.__name__, (kind,), verbs))
    return copied, solver

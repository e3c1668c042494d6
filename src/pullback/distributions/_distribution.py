"""The interface of a distribution over the vertices of a structure, and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from pullback.operators._check import check
from pullback.operators._register import is_plain_eager
from pullback.structures._capabilities import Enumerable, require
from pullback.structures._checks import broadcasts
from pullback.structures._structure import Structure

Self = TypeVar("Self", bound="StructureDistribution")


class StructureDistribution(Distribution, ABC):
    """A distribution over the vertices of a structure, as `torch.distributions` has them.

    Scores (*batch, *event) say how likely each vertex is; a value is a vertex, shaped like them.  Lengths, masks and
    whatever else a structure carries broadcast to the batch, which may therefore grow by `expand`.

    structure: what is chosen.  scores: one for each part; −∞ forbids a part, and padding is never read.
    validate_args: whether scores and values are checked, as everywhere in `torch.distributions`.
    """

    def __init__(self, structure: Structure, scores: Tensor, validate_args: bool | None = None) -> None:
        name = type(self).__name__
        if not isinstance(structure, Structure):
            raise TypeError(f"{name}: structure is a {type(structure).__name__}; expected a Structure.")
        self.structure, self.scores = structure, scores
        validates = Distribution._validate_args if validate_args is None else validate_args
        if validates:
            message = "the scores of example {example} contain NaN or +inf; expected numbers, or -inf to forbid a part."
            check(_Scores(structure).check(scores), f"{name}: {message}")
        at = scores.dim() - structure.event_dims
        super().__init__(scores.shape[:at], scores.shape[at:], validate_args=False)  # theirs stops torch.compile
        self._validate_args = validates

    # ---- what a member says

    @abstractmethod
    def sample(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Independent vertices: (*sample_shape, *batch, *event).  Exact; never requires grad."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """−Σ p(z) log p(z), one number per example."""

    @abstractmethod
    def _log_prob(self, vertices: Tensor) -> Tensor:
        """The log-probability of each vertex (..., *batch, *event), and −∞ of what is none: (..., *batch)."""

    # ---- what follows

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(z) of each vertex in `value`, whose leading dimensions broadcast to the batch.

        A value that is not a vertex is refused, or has −∞ where `validate_args` is false.
        """
        vertices = self._in_batch(value)
        log_prob = self._log_prob(vertices)
        if self._validate_args:
            impossible = log_prob.detach() == -torch.inf
            if not is_plain_eager() or bool(impossible.any()):  # where all have a probability, all are vertices
                check(
                    ~impossible | self.structure.contains(vertices),
                    f"{type(self).__name__}: the value of example {{example}} is not a vertex of "
                    f"{type(self.structure).__name__}, given its lengths and mask; expected one, or "
                    "validate_args=False for a log-probability of -inf.",
                )
        return log_prob

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Every vertex: (m, *batch, *event), or (m, 1, …, 1, *event) if not `expand`.

        Where examples differ in length or mask, these are the vertices of all of them; those of other examples have a
        log-probability of −∞ if `validate_args` is false, and are refused otherwise.
        """
        enumerable = require(self.structure, Enumerable, f"{type(self).__name__}.enumerate_support")
        vertices = enumerable.enumerate(self.scores.shape).vertices.to(self.scores)
        vertices = vertices.reshape(-1, *(1,) * len(self.batch_shape), *self.event_shape)
        return vertices.expand(-1, *self.batch_shape, *self.event_shape) if expand else vertices

    def expand(self: Self, batch_shape: Sequence[int], _instance: Self | None = None) -> Self:
        """The same distribution with a larger batch, by the rules of `Tensor.expand`."""
        batch = torch.Size(batch_shape)
        if not broadcasts(self.batch_shape, batch):
            raise ValueError(
                f"{type(self).__name__}.expand: the batch has shape {tuple(self.batch_shape)}; expected one that "
                f"broadcasts to {tuple(batch)}."
            )
        new = type(self).__new__(type(self)) if _instance is None else _instance
        new.structure, new.scores = self.structure, self.scores.expand(*batch, *self.event_shape)
        Distribution.__init__(new, batch, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def has_enumerate_support(self) -> bool:  # type: ignore[override]
        """Whether the structure can list its vertices."""
        return self.structure.offers(Enumerable)

    @property
    def support(self) -> constraints.Constraint:
        """The vertices, as a constraint: its `check` asks the structure."""
        return _Vertices(self)

    @property
    def arg_constraints(self) -> dict[str, constraints.Constraint]:
        """Scores are numbers, or −∞; padding may be anything."""
        return {"scores": _Scores(self.structure)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.structure).__name__}, scores: {tuple(self.scores.shape)})"

    # ---- plumbing

    def _in_batch(self, value: Any) -> Tensor:
        """`value` as (..., *batch, *event), in the dtype of the scores."""
        if not isinstance(value, Tensor):
            raise TypeError(f"{type(self).__name__}: the value is a {type(value).__name__}; expected a tensor.")
        whole, given = self.scores.shape, value.to(self.scores.dtype)
        if value.shape[-len(whole) :] == whole:
            return given
        at = value.dim() - len(self.event_shape)
        if at >= 0 and value.shape[at:] == self.event_shape:
            with suppress(RuntimeError):
                batch = torch.broadcast_shapes(value.shape[:at], self.batch_shape)
                return given.expand(*batch, *self.event_shape)
        raise ValueError(
            f"{type(self).__name__}: the value has shape {tuple(value.shape)}; expected one that ends with the parts, "
            f"{tuple(self.event_shape)}, and broadcasts to {tuple(whole)}."
        )


class _Vertices(constraints.Constraint):
    """Being a vertex, for each example of a distribution's batch."""

    is_discrete = True

    def __init__(self, distribution: StructureDistribution) -> None:
        self._distribution = distribution
        self.event_dim = distribution.structure.event_dims

    def check(self, value: Tensor) -> Tensor:
        return self._distribution.structure.contains(self._distribution._in_batch(value))

    def __repr__(self) -> str:
        return f"Vertices({type(self._distribution.structure).__name__})"


class _Scores(constraints.Constraint):
    """Being scores of a structure: below +∞ and not NaN, wherever a part exists."""

    def __init__(self, structure: Structure) -> None:
        self.structure, self.event_dim = structure, structure.event_dims

    def check(self, value: Tensor) -> Tensor:
        return (self.structure.restrict(value).detach() < torch.inf).flatten(-self.event_dim).all(-1)

    def __repr__(self) -> str:
        return f"Scores({type(self.structure).__name__})"


def check_same(p: StructureDistribution, q: StructureDistribution) -> None:
    """Raises unless two distributions are over the same structure: one object, or two whose fields are equal.

    A tensor that requires grad is the same as itself alone: what it adds to both would otherwise be told apart.
    """
    one, other = p.structure, q.structure
    if not _same(one, other):
        names = getattr(one, "__dataclass_fields__", ()) if type(one) is type(other) else ()
        fields = ", ".join(name for name in names if not _same(getattr(one, name), getattr(other, name)))
        where = f" that differ in {fields}" if fields else ""
        raise ValueError(
            f"kl_divergence: the structures are {type(one).__name__} and {type(other).__name__}{where}; expected the "
            "same structure for both."
        )
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"kl_divergence: the parts have shapes {tuple(p.event_shape)} and {tuple(q.event_shape)}; expected the "
            "same for both."
        )


def _same(one: Any, other: Any) -> bool:
    """Whether two structures, or the values of their fields, are the same."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return torch.equal(one, other) and not (one.requires_grad or other.requires_grad)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Structure):
        names = getattr(one, "__dataclass_fields__", ())
        return bool(names) and all(_same(getattr(one, name), getattr(other, name)) for name in names)
    return bool(one == other)

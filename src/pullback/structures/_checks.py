"""What users may give to a structure, scores and lengths for instance, and the errors where that does not fit."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pullback.operators._check import check
from pullback.operators._register import is_plain_eager


def check_lengths(name: str, lengths: Tensor, shape: torch.Size, axes: int = 1) -> None:
    """Lengths are integers and broadcast to `shape`, which ends with the number of axes if there are several.

    Their range is checked where they are used.
    """
    if not isinstance(lengths, Tensor):
        raise TypeError(f"{name}: lengths are a {type(lengths).__name__}; expected a tensor of integers.")
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype == torch.bool:
        raise TypeError(f"{name}: lengths have dtype {lengths.dtype}; expected an integer dtype.")
    if not broadcasts(lengths.shape, shape) or (axes > 1 and lengths.shape[-1:] != (axes,)):
        raise ValueError(f"{name}: lengths have shape {tuple(lengths.shape)}; expected {tuple(shape)}.")


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """A mask is boolean, true where a part is allowed, and broadcasts to the scores."""
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name}: mask is a {type(mask).__name__}; expected a boolean tensor.")
    if mask.dtype != torch.bool:
        raise TypeError(f"{name}: mask has dtype {mask.dtype}; expected torch.bool, true where a part is allowed.")
    if not broadcasts(mask.shape, shape):
        raise ValueError(
            f"{name}: mask has shape {tuple(mask.shape)}; expected the shape of the scores, {tuple(shape)}: it says "
            "which parts are allowed.  Padding is given by lengths."
        )


def check_scores(name: str, scores: Tensor, event_dims: int) -> None:
    """Scores are a floating tensor with at least one part."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name}: scores are a {type(scores).__name__}; expected a torch.Tensor.")
    if not scores.is_floating_point():
        raise TypeError(f"{name}: scores have dtype {scores.dtype}; expected a floating dtype.")
    shape = scores.shape
    if len(shape) < event_dims:
        raise ValueError(f"{name}: scores have shape {tuple(shape)}; expected at least {event_dims} dimension(s).")
    if 0 in shape and 0 in shape[-event_dims:]:
        raise ValueError(f"{name}: scores have shape {tuple(scores.shape)}; expected at least one part.")


def check_tolerance(name: str, tolerance: float | None) -> None:
    """A tolerance is a finite number above 0, or None."""
    if tolerance is None:
        return
    expected = "expected a finite number > 0, the largest gap of SparseMAP, or None"
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)):
        raise TypeError(f"{name}: tolerance is {tolerance!r}; {expected}.")
    if not 0 < tolerance < math.inf:
        raise ValueError(f"{name}: tolerance is {tolerance}; {expected}.")


def check_flag(name: str, option: str, value: bool) -> None:
    """An option that is on or off is True or False, and nothing that only counts as such."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {option} is {value!r}; expected True or False.")


def check_parts(who: str, name: str, given: Tensor, axes: str, advice: str = "") -> None:
    """Vertices that `who` converts are zeros and ones (..., axes), such as "n, t, t": equal names have equal sizes.

    The argument is called `name` in the error, and `advice` ends it.
    """
    are, have = ("are", "have") if name.endswith("s") else ("is", "has")
    if not isinstance(given, Tensor):
        raise TypeError(
            f"{who}: {name} {are} a {type(given).__name__}; expected a tensor of shape (..., {axes}).{advice}"
        )
    names = axes.split(", ")
    sizes = dict(zip(names, given.shape[-len(names) :]))
    if given.dim() < len(names) or tuple(map(sizes.get, names)) != tuple(given.shape[-len(names) :]):
        raise ValueError(f"{who}: {name} {have} shape {tuple(given.shape)}; expected (..., {axes}).{advice}")
    _check_vertices(who, name, given)


def _check_vertices(who: str, name: str, given: Tensor) -> None:
    """What `who` converts is made of zeros and ones: a mixture of structures has no single answer."""
    whole = (given == 0) | (given == 1)
    expected = "expected a vertex, zeros and ones: take the argmax of the scores"
    if not is_plain_eager():
        check(whole, f"{who}: {name}{{example}} is neither 0 nor 1; {expected}.")
    elif not whole.all():
        place = (~whole).nonzero()[0].tolist()
        raise ValueError(f"{who}: {name}{place} is {given[tuple(place)].item():.4g}; {expected}.")


def check_sample_shape(name: str, sample_shape: Sequence[int]) -> torch.Size:
    """The shape of a batch of samples is a sequence of counts, as in `torch.distributions`."""
    sizes = sample_shape if isinstance(sample_shape, Sequence) else None
    if sizes is None or not all(isinstance(size, (int, torch.SymInt)) and size >= 0 for size in sizes):
        raise TypeError(
            f"{name}: sample_shape is {sample_shape!r}; expected a sequence of integers ≥ 0: (100,) for 100 samples."
        )
    return torch.Size(sizes)


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of one shape can be expanded to another."""
    same = len(shape) <= len(to) and shape == to[len(to) - len(shape) :]
    return same or (len(shape) <= len(to) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(to))))

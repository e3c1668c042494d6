"""Options as users give them: numbers, and parts by their name.  A mistake is answered in the user's words."""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from pullback.operators._register import is_plain_eager

Part = TypeVar("Part")

Number = float | Tensor | Callable[[], float | Tensor]
"""A number; a tensor, which may hold one for each example and may change in place; or a function that is asked for it
at every call, such as a schedule over the user's count of steps."""


def now(what: str, number: Number, *, least: float = 0.0, above: bool = False) -> float | Tensor:
    """The present value of `number`; what a function answers, or a tensor holds now, is checked as if just given.

    >>> rates = iter([0.5, 0.25])
    >>> [now("step_size", lambda: next(rates)) for _ in range(2)]
    [0.5, 0.25]
    """
    if isinstance(number, Tensor):
        if is_plain_eager():  # it may have changed, by a schedule or an optimizer
            check_number(what, number.detach(), least=least, above=above)
        return number
    if not callable(number):
        return number
    found = number()
    check_number(f"{what}()", found, least=least, above=above)
    return found


def check_number(
    what: str, value: Any, *, least: float = 0.0, above: bool = False, tensors: bool = True, others: str = ""
) -> None:
    """`value` is a finite number ≥ `least` (> `least` where `above`), a tensor of such numbers, or a function.

    `what` names the option: "Projected: step_size".  What a function answers is checked when it is asked.  `others`
    ends an error about the type, where the option takes more: ", or a rule".
    """
    if tensors and callable(value) and not isinstance(value, type):
        return
    expected = f"expected a finite number {'>' if above else '≥'} {least:g}"
    if isinstance(value, Tensor) and tensors:
        if value.dtype == torch.bool or value.is_complex():
            raise TypeError(f"{what} has dtype {value.dtype}; expected real numbers.")
        inside = value.isfinite() & (value > least if above else value >= least)
        if not bool(inside.all()):
            shown = f"{value.item():g}" if value.numel() == 1 else f"a tensor with {value[~inside].flatten()[0]:g}"
            raise ValueError(f"{what} is {shown}; {expected}.")
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        expected += ", a tensor of them, or a function that returns them" if tensors else ""
        raise TypeError(f"{what} is {value!r}; {expected}{others}.")
    if not math.isfinite(value) or value < least or (above and value == least):
        raise ValueError(f"{what} is {value}; {expected}.")


def check_count(what: str, value: Any) -> None:
    """`value` is an integer ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{what} is {value!r}; expected an integer ≥ 1.")
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{what} is {value!r}; expected an integer ≥ 1.")


def by_name(what: str, name: str, parts: Mapping[str, type[Part]]) -> Part:
    """The part called `name`, made without arguments, as a configuration file asks for it."""
    if name not in parts:
        raise ValueError(f"{what} is {name!r}; expected {among(name, parts)}.")
    return parts[name]()


def among(name: str, names: Iterable[str]) -> str:
    """`names` as the end of an error, the one nearest to `name` first: "'spigot' perhaps, or one of ste, spigot_ce"."""
    every = list(names)
    near = difflib.get_close_matches(str(name), every, n=1)
    others = ", ".join(other for other in every if other not in near)
    return f"{near[0]!r} perhaps, or one of {others}" if near else f"one of {others}"

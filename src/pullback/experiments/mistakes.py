"""Mistakes of the person at the keyboard: one clear line, with the nearest name that would have worked."""

import difflib
from collections.abc import Iterable
from typing import Any


class Mistake(Exception):
    """Something that was typed or pointed to cannot be used; the command line prints it as one line."""


def unknown(what: str, name: str, names: Iterable[str]) -> Mistake:
    """`name` is none of `names`: the nearest one is suggested.

    >>> print(unknown("estimator", "spigott", ["ste", "spigot"]))
    estimator 'spigott' is not known; did you mean 'spigot'?  There are: ste, spigot.
    """
    every = list(dict.fromkeys(names))  # an option and a setting may have the same name
    near = difflib.get_close_matches(name, every, n=1)
    suggestion = f"; did you mean {near[0]!r}?" if near else "."
    return Mistake(f"{what} {name!r} is not known{suggestion}  There are: {', '.join(every) or 'none'}.")


def check_counts(given: Any, *names: str) -> None:
    """Raises where one of the named settings is not a count."""
    for name in names:
        if getattr(given, name) < 1:
            raise Mistake(f"{name} is {getattr(given, name)}; expected an integer ≥ 1.")


def check_shares(given: Any, *names: str) -> None:
    """Raises where one of the named settings is not a share of which something is left."""
    for name in names:
        if not 0 <= getattr(given, name) < 1:
            raise Mistake(f"{name} is {getattr(given, name)}; expected a number ≥ 0 and < 1.")

"""Mistakes of the person at the keyboard: one clear line, with the nearest name that would have worked."""

import difflib
from collections.abc import Iterable


class Mistake(Exception):
    """Something that was typed or pointed to cannot be used; the command line prints it as one line."""


def unknown(what: str, name: str, names: Iterable[str]) -> Mistake:
    """`name` is none of `names`: the nearest one is suggested.

    >>> print(unknown("estimator", "spigott", ["ste", "spigot"]))
    estimator 'spigott' is not known; did you mean 'spigot'?  There are: ste, spigot.
    """
    every = list(names)
    near = difflib.get_close_matches(name, every, n=1)
    suggestion = f"; did you mean {near[0]!r}?" if near else "."
    return Mistake(f"{what} {name!r} is not known{suggestion}  There are: {', '.join(every) or 'none'}.")

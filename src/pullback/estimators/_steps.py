"""Rules for step sizes by the names that configuration files give them."""

from collections.abc import Sequence

from pullback.descents._descent import Steps, StepSize
from pullback.descents.adaptive import Adaptive
from pullback.descents.step_sizes import Polyak, Relative
from pullback.regularizers._options import check_number

STEP_SIZES: dict[str, type[StepSize]] = {"relative": Relative, "polyak": Polyak, "adaptive": Adaptive}
"""The rules that `step_size` may name."""


def steps_of(what: str, given: Steps | str) -> Steps:
    """A step size, or the rule of that name; `what` is the option in the user's words: "spigot: step_size"."""
    if not isinstance(given, str):
        if not isinstance(given, StepSize | Sequence):
            check_number(what, given)
        return given
    if given not in STEP_SIZES:
        raise TypeError(
            f"{what} is {given!r}; expected a finite number ≥ 0, a tensor of them, or a function that returns them, or "
            f"one of {', '.join(map(repr, STEP_SIZES))}."
        )
    return STEP_SIZES[given]()

"""Rules for step sizes by the names that configuration files give them."""

from pullback.descents._descent import Steps, StepSize
from pullback.descents.adaptive import Adaptive
from pullback.descents.step_sizes import Polyak, Relative
from pullback.regularizers._options import by_name

STEP_SIZES: dict[str, type[StepSize]] = {"relative": Relative, "polyak": Polyak, "adaptive": Adaptive}
"""The rules that `step_size` may name."""


def steps_of(what: str, given: Steps | str) -> Steps:
    """A step size, or the rule of that name; `what` names the option."""
    return by_name(what, given, STEP_SIZES) if isinstance(given, str) else given

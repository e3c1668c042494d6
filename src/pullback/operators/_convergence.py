"""What is said when a projection ends before it has converged."""

import warnings


class ConvergenceWarning(UserWarning):
    """A projection ended before its Frank–Wolfe gap was within the tolerance."""


class ConvergenceError(RuntimeError):
    """A search did not converge, or scores are too large for sums; or it would warn, and `Oracle` is strict."""


def warn_of_gap(message: str) -> None:
    """Warns with `ConvergenceWarning`, at the line of the user's call as far as it can be found."""
    warnings.warn(message, ConvergenceWarning, stacklevel=4)

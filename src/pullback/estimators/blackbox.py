"""Differences of solutions: a solver called once more, at scores that the downstream gradient has moved."""

from collections.abc import Sequence

import torch

from pullback.descents._descent import Pullback, Steps, StepSize
from pullback.descents.mirror import Mirror
from pullback.descents.step_sizes import Fixed
from pullback.descents.symmetric import Symmetric
from pullback.estimators._steps import steps_of
from pullback.estimators.noise import Noise
from pullback.estimators.perturbed import Perturbed
from pullback.estimators.surrogate import Surrogate
from pullback.regularizers._options import Number, check_number
from pullback.regularizers.unregularized import Unregularized


def blackbox(step_size: Number = 1.0) -> Surrogate:
    """Differentiation of black-box solvers: the slope of the argmax between s and s − λ ∇L.

    z = argmax(s),  gradient = (z − argmax(s − λ ∇L(z))) / λ.

    step_size: λ, a number, a tensor with one for each example, or a function of no arguments that returns either.
    Rules such as "adaptive" or `Relative()` are refused, and so are lists: here λ is one number for an example.  Rules
    are for `imle(…, noise="none")`, which divides by λ too where they have `rescale`.

    Costs one evaluation and two argmaxes.  Needs an argmax alone.  λ is in units of scores per gradient, and has to be
    large enough to reach another structure; any schedule of it keeps the scale of the gradient.
    Reference: Vlastelica et al. (2020).
    """
    if isinstance(step_size, str | StepSize | Sequence):
        raise TypeError(
            f"blackbox: step_size is {step_size!r}; expected λ itself, a finite number ≥ 0, a tensor of them, or a "
            'function that returns them.  Rules are for imle, also without noise: imle("adaptive", noise="none").'
        )
    check_number("blackbox: step_size", step_size)
    return Surrogate(Unregularized(), Mirror(Fixed(step_size, rescale=True), regularizer=Unregularized()))


def imle(
    step_size: Steps | str = 1.0,
    noise: Noise | str = "sum_of_gamma",
    samples: int = 1,
    *,
    two_sided: bool = False,
    generator: torch.Generator | None = None,
) -> Perturbed:
    """Implicit maximum likelihood: the argmax of perturbed scores, learned to be the one the gradient asks for.

    z = argmax(s + ε),  gradient = mean of z − argmax(s + ε − λ ∇L(z)) over `samples`, with the same ε in both;
    `two_sided`: half of argmax(s + ε + λ ∇L(z)) − argmax(s + ε − λ ∇L(z)), which is less biased.  Without noise it is
    λ times `blackbox`.

    step_size: λ, a number, or anything a `step_size` may be; "adaptive" is the rule of AIMLE, which also divides by λ.

    Costs one evaluation and two argmaxes per sample, three if `two_sided`.  Needs an argmax alone.  For solvers of
    one's own, with a decoder that must see one structure.
    Reference: Niepert, Minervini and Franceschi (2021); Minervini, Franceschi and Niepert (2023).
    """
    descent: Pullback = Mirror(steps_of("imle: step_size", step_size), regularizer=Unregularized())
    if two_sided:
        descent = Symmetric(descent)
    return Perturbed(Surrogate(Unregularized(), descent), noise, samples, generator=generator)

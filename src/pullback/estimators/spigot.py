"""Straight-through, SPIGOT and their kin: combinations of a point, a descent and an intermediate loss."""

from pullback.descents._descent import Steps
from pullback.descents.exhaustive import Exhaustive
from pullback.descents.mirror import Mirror
from pullback.descents.projected import Projected
from pullback.descents.unconstrained import Unconstrained
from pullback.estimators._steps import steps_of
from pullback.estimators.surrogate import Surrogate
from pullback.regularizers._options import by_name
from pullback.regularizers._regularizer import Regularizer
from pullback.regularizers.entropy import Entropy
from pullback.regularizers.squared_norm import SquaredNorm
from pullback.regularizers.unregularized import Unregularized


def ste(step_size: Steps | str = 1.0, steps: int = 1, *, backtrack: bool = False) -> Surrogate:
    """Straight-through: pull the label back by plain gradient, learn it with the perceptron loss.

    z = argmax(s),  target = z − η ∇L(z), `steps` times,  gradient = z − target = η ∇L(z) after one.

    Costs one evaluation per step and one argmax.  Needs an argmax alone.  The first thing to try, and the cheapest: it
    believes what the decoder says about one structure, also where that leads out of the polytope.
    Reference: Bengio et al. (2013), the identity variant.
    """
    return Surrogate(Unregularized(), Unconstrained(steps_of("ste: step_size", step_size), steps, backtrack=backtrack))


def spigot(step_size: Steps | str = 1.0, steps: int = 1, *, backtrack: bool = False) -> Surrogate:
    """SPIGOT: pull the label back by projected gradient, learn it with the perceptron loss.

    z = argmax(s),  target = sparsemap(z − η ∇L(z)), `steps` times,  gradient = z − target.

    Costs one evaluation and one projection per step, and one argmax.  Needs an argmax alone.  For decoders that must
    see one structure and have a gradient there; the label is always a mixture of structures.
    Reference: Peng, Thomson and Smith (2018).
    """
    return Surrogate(Unregularized(), Projected(steps_of("spigot: step_size", step_size), steps, backtrack=backtrack))


def spigot_ce(step_size: Steps | str = 0.1, steps: int = 1, *, backtrack: bool = False) -> Surrogate:
    """SPIGOT-CE: projected gradient from the marginals, learned with the CRF loss (cross-entropy when flat).

    p = marginals(s),  target = sparsemap(p − η ∇L(p)), `steps` times,  gradient = p − target;  decodes from argmax(s).

    Costs one evaluation and one projection per step, one evaluation more at argmax(s), one argmax and one call of
    marginals.  Needs a partition function, and a decoder that has a gradient at mixtures too.  For examples to which
    `spigot` sends nothing back: from inside the polytope steps lead somewhere.
    Reference: Mihaylova, Niculae and Martins (2020).
    """
    return Surrogate(Entropy(), Projected(steps_of("spigot_ce: step_size", step_size), steps, backtrack=backtrack))


def spigot_eg(step_size: Steps | str = 0.1, steps: int = 1, *, backtrack: bool = False) -> Surrogate:
    """SPIGOT-EG: exponentiated gradient from the marginals, learned with the CRF loss.

    p = marginals(s),  target = marginals(s − η ∇L(p)), `steps` times,  gradient = p − target;  decodes from argmax(s).

    Costs one evaluation and one call of marginals per step, one evaluation more at argmax(s), one argmax and the
    marginals of s.  Needs a partition function, and a decoder that has a gradient at mixtures too.  For a small η the
    gradient of `structured_attention`, with a decoder that sees structures.
    Reference: Mihaylova, Niculae and Martins (2020).
    """
    size = steps_of("spigot_eg: step_size", step_size)
    return Surrogate(Entropy(), Mirror(size, steps, backtrack=backtrack, regularizer=Entropy()))


PREDICTIONS: dict[str, type[Regularizer]] = {
    "unregularized": Unregularized,
    "entropy": Entropy,
    "squared_norm": SquaredNorm,
}
"""The predictions by the names that `best_vertex` knows."""


def best_vertex(prediction: Regularizer | str = "unregularized") -> Surrogate:
    """The vertex with the lowest downstream loss, found by enumeration, as the label of an intermediate loss.

    target = argmin L(z) over 𝒵,  gradient = prediction − target;  the perceptron loss unless `prediction` is given,
    a regularizer or one of "unregularized", "entropy", "squared_norm".

    Costs one evaluation per vertex and one at argmax(s).  Needs a structure that can list its vertices.  For few of
    them, and for losses without a gradient; no vertex is a better label.
    """
    if isinstance(prediction, str):
        prediction = by_name("best_vertex: prediction", prediction, PREDICTIONS)
    return Surrogate(prediction, Exhaustive())

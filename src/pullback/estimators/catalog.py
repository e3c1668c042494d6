"""All named estimators: what each computes, needs and costs.  Tests, command line and docs read this."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.estimators._estimator import Estimator
from pullback.estimators.expectation import minimum_risk, sparse_marginalization
from pullback.estimators.relaxation import entmax, sparsemap, ste_marginals, ste_sparsemap, structured_attention
from pullback.estimators.score_function import reinforce
from pullback.estimators.spigot import best_vertex, spigot, spigot_ce, spigot_eg, ste


@dataclass(frozen=True)
class Entry:
    """One row of the catalog.

    kind: pulled back, relaxed, straight-through, exact, stochastic or sparse expectation.
    formula: the gradient that reaches the scores s; z is the argmax, p the marginals, μ the sparsemap of s.
    needs: what the structure must offer beside its argmax.
    evaluations: how often a training step evaluates the downstream loss.
    callable: whether `estimator(structure, scores)` hands over a point.
    """

    make: Callable[..., Estimator]
    kind: str
    formula: str
    needs: str
    evaluations: str
    callable: bool


CATALOG: dict[str, Entry] = {
    "ste": Entry(ste, "pulled back", "η ∇L(z)", "nothing", "steps", True),
    "spigot": Entry(spigot, "pulled back", "z − sparsemap(z − η ∇L(z))", "nothing", "steps", True),
    "spigot_ce": Entry(
        spigot_ce, "pulled back", "p − sparsemap(p − η ∇L(p))", "partition function", "1 + steps", False
    ),
    "spigot_eg": Entry(
        spigot_eg, "pulled back", "p − marginals(s − η ∇L(p))", "partition function", "1 + steps", False
    ),
    "structured_attention": Entry(structured_attention, "relaxed", "J_p ∇L(p)", "partition function", "1", True),
    "sparsemap": Entry(sparsemap, "relaxed", "J_μ ∇L(μ)", "nothing", "1", True),
    "entmax": Entry(entmax, "relaxed", "J ∇L(entmax(s))", "unit vectors (Categorical)", "1", True),
    "ste_marginals": Entry(ste_marginals, "straight-through", "J_p ∇L(z)", "partition function", "1", True),
    "ste_sparsemap": Entry(ste_sparsemap, "straight-through", "J_μ ∇L(z)", "nothing", "1", True),
    "minimum_risk": Entry(
        minimum_risk, "exact", "∇ Σ p(z) L(z)", "partition function and enumeration", "one per vertex", False
    ),
    "best_vertex": Entry(best_vertex, "exact", "z − argmin L", "enumeration", "1 + one per vertex", False),
    "reinforce": Entry(
        reinforce, "stochastic", "mean of (L(z) − b) ∇ log p(z), z ~ p", "partition function", "samples", False
    ),
    "sparse_marginalization": Entry(
        sparse_marginalization, "sparse expectation", "∇ Σ p(z) L(z) over the support of μ", "nothing", "support", False
    ),
}


def get_estimator(name: str, **options: Any) -> Estimator:
    """The estimator of that name in the catalog, made with `options`.

    >>> get_estimator("spigot", step_size=0.5).descent.step_size
    0.5
    """
    if name not in CATALOG:
        raise ValueError(f"get_estimator: {name!r} is not in the catalog; expected one of {', '.join(CATALOG)}.")
    return CATALOG[name].make(**options)

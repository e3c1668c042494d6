"""All named estimators: what each computes, needs and costs.  Tests, command line and docs read this."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pullback.estimators._estimator import Estimator
from pullback.estimators.blackbox import blackbox, imle
from pullback.estimators.expectation import minimum_risk, sparse_marginalization, sum_and_sample, topk_expectation
from pullback.estimators.identity import identity
from pullback.estimators.perturbed import perturb_and_map, stochastic_softmax, stochastic_sparsemap
from pullback.estimators.perturbed_maximum import perturbed
from pullback.estimators.relaxation import entmax, simple, sparsemap, ste_marginals, ste_sparsemap, structured_attention
from pullback.estimators.score_function import reinforce
from pullback.estimators.spigot import best_vertex, spigot, spigot_ce, spigot_eg, ste
from pullback.estimators.straight_through import gapped_ste, gumbel_rao, reinmax
from pullback.estimators.supervised import frozen, supervised
from pullback.regularizers._options import among
from pullback.structures._capabilities import Enumerable, KBest, LogLinear, Simplex
from pullback.structures._structure import Structure


@dataclass(frozen=True)
class Cost:
    """How often a training step evaluates the downstream loss: `once` times, and once more for each of `each`.

    >>> str(Cost(1, "steps")), Cost(1, "steps").count(steps=3)
    ('1 + steps', 4)
    """

    once: int = 0
    each: Literal["steps", "samples", "k", "vertices", "support"] | None = None

    def count(self, **numbers: int) -> int:
        """The evaluations, given how many steps, samples, best vertices (k), vertices, or vertices in the support."""
        return self.once + (0 if self.each is None else numbers[self.each])

    def __str__(self) -> str:
        return " + ".join(str(part) for part in (self.once, self.each) if part)


@dataclass(frozen=True)
class Entry:
    """One row of the catalog.

    kind: pulled back, relaxed, straight-through, perturbed, sampled straight-through, exact, stochastic, sparse
    expectation or yardstick.
    formula: the gradient that reaches the scores s; z is the argmax, p the marginals, μ the sparsemap of s, ε noise.
    needs: the capabilities that a structure has to offer; any has an argmax.
    evaluations: how often a training step evaluates the downstream loss, without backtracking and further baselines.
    callable: whether `estimator(structure, scores)` hands over a point.
    given: arguments that are neither numbers nor names and have to be given, such as a label; most have none.
    """

    make: Callable[..., Estimator]
    kind: str
    formula: str
    needs: tuple[type[Structure], ...]
    evaluations: Cost
    callable: bool
    given: tuple[str, ...] = ()

    def serves(self, structure: Structure) -> bool:
        """Whether `structure` has all that is needed."""
        return all(structure.offers(needed) for needed in self.needs)

    @property
    def needs_in_words(self) -> str:
        """`needs` for a table."""
        return " and ".join(needed.offer for needed in self.needs) or "an argmax"


_ONE, _STEPS, _START_AND_STEPS, _SAMPLES = Cost(1), Cost(0, "steps"), Cost(1, "steps"), Cost(0, "samples")

CATALOG: dict[str, Entry] = {
    "ste": Entry(ste, "pulled back", "η ∇L(z)", (), _STEPS, True),
    "spigot": Entry(spigot, "pulled back", "z − sparsemap(z − η ∇L(z))", (), _STEPS, True),
    "spigot_ce": Entry(spigot_ce, "pulled back", "p − sparsemap(p − η ∇L(p))", (LogLinear,), _START_AND_STEPS, False),
    "spigot_eg": Entry(spigot_eg, "pulled back", "p − marginals(s − η ∇L(p))", (LogLinear,), _START_AND_STEPS, False),
    "structured_attention": Entry(structured_attention, "relaxed", "J_p ∇L(p)", (LogLinear,), _ONE, True),
    "sparsemap": Entry(sparsemap, "relaxed", "J_μ ∇L(μ)", (), _ONE, True),
    "entmax": Entry(entmax, "relaxed", "J ∇L(entmax(s))", (Simplex,), _ONE, True),
    "ste_marginals": Entry(ste_marginals, "straight-through", "J_p ∇L(z)", (LogLinear,), _ONE, True),
    "ste_sparsemap": Entry(ste_sparsemap, "straight-through", "J_μ ∇L(z)", (), _ONE, True),
    "blackbox": Entry(blackbox, "pulled back", "(z − argmax(s − λ ∇L(z))) / λ", (), _ONE, True),
    "identity": Entry(identity, "pulled back", "(Cg − u ⟨u, g⟩) / ‖Cs‖, g = ∇L(z), u = Cs / ‖Cs‖", (), _ONE, True),
    "imle": Entry(imle, "perturbed", "mean of z − argmax(s + ε − λ ∇L(z)), z = argmax(s + ε)", (), _SAMPLES, True),
    "perturb_and_map": Entry(
        perturb_and_map, "perturbed", "mean of J_p(s + ε) ∇L(argmax(s + ε))", (LogLinear,), _SAMPLES, True
    ),
    "stochastic_softmax": Entry(
        stochastic_softmax, "perturbed", "mean of J_p(s + ε) ∇L(marginals(s + ε))", (LogLinear,), _SAMPLES, True
    ),
    "stochastic_sparsemap": Entry(
        stochastic_sparsemap, "perturbed", "mean of J_μ(s + ε) ∇L(sparsemap(s + ε))", (), _SAMPLES, True
    ),
    "perturbed": Entry(perturbed, "perturbed", "J ∇L(q), q the mean of argmax(s + ε)", (), _ONE, True),
    "simple": Entry(simple, "sampled straight-through", "J_p ∇L(y), y ~ p", (LogLinear,), _ONE, True),
    "gumbel_rao": Entry(
        gumbel_rao, "sampled straight-through", "E[J_p(s + ε) | y] ∇L(y), y ~ p", (Simplex,), _ONE, True
    ),
    "reinmax": Entry(
        reinmax, "sampled straight-through", "(2 J((p + y) / 2) − ½ J_p) ∇L(y), y ~ p", (Simplex,), _ONE, True
    ),
    "gapped_ste": Entry(
        gapped_ste, "sampled straight-through", "J_p(s′) ∇L(y), argmax(s′) = y ~ p", (Simplex,), _ONE, True
    ),
    "minimum_risk": Entry(minimum_risk, "exact", "∇ Σ p(z) L(z)", (LogLinear, Enumerable), Cost(0, "vertices"), False),
    "best_vertex": Entry(best_vertex, "exact", "z − argmin L", (Enumerable,), Cost(1, "vertices"), False),
    "reinforce": Entry(reinforce, "stochastic", "mean of (L(z) − b) ∇ log p(z), z ~ p", (LogLinear,), _SAMPLES, False),
    "sum_and_sample": Entry(
        sum_and_sample,
        "stochastic",
        "∇ Σ p(z) L(z), z in topk(s), + P L(z) ∇ log p(z), z ~ p of the rest",
        (LogLinear, KBest),
        Cost(1, "k"),
        False,
    ),
    "sparse_marginalization": Entry(
        sparse_marginalization,
        "sparse expectation",
        "∇ Σ p(z) L(z), z in support(s)",
        (),
        Cost(0, "support"),
        False,
    ),
    "topk_expectation": Entry(
        topk_expectation, "sparse expectation", "∇ Σ p(z) L(z), z in topk(s)", (KBest,), Cost(0, "k"), False
    ),
    "frozen": Entry(frozen, "yardstick", "0", (), _ONE, False),
    "supervised": Entry(supervised, "yardstick", "z − label", (), _ONE, False, given=("label",)),
}
"""Every named estimator, by its name."""


def get_estimator(name: str, **options: Any) -> Estimator:
    """The estimator of that name in the catalog, made with `options`: numbers and names, as in a configuration file.

    >>> get_estimator("spigot", step_size=0.5).descent.step_size
    0.5
    """
    if name not in CATALOG:
        raise ValueError(f"get_estimator: {name!r} is not in the catalog; expected {among(name, CATALOG)}.")
    missing = [given for given in CATALOG[name].given if given not in options]
    if missing:
        raise TypeError(f"get_estimator: {name!r} was asked for without {', '.join(missing)}; call pb.{name} with it.")
    return CATALOG[name].make(**options)

"""Train through a discrete structure: forward, an argmax; backward, the label that the downstream loss asks for.

A name is imported when it is first used, so that a program loads only the structures that it works with.  What there is
for type checkers and editors, `__init__.pyi` says in import statements.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "descents._descent": "Descent Downstream Iterate Pullback Pulled StepSize",
    "descents.adaptive": "Adaptive",
    "descents.exhaustive": "Exhaustive",
    "descents.given": "Given",
    "descents.mirror": "Mirror",
    "descents.projected": "Projected",
    "descents.step_sizes": "Fixed Polyak Relative",
    "descents.symmetric": "Symmetric",
    "descents.unconstrained": "Unconstrained",
    "distributions._distribution": "StructureDistribution",
    "distributions.gibbs": "Gibbs",
    "distributions.sparsemap": "SparseMAPDistribution",
    "estimators._estimator": "Estimator",
    "estimators._inspection": "Inspection Label",
    "estimators.blackbox": "blackbox imle",
    "estimators.catalog": "CATALOG Cost Entry get_estimator",
    "estimators.expectation": (
        "AllVertices BestVertices Expectation SparseSupport SumAndSample Summands "
        "minimum_risk sparse_marginalization sum_and_sample topk_expectation"
    ),
    "estimators.identity": "Normalized identity",
    "estimators.latent_structure_model": "LatentStructureModel",
    "estimators.noise": "Gumbel NoNoise Noise Normal SmoothNoise SumOfGamma",
    "estimators.perturbed": "Perturbed perturb_and_map stochastic_softmax stochastic_sparsemap",
    "estimators.perturbed_maximum": "PerturbedMaximum perturbed",
    "estimators.relaxation": "Relaxation entmax simple sparsemap ste_marginals ste_sparsemap structured_attention",
    "estimators.sample": "Sample",
    "estimators.score_function": (
        "Baseline LeaveOneOut NoBaseline RunningAverage Sampled ScoreFunction SelfCritical Supplied reinforce"
    ),
    "estimators.spigot": "best_vertex spigot spigot_ce spigot_eg ste",
    "estimators.straight_through": "Gapped GumbelRao ReinMax StraightThrough gapped_ste gumbel_rao reinmax",
    "estimators.supervised": "Supervised frozen supervised",
    "estimators.surrogate": "Surrogate",
    "instruments.drawing._drawing": "Drawing",
    "instruments.compare": "GradientComparison GradientRow compare_gradients",
    "instruments.draw": "draw",
    "operators._convergence": "ConvergenceError ConvergenceWarning",
    "regularizers._regularizer": "MirrorMap Prediction Regularizer",
    "regularizers.entropy": "Entropy",
    "regularizers.fenchel_young": "FenchelYoungLoss",
    "regularizers.sinkhorn": "Sinkhorn",
    "regularizers.squared_norm": "SquaredNorm",
    "regularizers.tsallis": "Tsallis",
    "regularizers.unregularized": "Unregularized",
    "structures._capabilities": "Enumerable KBest Lattice LogLinear MissingCapability Simplex Transport require",
    "structures._results": "Enumeration Mixture Solution TopK TransportPlan",
    "structures._schemes": "Scheme",
    "structures._structure": "Structure",
    "structures.alignment": "Alignment",
    "structures.binary": "Binary",
    "structures.categorical": "Categorical",
    "structures.chain": "Chain",
    "structures.constituency_tree": "ConstituencyTree",
    "structures.dependency_tree": "DependencyTree",
    "structures.independent": "Independent",
    "structures.matching": "Matching",
    "structures.oracle": "Oracle",
    "structures.path": "Path",
    "structures.product": "Product product",
    "structures.ranking": "Ranking",
    "structures.segmentation": "Segmentation",
    "structures.spanning_tree": "SpanningTree",
    "structures.subset": "Subset",
    "structures.tagging": "Tagging",
    "warming": "warm",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

from pullback.descents._descent import Descent, Downstream, Iterate, Pullback, Pulled, StepSize
from pullback.descents.adaptive import Adaptive
from pullback.descents.exhaustive import Exhaustive
from pullback.descents.given import Given
from pullback.descents.mirror import Mirror
from pullback.descents.projected import Projected
from pullback.descents.step_sizes import Fixed, Polyak, Relative
from pullback.descents.symmetric import Symmetric
from pullback.descents.unconstrained import Unconstrained
from pullback.distributions._distribution import StructureDistribution
from pullback.distributions.gibbs import Gibbs
from pullback.distributions.sparsemap import SparseMAPDistribution
from pullback.estimators._estimator import Estimator
from pullback.estimators._inspection import Inspection, Label
from pullback.estimators.blackbox import blackbox, imle
from pullback.estimators.catalog import CATALOG, Cost, Entry, get_estimator
from pullback.estimators.expectation import (
    AllVertices,
    BestVertices,
    Expectation,
    SparseSupport,
    SumAndSample,
    Summands,
    minimum_risk,
    sparse_marginalization,
    sum_and_sample,
    topk_expectation,
)
from pullback.estimators.identity import Normalized, identity
from pullback.estimators.latent_structure_model import LatentStructureModel
from pullback.estimators.noise import Gumbel, Noise, NoNoise, Normal, SmoothNoise, SumOfGamma
from pullback.estimators.perturbed import Perturbed, perturb_and_map, stochastic_softmax, stochastic_sparsemap
from pullback.estimators.perturbed_maximum import PerturbedMaximum, perturbed
from pullback.estimators.relaxation import (
    Relaxation,
    entmax,
    simple,
    sparsemap,
    ste_marginals,
    ste_sparsemap,
    structured_attention,
)
from pullback.estimators.sample import Sample
from pullback.estimators.score_function import (
    Baseline,
    LeaveOneOut,
    NoBaseline,
    RunningAverage,
    Sampled,
    ScoreFunction,
    SelfCritical,
    Supplied,
    reinforce,
)
from pullback.estimators.spigot import best_vertex, spigot, spigot_ce, spigot_eg, ste
from pullback.estimators.straight_through import (
    Gapped,
    GumbelRao,
    ReinMax,
    StraightThrough,
    gapped_ste,
    gumbel_rao,
    reinmax,
)
from pullback.estimators.supervised import Supervised, frozen, supervised
from pullback.estimators.surrogate import Surrogate
from pullback.instruments.compare import GradientComparison, GradientRow, compare_gradients
from pullback.instruments.draw import draw
from pullback.instruments.drawing._drawing import Drawing
from pullback.operators._convergence import ConvergenceError, ConvergenceWarning
from pullback.regularizers._regularizer import MirrorMap, Prediction, Regularizer
from pullback.regularizers.entropy import Entropy
from pullback.regularizers.fenchel_young import FenchelYoungLoss
from pullback.regularizers.sinkhorn import Sinkhorn
from pullback.regularizers.squared_norm import SquaredNorm
from pullback.regularizers.tsallis import Tsallis
from pullback.regularizers.unregularized import Unregularized
from pullback.structures._capabilities import (
    Enumerable,
    KBest,
    Lattice,
    LogLinear,
    MissingCapability,
    Simplex,
    Transport,
    require,
)
from pullback.structures._results import Enumeration, Mixture, Solution, TopK, TransportPlan
from pullback.structures._schemes import Scheme
from pullback.structures._structure import Structure
from pullback.structures.alignment import Alignment
from pullback.structures.binary import Binary
from pullback.structures.categorical import Categorical
from pullback.structures.chain import Chain
from pullback.structures.constituency_tree import ConstituencyTree
from pullback.structures.dependency_tree import DependencyTree
from pullback.structures.independent import Independent
from pullback.structures.matching import Matching
from pullback.structures.oracle import Oracle
from pullback.structures.path import Path
from pullback.structures.product import Product, product
from pullback.structures.ranking import Ranking
from pullback.structures.segmentation import Segmentation
from pullback.structures.spanning_tree import SpanningTree
from pullback.structures.subset import Subset
from pullback.structures.tagging import Tagging
from pullback.warming import warm

__version__: str

__all__ = [
    "CATALOG",
    "Adaptive",
    "Alignment",
    "AllVertices",
    "Baseline",
    "BestVertices",
    "Binary",
    "Categorical",
    "Chain",
    "ConstituencyTree",
    "ConvergenceError",
    "ConvergenceWarning",
    "Cost",
    "DependencyTree",
    "Descent",
    "Downstream",
    "Drawing",
    "Entropy",
    "Entry",
    "Enumerable",
    "Enumeration",
    "Estimator",
    "Exhaustive",
    "Expectation",
    "FenchelYoungLoss",
    "Fixed",
    "Gapped",
    "Gibbs",
    "Given",
    "GradientComparison",
    "GradientRow",
    "Gumbel",
    "GumbelRao",
    "Independent",
    "Inspection",
    "Iterate",
    "KBest",
    "Label",
    "LatentStructureModel",
    "Lattice",
    "LeaveOneOut",
    "LogLinear",
    "Matching",
    "Mirror",
    "MirrorMap",
    "MissingCapability",
    "Mixture",
    "NoBaseline",
    "NoNoise",
    "Noise",
    "Normal",
    "Normalized",
    "Oracle",
    "Path",
    "Perturbed",
    "PerturbedMaximum",
    "Polyak",
    "Prediction",
    "Product",
    "Projected",
    "Pullback",
    "Pulled",
    "Ranking",
    "Regularizer",
    "ReinMax",
    "Relative",
    "Relaxation",
    "RunningAverage",
    "Sample",
    "Sampled",
    "Scheme",
    "ScoreFunction",
    "Segmentation",
    "SelfCritical",
    "Simplex",
    "Sinkhorn",
    "SmoothNoise",
    "Solution",
    "SpanningTree",
    "SparseMAPDistribution",
    "SparseSupport",
    "SquaredNorm",
    "StepSize",
    "StraightThrough",
    "Structure",
    "StructureDistribution",
    "Subset",
    "SumAndSample",
    "SumOfGamma",
    "Summands",
    "Supervised",
    "Supplied",
    "Surrogate",
    "Symmetric",
    "Tagging",
    "TopK",
    "Transport",
    "TransportPlan",
    "Tsallis",
    "Unconstrained",
    "Unregularized",
    "best_vertex",
    "blackbox",
    "compare_gradients",
    "draw",
    "entmax",
    "frozen",
    "gapped_ste",
    "get_estimator",
    "gumbel_rao",
    "identity",
    "imle",
    "minimum_risk",
    "perturb_and_map",
    "perturbed",
    "product",
    "reinforce",
    "reinmax",
    "require",
    "simple",
    "sparse_marginalization",
    "sparsemap",
    "spigot",
    "spigot_ce",
    "spigot_eg",
    "ste",
    "ste_marginals",
    "ste_sparsemap",
    "stochastic_softmax",
    "stochastic_sparsemap",
    "structured_attention",
    "sum_and_sample",
    "supervised",
    "topk_expectation",
    "warm",
]

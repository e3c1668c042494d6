"""The members of every family, for tests that hold for all of them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import pullback as pb


@dataclass(frozen=True)
class Case:
    """A structure with the shape of scores that fit it: `batch`, then `event`."""

    name: str
    structure: pb.Structure
    batch: tuple[int, ...]
    event: tuple[int, ...]

    def __repr__(self) -> str:
        return self.name

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.batch, *self.event)

    def scores(self, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (scale * torch.randn(self.shape, generator=generator, dtype=torch.float64)).to(dtype)

    def vertices(self) -> Tensor:
        """All of them, for every example: (vertices, *batch, *event)."""
        every = self.structure.enumerate(self.shape).vertices.double()
        return every.reshape(-1, *(1,) * len(self.batch), *self.event).expand(-1, *self.shape)

    def feasible(self) -> Tensor:
        """Which vertices belong to which example: (vertices, *batch)."""
        return self.structure.enumerate(self.shape).belongs

    def vertex_scores(self, scores: Tensor) -> Tensor:
        """⟨scores, z⟩ for every vertex, −∞ for those of other examples: (vertices, *batch)."""
        vertices = self.vertices()
        product = torch.where(vertices == 0, 0, vertices * scores).flatten(1 + len(self.batch)).sum(-1)
        return product.masked_fill(~self.feasible(), -torch.inf)

    def allowed(self) -> Tensor:
        """Which parts exist: (*batch, *event)."""
        allowed = self.structure.allowed(self.shape)
        return torch.ones(self.shape, dtype=torch.bool) if allowed is None else allowed.expand(self.shape)


@dataclass(frozen=True, eq=False)
class ArgmaxOnly(pb.Enumerable):
    """A structure of which only the argmax and the list of vertices are known: the rest is inherited."""

    whole: pb.Structure

    @property
    def event_dims(self) -> int:
        return self.whole.event_dims

    def argmax(self, scores: Tensor) -> Tensor:
        return self.whole.argmax(scores)

    def vertices(self, event: torch.Size) -> Tensor:
        return self.whole.vertices(event)

    def allowed(self, shape: torch.Size, device: torch.device | None = None) -> Tensor | None:
        return self.whole.allowed(shape, device)


@dataclass(frozen=True, eq=False)
class PartitionOnly(ArgmaxOnly, pb.LogLinear):
    """One whose log-partition function and samples are known besides."""

    def log_partition(self, scores: Tensor) -> Tensor:
        return self.whole.log_partition(scores)

    def sample(self, scores, sample_shape=(), *, generator=None):
        return self.whole.sample(scores, sample_shape, generator=generator)


LENGTHS = torch.tensor([4, 2, 1])
MASK = torch.tensor([[True, False, True, True], [True, True, True, True], [False, False, True, False]])

FLAT = [
    Case("Categorical", pb.Categorical(), (3,), (5,)),
    Case("Categorical, one of one", pb.Categorical(), (2,), (1,)),
    Case("Categorical, two batch dimensions", pb.Categorical(), (2, 2), (4,)),
    Case("Categorical, no batch", pb.Categorical(), (), (4,)),
    Case("Categorical, lengths", pb.Categorical(lengths=LENGTHS), (3,), (4,)),
    Case("Categorical, mask", pb.Categorical(mask=MASK), (3,), (4,)),
    Case("Binary", pb.Binary(), (3,), (4,)),
    Case("Binary, lengths", pb.Binary(lengths=LENGTHS), (3,), (4,)),
    Case("Binary, mask", pb.Binary(mask=MASK), (3,), (4,)),
    Case("Subset, exactly", pb.Subset(2), (3,), (5,)),
    Case("Subset, at most", pb.Subset.at_most(2), (3,), (4,)),
    Case("Subset, between", pb.Subset.between(1, 3), (2, 2), (4,)),
    Case("Subset, k per example", pb.Subset(torch.tensor([2, 1, 0])), (3,), (4,)),
    Case("Subset, lengths and mask", pb.Subset.at_most(2, lengths=LENGTHS, mask=MASK), (3,), (4,)),
]
WORDS = torch.tensor([3, 0, 2])
ARCS = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 0, 0]], dtype=torch.bool)
TREES = [
    Case(
        f"{kind} tree, {roots}",
        pb.DependencyTree(projective=kind == "projective", single_root=roots == "one root"),
        (3,),
        (4, 4),
    )
    for kind in ("projective", "non-projective")
    for roots in ("any roots", "one root")
] + [
    Case("tree over one word", pb.DependencyTree(single_root=True), (2,), (2, 2)),
    Case("tree, two batch dimensions", pb.DependencyTree(), (2, 2), (3, 3)),
    Case("projective tree, no batch", pb.DependencyTree(projective=True), (), (4, 4)),
    Case("tree, lengths", pb.DependencyTree(WORDS), (3,), (4, 4)),
    Case("tree, one root, lengths", pb.DependencyTree(WORDS, single_root=True), (3,), (4, 4)),
    Case("projective tree, lengths", pb.DependencyTree(WORDS, projective=True), (3,), (4, 4)),
    Case("tree, mask", pb.DependencyTree(mask=ARCS), (3,), (4, 4)),
    Case(
        "projective tree, one root, mask", pb.DependencyTree(mask=ARCS, projective=True, single_root=True), (3,), (4, 4)
    ),
]
PAIRS = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool).expand(3, 3, 3)
CHAINS = [
    Case("Chain", pb.Chain(), (3,), (3, 2, 2)),
    Case("Chain, one tag", pb.Chain(), (2,), (3, 1, 1)),
    Case("Chain, no batch", pb.Chain(), (), (2, 3, 3)),
    Case("Chain, lengths", pb.Chain(WORDS), (3,), (3, 2, 2)),
    Case("Chain, mask", pb.Chain(mask=PAIRS), (2,), (3, 3, 3)),
]
DIAMOND = torch.tensor([[7, 3], [2, 7], [3, 9], [2, 3], [7, 9], [5, 7], [9, 4], [2, 9], [2, 9]])  # 2 to 9; 5, 4: no use
LATTICES = torch.tensor(
    [
        [[0, 1], [0, 2], [1, 2], [2, 3], [1, 3]],
        [[4, 3], [3, 2], [2, 1], [4, 1], [-1, -1]],
        [[0, 1], [0, 1], [-1, -1], [-1, -1], [-1, -1]],
    ]
)
ENDS = torch.tensor([0, 4, 1]), torch.tensor([3, 1, 1])  # the last is the empty path
PATHS = [
    Case("Path", pb.Path(DIAMOND, 2, 9), (3,), (9,)),
    Case("Path, one edge", pb.Path(DIAMOND[:1], 7, 3), (2,), (1,)),
    Case("Path, no batch", pb.Path(DIAMOND, 2, 9), (), (9,)),
    Case("Path, mask", pb.Path(DIAMOND, 2, 9, mask=torch.arange(9) != 3), (2,), (9,)),
    Case("Path, several graphs", pb.Path(LATTICES, *ENDS), (3,), (5,)),
]
SEGMENTS = torch.rand(3, 2, 2, generator=torch.Generator().manual_seed(1)) < 0.7
SEGMENTATIONS = [
    Case("Segmentation", pb.Segmentation(), (3,), (3, 2, 2)),
    Case("Segmentation, wider than long", pb.Segmentation(), (2,), (2, 3, 1)),
    Case("Segmentation, no batch", pb.Segmentation(), (), (4, 2, 1)),
    Case("Segmentation, lengths", pb.Segmentation(WORDS), (3,), (3, 3, 1)),
    Case("Segmentation, mask", pb.Segmentation(mask=SEGMENTS), (2,), (3, 2, 2)),
]
TABLES = torch.tensor([[3, 2], [0, 0], [2, 2]])
ALIGNMENTS = [
    Case("Alignment, global", pb.Alignment(), (3,), (3, 2, 3)),
    Case("Alignment, global, lengths", pb.Alignment(lengths=TABLES), (3,), (3, 2, 3)),
    Case("Alignment, local", pb.Alignment("local"), (2,), (2, 2, 3)),
    Case("Alignment, local, lengths", pb.Alignment("local", TABLES - 1 + (TABLES == 0)), (3,), (2, 2, 3)),
    Case("Alignment, dtw", pb.Alignment("dtw"), (2,), (3, 3)),
    Case("Alignment, dtw, lengths", pb.Alignment("dtw", TABLES), (3,), (3, 2)),
    Case("Alignment, dtw, mask", pb.Alignment("dtw", mask=torch.arange(9).reshape(3, 3) != 3), (2,), (3, 3)),
    Case("Alignment, monotonic", pb.Alignment("monotonic"), (3,), (2, 4)),
    Case("Alignment, monotonic, lengths", pb.Alignment("monotonic", TABLES.flip(-1)), (3,), (2, 3)),
]
JOINT = [
    Case("Independent, Categorical", pb.Independent(pb.Categorical()), (3,), (2, 3)),
    Case("Independent, two dimensions", pb.Independent(pb.Binary(), 2), (2,), (2, 1, 2)),
    Case(
        "Independent, Categorical, lengths",
        pb.Independent(pb.Categorical(torch.tensor([[3, 1], [2, 3]]))),
        (2,),
        (2, 3),
    ),
    Case("Independent, tree", pb.Independent(pb.DependencyTree()), (2,), (2, 3, 3)),
    Case("Independent, Subset", pb.Independent(pb.Subset(1)), (), (2, 3)),
    Case(
        "product of a choice and a tree",
        pb.product(pb.Categorical(mask=MASK), pb.DependencyTree(), shapes=[(4,), (3, 3)]),
        (3,),
        (13,),
    ),
]
WHOLE = FLAT + TREES + CHAINS + PATHS + SEGMENTATIONS + ALIGNMENTS + JOINT
ALONE = [
    Case("argmax alone: Subset", ArgmaxOnly(pb.Subset(2)), (3,), (5,)),
    Case("argmax alone: tree, lengths", ArgmaxOnly(pb.DependencyTree(WORDS)), (3,), (4, 4)),
    Case("argmax alone: Path, several graphs", ArgmaxOnly(pb.Path(LATTICES, *ENDS)), (3,), (5,)),
    Case("argmax alone: Chain, mask", ArgmaxOnly(pb.Chain(mask=PAIRS)), (2,), (3, 3, 3)),
]


def bare(case: Case) -> Case:
    """The same polytope, with nothing but what base classes make of an argmax and a partition function."""
    return replace(case, name=f"inherited: {case.name}", structure=PartitionOnly(case.structure))


def is_alike_for_all(case: Case) -> bool:
    """Whether no example of the batch differs from the others in length, mask or budget."""
    inner = case.structure
    while hasattr(inner, "whole") or isinstance(inner, pb.Independent):
        inner = getattr(inner, "whole", None) or inner.structure
    facts = [getattr(inner, name, None) for name in ("lengths", "mask", "k", "low", "structures", "source")]
    return len(case.batch) == 1 and not any(isinstance(fact, (torch.Tensor, tuple)) for fact in facts)


BARE = [bare(case) for case in WHOLE]
STRUCTURES = WHOLE + BARE + ALONE
LOG_LINEAR = [case for case in STRUCTURES if case.structure.offers(pb.LogLinear)]
K_BEST = [case for case in STRUCTURES if case.structure.offers(pb.KBest)]

REGULARIZERS = [pb.Unregularized(), pb.Entropy(), pb.SquaredNorm()]
DESCENTS = [
    pb.Unconstrained(0.3),
    pb.Projected(0.3),
    pb.Mirror(0.3, regularizer=pb.Entropy()),
    pb.Mirror(0.3, regularizer=pb.SquaredNorm()),
]

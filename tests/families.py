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
        """⟨scores, z⟩ + own_score(z) for every vertex, −∞ for those of other examples: (vertices, *batch)."""
        vertices = self.vertices()
        products = self.structure.count_once(torch.where(vertices == 0, 0, vertices * scores))
        values = products.flatten(1 + len(self.batch)).sum(-1) + self.structure.own_score(vertices)
        return values.masked_fill(~self.feasible(), -torch.inf)

    def value(self, scores: Tensor, point: Tensor) -> Tensor:
        """⟨scores, point⟩ + own_score(point): (*batch)."""
        return self.structure.inner(scores, point) + self.structure.own_score(point).to(scores.dtype)

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

    @property
    def is_zero_one(self) -> bool:
        return self.whole.is_zero_one

    def argmax(self, scores: Tensor) -> Tensor:
        return self.whole.argmax(scores)

    def contains(self, vertices: Tensor) -> Tensor:
        return super().contains(vertices) if self.is_zero_one else self.whole.contains(vertices)

    def vertices(self, event: torch.Size) -> Tensor:
        return self.whole.vertices(event)

    def allowed(self, shape: torch.Size, device: torch.device | None = None) -> Tensor | None:
        return self.whole.allowed(shape, device)

    def forbid(self, scores: Tensor) -> Tensor:
        return self.whole.forbid(scores)

    def count_once(self, numbers: Tensor) -> Tensor:
        return self.whole.count_once(numbers)

    def gradient_of_parts(self, gradient: Tensor) -> Tensor:
        return self.whole.gradient_of_parts(gradient)

    def offers(self, capability: type[pb.Structure]) -> bool:
        return isinstance(self, capability) and self.whole.offers(capability)


@dataclass(frozen=True, eq=False)
class PartitionOnly(ArgmaxOnly, pb.LogLinear):
    """One whose log-partition function and samples are known besides."""

    def log_partition(self, scores: Tensor) -> Tensor:
        return self.whole.log_partition(scores)

    def sample(self, scores, sample_shape=(), *, generator=None):
        return self.whole.sample(scores, sample_shape, generator=generator)


def tagging_of(transitions, start=None, end=None, **options):
    """A tagging from its three tables, in the order in which `Tagging.bio` gives them."""
    return pb.Tagging(transitions, start=start, end=end, **options)


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
RANKINGS = [
    Case("Ranking", pb.Ranking(), (3,), (4,)),
    Case("Ranking, one of one", pb.Ranking(), (2,), (1,)),
    Case("Ranking, two batch dimensions", pb.Ranking(), (2, 2), (3,)),
    Case("Ranking, no batch", pb.Ranking(), (), (5,)),
    Case("Ranking, lengths", pb.Ranking(lengths=LENGTHS), (3,), (4,)),
    Case("Ranking, values, two of them equal", pb.Ranking(values=torch.tensor([0.5, -1.0, 0.5, 2.0])), (2,), (4,)),
    Case(
        "Ranking, values for each example, lengths",
        pb.Ranking(values=torch.tensor([[1, 2, 4, 8], [3, 1, 9, 9], [2, 0, 0, 0]]), lengths=LENGTHS),
        (3,),
        (4,),
    ),
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
NODES = torch.tensor([4, 1, 3])
EDGES = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
SPANNING = [
    Case("SpanningTree", pb.SpanningTree(), (3,), (4, 4)),
    Case("SpanningTree, two nodes, no batch", pb.SpanningTree(), (), (2, 2)),
    Case("SpanningTree, lengths", pb.SpanningTree(NODES), (3,), (4, 4)),
    Case("SpanningTree, mask", pb.SpanningTree(mask=EDGES), (2,), (4, 4)),
    Case("forest of two trees", pb.SpanningTree.forest(2), (3,), (4, 4)),
    Case("forest of two trees, lengths", pb.SpanningTree.forest(2, lengths=torch.tensor([4, 2])), (2,), (4, 4)),
]
ARC_LABELS = torch.rand(3, 4, 4, 2, generator=torch.Generator().manual_seed(0)) < 0.8
ARC_LABELS |= torch.eye(4, dtype=torch.bool).roll(1, 1)[..., None]  # so that a chain of words stays allowed
LABELLED = [
    Case(f"labelled {name}", pb.DependencyTree(labelled=True, **options), *shape)
    for name, options, shape in [
        ("tree", {}, ((2,), (4, 4, 2))),
        ("tree, one root", {"single_root": True}, ((2,), (4, 4, 2))),
        ("projective tree", {"projective": True}, ((2,), (3, 3, 3))),
        ("projective tree, one root, no batch", {"projective": True, "single_root": True}, ((), (4, 4, 2))),
        ("tree, one label", {}, ((3,), (4, 4, 1))),
        ("tree, lengths and mask", {"lengths": WORDS, "mask": ARC_LABELS}, ((3,), (4, 4, 2))),
        (
            "projective tree, one root, lengths",
            {"lengths": WORDS, "projective": True, "single_root": True},
            ((3,), (4, 4, 2)),
        ),
        ("projective tree, mask", {"mask": ARC_LABELS, "projective": True}, ((3,), (4, 4, 2))),
    ]
]
ALLOWED = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.bool)
PAIRS = ALLOWED.expand(3, 3, 3)
CHAINS = [
    Case("Chain", pb.Chain(), (3,), (3, 2, 2)),
    Case("Chain, one tag", pb.Chain(), (2,), (3, 1, 1)),
    Case("Chain, no batch", pb.Chain(), (), (2, 3, 3)),
    Case("Chain, lengths", pb.Chain(WORDS), (3,), (3, 2, 2)),
    Case("Chain, mask", pb.Chain(mask=PAIRS), (2,), (3, 3, 3)),
]
MATCHINGS = [
    Case("Matching", pb.Matching(), (3,), (3, 3)),
    Case("Matching, more columns", pb.Matching(), (2,), (2, 4)),
    Case("Matching, more rows, no batch", pb.Matching(), (), (4, 2)),
    Case("Matching, lengths", pb.Matching(torch.tensor([[3, 2], [0, 3], [1, 1]])), (3,), (3, 3)),
    Case("Matching, mask", pb.Matching(mask=ALLOWED), (2,), (3, 3)),
    Case("Matching, optional", pb.Matching(optional=True), (2,), (2, 3)),
    Case("Matching, optional, lengths", pb.Matching(torch.tensor([[2, 3], [0, 0]]), optional=True), (2,), (2, 3)),
]
SPANS = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1]], dtype=torch.bool)
SPAN_LABELS = torch.tensor(
    [[[1, 0], [1, 1], [1, 1]], [[0, 0], [1, 1], [0, 1]], [[0, 0], [0, 0], [0, 1]]], dtype=torch.bool
)
CONSTITUENCY = [
    Case("constituency tree", pb.ConstituencyTree(), (3,), (4, 4)),
    Case("constituency tree over one word", pb.ConstituencyTree(), (2,), (1, 1)),
    Case("constituency tree, no batch", pb.ConstituencyTree(), (), (5, 5)),
    Case("constituency tree, two batch dimensions", pb.ConstituencyTree(), (2, 2), (3, 3)),
    Case("constituency tree, lengths", pb.ConstituencyTree(torch.tensor([4, 0, 2])), (3,), (4, 4)),
    Case("constituency tree, mask", pb.ConstituencyTree(mask=SPANS), (3,), (4, 4)),
    Case("labelled constituency tree", pb.ConstituencyTree(labelled=True), (3,), (3, 3, 2)),
    Case(
        "labelled constituency tree, lengths and mask",
        pb.ConstituencyTree(WORDS, SPAN_LABELS, labelled=True),
        (3,),
        (3, 3, 2),
    ),
]
STEPS = torch.tensor([[0.5, -1.25, -torch.inf], [1.0, 0.25, -0.5], [0.0, 0.75, -2.0]], dtype=torch.float64)
FIRST, LAST = torch.tensor([0.5, -torch.inf, 0.25]).double(), torch.tensor([-0.25, 1.5, 0.0]).double()
KNOWN = torch.tensor([[0, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
TAGGINGS = [
    Case("Tagging", pb.Tagging(STEPS), (3,), (3, 3)),
    Case("Tagging, start and end", pb.Tagging(STEPS[:2, :2], start=FIRST[::2], end=LAST[:2]), (3,), (4, 2)),
    Case("Tagging, one tag", pb.Tagging(STEPS[:1, :1]), (2,), (3, 1)),
    Case("Tagging, no batch", pb.Tagging(STEPS, end=LAST), (), (3, 3)),
    Case(
        "Tagging, lengths",
        pb.Tagging(torch.stack([STEPS, STEPS.mT, -STEPS.mT.abs()]), start=FIRST, end=LAST, lengths=WORDS),
        (3,),
        (3, 3),
    ),
    Case("Tagging, mask", pb.Tagging(STEPS, end=LAST, mask=KNOWN), (2,), (3, 3)),
    Case("Tagging, BIO", tagging_of(*pb.Tagging.bio(["X"])[1:]), (2,), (3, 3)),
    Case("Tagging, BIOES", tagging_of(*pb.Tagging.bioes(["X"])[1:], lengths=torch.tensor([3, 1])), (2,), (3, 5)),
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
    Case("Segmentation, transitions", pb.Segmentation(transitions=STEPS[:2, :2]), (3,), (3, 2, 2)),
    Case("Segmentation, transitions, lengths", pb.Segmentation(WORDS, transitions=STEPS), (3,), (3, 2, 3)),
]
TABLES = torch.tensor([[3, 2], [0, 0], [2, 2]])
ALIGNMENTS = [
    Case("Alignment, global", pb.Alignment(), (3,), (3, 2, 3)),
    Case("Alignment, global, lengths", pb.Alignment(lengths=TABLES), (3,), (3, 2, 3)),
    Case("Alignment, local", pb.Alignment(kind="local"), (2,), (2, 2, 3)),
    Case("Alignment, local, lengths", pb.Alignment(kind="local", lengths=TABLES - 1 + (TABLES == 0)), (3,), (2, 2, 3)),
    Case("Alignment, dtw", pb.Alignment(kind="dtw"), (2,), (3, 3)),
    Case("Alignment, dtw, lengths", pb.Alignment(kind="dtw", lengths=TABLES), (3,), (3, 2)),
    Case("Alignment, dtw, mask", pb.Alignment(kind="dtw", mask=torch.arange(9).reshape(3, 3) != 3), (2,), (3, 3)),
    Case("Alignment, monotonic", pb.Alignment(kind="monotonic"), (3,), (2, 4)),
    Case("Alignment, monotonic, lengths", pb.Alignment(kind="monotonic", lengths=TABLES.flip(-1)), (3,), (2, 3)),
]
JOINT = [
    Case("Independent, Categorical", pb.Independent(pb.Categorical()), (3,), (2, 3)),
    Case("Independent, two dimensions", pb.Independent(pb.Binary(), dims=2), (2,), (2, 1, 2)),
    Case(
        "Independent, Categorical, lengths",
        pb.Independent(pb.Categorical(torch.tensor([[3, 1], [2, 3]]))),
        (2,),
        (2, 3),
    ),
    Case("Independent, tree", pb.Independent(pb.DependencyTree()), (2,), (2, 3, 3)),
    Case("Independent, Ranking", pb.Independent(pb.Ranking()), (2,), (2, 3)),
    Case("Independent, Subset", pb.Independent(pb.Subset(1)), (), (2, 3)),
    Case("Independent, Tagging", pb.Independent(pb.Tagging(STEPS)), (2,), (2, 2, 3)),
    Case(
        "product of a choice and a tagging",
        pb.product(pb.Categorical(), pb.Tagging(STEPS), shapes=[(2,), (2, 3)]),
        (2,),
        (8,),
    ),
    Case(
        "product of a choice and a tree",
        pb.product(pb.Categorical(mask=MASK), pb.DependencyTree(), shapes=[(4,), (3, 3)]),
        (3,),
        (13,),
    ),
    Case("Independent, SpanningTree", pb.Independent(pb.SpanningTree()), (2,), (2, 3, 3)),
    Case(
        "product of a choice and a SpanningTree",
        pb.product(pb.Categorical(), pb.SpanningTree(), shapes=[(2,), (3, 3)]),
        (2,),
        (11,),
    ),
]
WHOLE = (
    FLAT + TREES + LABELLED + CONSTITUENCY + SPANNING + CHAINS + TAGGINGS + PATHS + SEGMENTATIONS + ALIGNMENTS
    + MATCHINGS + RANKINGS + JOINT
)  # fmt: skip
ALONE = [
    Case("argmax alone: Subset", ArgmaxOnly(pb.Subset(2)), (3,), (5,)),
    Case("argmax alone: tree, lengths", ArgmaxOnly(pb.DependencyTree(WORDS)), (3,), (4, 4)),
    Case("argmax alone: constituency tree", ArgmaxOnly(pb.ConstituencyTree()), (3,), (4, 4)),
    Case("argmax alone: Path, several graphs", ArgmaxOnly(pb.Path(LATTICES, *ENDS)), (3,), (5,)),
    Case("argmax alone: Chain, mask", ArgmaxOnly(pb.Chain(mask=PAIRS)), (2,), (3, 3, 3)),
]


def bare(case: Case) -> Case:
    """The same polytope, with nothing but what base classes make of an argmax and of a partition function."""
    wrapper = PartitionOnly if case.structure.offers(pb.LogLinear) else ArgmaxOnly
    return replace(case, name=f"inherited: {case.name}", structure=wrapper(case.structure))


def is_alike_for_all(case: Case) -> bool:
    """Whether no example of the batch differs from the others in length, mask or budget."""
    inner = case.structure
    while hasattr(inner, "whole") or isinstance(inner, pb.Independent):
        inner = getattr(inner, "whole", None) or inner.structure
    facts = [getattr(inner, name, None) for name in ("lengths", "mask", "k", "low", "values", "structures", "source")]
    return len(case.batch) == 1 and not any(isinstance(fact, (torch.Tensor, tuple)) for fact in facts)


def kind(case: Case, with_options: bool = True) -> tuple:
    """The types a structure is made of, its options, and whether examples differ in length or mask."""
    inner, types = case.structure, []
    while True:
        types.append(type(inner))
        wrapped = getattr(inner, "whole", None) or getattr(inner, "structure", None)
        if wrapped is None:
            break
        inner = wrapped
    options = [value for value in vars(inner).values() if with_options and isinstance(value, (bool, int, str))]
    return (*types, *options, getattr(inner, "lengths", None) is None, getattr(inner, "mask", None) is None)


def one_of_each_kind(cases: list[Case], with_options: bool = True) -> list[Case]:
    """The first case of each kind, for tests that take long and do not depend on shapes."""
    return list({kind(case, with_options): case for case in reversed(cases)}.values())[::-1]


def plain_and_special(cases: list[Case]) -> list[Case]:
    """For each type of structure, the first case whose examples are alike, and the last whose are not."""
    types = lambda case: tuple(part for part in kind(case, with_options=False) if isinstance(part, type))
    plain = {(*types(case), True): case for case in reversed(cases) if is_alike_for_all(case)}
    special = {(*types(case), False): case for case in cases if not is_alike_for_all(case)}
    chosen = [*plain.values(), *special.values()]
    return [case for case in cases if case in chosen]


# What is inherited from an argmax alone knows the scores of parts, not those that a structure has of its own.
INHERITING = [case for case in WHOLE if not case.structure.has_own_scores]
BARE = [bare(case) for case in one_of_each_kind(INHERITING, with_options=False)]
STRUCTURES = WHOLE + BARE + ALONE
LOG_LINEAR = [case for case in STRUCTURES if case.structure.offers(pb.LogLinear)]
# The rooms above see a structure through its interface: for them two of each type are enough, one whose examples are
# alike and one with lengths or a mask, and some that inherit most of what they can.
UPSTAIRS = [*plain_and_special(WHOLE), TREES[3], TREES[7], *plain_and_special(BARE)[::4], *ALONE[::2]]
LOG_LINEAR_UPSTAIRS = [case for case in UPSTAIRS if case.structure.offers(pb.LogLinear)]
MAY_FORBID = [case for case in STRUCTURES if case.structure.is_zero_one]  # every item has a rank
K_BEST = [case for case in STRUCTURES if case.structure.offers(pb.KBest)]

REGULARIZERS = [pb.Unregularized(), pb.Entropy(), pb.SquaredNorm()]
DESCENTS = [
    pb.Unconstrained(0.3),
    pb.Projected(0.3),
    pb.Mirror(0.3, regularizer=pb.Entropy()),
    pb.Mirror(0.3, regularizer=pb.SquaredNorm()),
]

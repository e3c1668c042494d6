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
        product = torch.where(vertices == 0, 0, vertices * scores).flatten(1 + len(self.batch)).sum(-1)
        return (product + self.structure.own_score(vertices)).masked_fill(~self.feasible(), -torch.inf)

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
STEPS = torch.tensor([[0.5, -1.25, -torch.inf], [1.0, 0.25, -0.5], [0.0, 0.75, -2.0]], dtype=torch.float64)
FIRST, LAST = torch.tensor([0.5, -torch.inf, 0.25]).double(), torch.tensor([-0.25, 1.5, 0.0]).double()
KNOWN = torch.tensor([[0, 0, 1], [1, 1, 0], [1, 1, 1]], dtype=torch.bool)
TAGGINGS = [
    Case("Tagging", pb.Tagging(STEPS), (3,), (3, 3)),
    Case("Tagging, start and end", pb.Tagging(STEPS[:2, :2], FIRST[::2], LAST[:2]), (3,), (4, 2)),
    Case("Tagging, one tag", pb.Tagging(STEPS[:1, :1]), (2,), (3, 1)),
    Case("Tagging, no batch", pb.Tagging(STEPS, end=LAST), (), (3, 3)),
    Case(
        "Tagging, lengths",
        pb.Tagging(torch.stack([STEPS, STEPS.mT, -STEPS.mT.abs()]), FIRST, LAST, WORDS),
        (3,),
        (3, 3),
    ),
    Case("Tagging, mask", pb.Tagging(STEPS, end=LAST, mask=KNOWN), (2,), (3, 3)),
    Case("Tagging, BIO", pb.Tagging(*pb.Tagging.bio(["X"])[1:]), (2,), (3, 3)),
    Case("Tagging, BIOES", pb.Tagging(*pb.Tagging.bioes(["X"])[1:], lengths=torch.tensor([3, 1])), (2,), (3, 5)),
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
]
WHOLE = FLAT + TREES + CHAINS + TAGGINGS + JOINT
ALONE = [
    Case("argmax alone: Subset", ArgmaxOnly(pb.Subset(2)), (3,), (5,)),
    Case("argmax alone: tree, lengths", ArgmaxOnly(pb.DependencyTree(WORDS)), (3,), (4, 4)),
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
    facts = [getattr(inner, name, None) for name in ("lengths", "mask", "k", "low", "structures")]
    return len(case.batch) == 1 and not any(isinstance(fact, (torch.Tensor, tuple)) for fact in facts)


# What is inherited from an argmax alone knows the scores of parts, not those that a structure has of its own.
INHERITING = [case for case in WHOLE if not case.structure.has_own_scores]
BARE = [bare(case) for case in INHERITING]
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

"""The members of every family, for tests that hold for all of them."""

from dataclasses import dataclass

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

    def scores(self, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return (scale * torch.randn(*self.batch, *self.event, generator=generator, dtype=torch.float64)).to(dtype)

    def vertices(self) -> Tensor:
        """All of them, for every example: (vertices, *batch, *event)."""
        every = self.structure.enumerate(self.event).double()
        return every.reshape(-1, *(1,) * len(self.batch), *self.event).expand(-1, *self.batch, *self.event)

    def feasible(self) -> Tensor:
        """Which vertices belong to which example: (vertices, *batch)."""
        return self.structure.contains(self.vertices())

    def vertex_scores(self, scores: Tensor) -> Tensor:
        """⟨scores, z⟩ for every vertex, −∞ for those of other examples: (vertices, *batch)."""
        vertices = self.vertices()
        product = torch.where(vertices == 0, 0, vertices * scores).flatten(1 + len(self.batch)).sum(-1)
        return product.masked_fill(~self.feasible(), -torch.inf)


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
STRUCTURES = FLAT + TREES
LOG_LINEAR = [case for case in STRUCTURES if isinstance(case.structure, pb.LogLinear)]

REGULARIZERS = [pb.Unregularized(), pb.Entropy(), pb.SquaredNorm()]
DESCENTS = [
    pb.Unconstrained(0.3),
    pb.Projected(0.3),
    pb.Mirror(0.3, regularizer=pb.Entropy()),
    pb.Mirror(0.3, regularizer=pb.SquaredNorm()),
]

"""Several latent variables of different kinds in every example."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pullback.operators._search import check_start
from pullback.structures._capabilities import Enumerable, KBest, LogLinear, require
from pullback.structures._combinations import combine_best, combine_mixtures, list_combinations
from pullback.structures._results import Mixture, Solution
from pullback.structures._structure import Structure


@dataclass(frozen=True, eq=False)
class Product(LogLinear, KBest, Enumerable):
    """Structures of different kinds, chosen independently, with one loss per example for all of them.

    Scores: (..., parts), those of all blocks one after the other; `pack` makes them, `unpack` gives views back.  It has
    what all blocks have (`offers` tells), but no `entmax` and no `transport`; log-partition, entropy and
    log-probability are sums over the blocks.

    structures: the blocks.  shapes: the shape of the parts of each.

    >>> import torch
    >>> from pullback import Categorical, Subset
    >>> both = product(Categorical(), Subset(1), shapes=[(2,), (3,)])
    >>> scores = both.pack(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0, 0.0]))
    >>> both.unpack(both.argmax(scores))
    (tensor([0., 1.]), tensor([0., 1., 0.]))
    """

    structures: Sequence[Structure]
    shapes: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if not all(isinstance(shape, Sequence) for shape in self.shapes):
            raise TypeError(
                f"Product: shapes are {self.shapes!r}; expected a sequence of shapes, such as [(5,), (4, 4)]."
            )
        object.__setattr__(self, "structures", tuple(self.structures))
        object.__setattr__(self, "shapes", tuple(map(tuple, self.shapes)))
        if not self.structures or len(self.structures) != len(self.shapes):
            raise ValueError(
                f"Product: {len(self.structures)} structure(s) and {len(self.shapes)} shape(s); "
                "expected one shape of parts for each structure."
            )
        for structure, shape in zip(self.structures, self.shapes):
            if not isinstance(structure, Structure):
                raise TypeError(f"Product: {structure!r} was given; expected a Structure.")
            if structure.event_dims != len(shape):
                raise ValueError(
                    f"Product: the parts of {type(structure).__name__} have shape {shape}; "
                    f"expected {structure.event_dims} dimension(s)."
                )

    @property
    def is_zero_one(self) -> bool:  # type: ignore[override]
        return all(structure.is_zero_one for structure in self.structures)

    def offers(self, capability: type[Structure]) -> bool:
        return isinstance(self, capability) and all(structure.offers(capability) for structure in self.structures)

    def why_not(self, capability: type[Structure]) -> str:
        reasons = (one.why_not(capability) for one in self.structures if not one.offers(capability))
        return next(reasons, super().why_not(capability))

    # ---- blocks

    def pack(self, *blocks: Tensor) -> Tensor:
        """Tensors (..., *shape), one for each block, in one: (..., parts)."""
        if len(blocks) != len(self.shapes):
            raise ValueError(f"Product.pack: {len(blocks)} tensor(s) were given; expected {len(self.shapes)}.")
        for i, (block, shape) in enumerate(zip(blocks, self.shapes)):
            if tuple(block.shape[block.dim() - len(shape) :]) != shape:
                expected = ", ".join(map(str, shape))
                raise ValueError(f"Product.pack: block {i} has shape {tuple(block.shape)}; expected (..., {expected}).")
        return torch.cat([block.flatten(-len(shape)) for block, shape in zip(blocks, self.shapes)], -1)

    def unpack(self, packed: Tensor) -> tuple[Tensor, ...]:
        """The blocks of a tensor (..., parts), as views."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes]
        if packed.shape[-1] != sum(sizes):
            raise ValueError(f"Product: scores have shape {tuple(packed.shape)}; expected (..., {sum(sizes)}).")
        pieces = packed.split(sizes, -1)
        return tuple(piece.unflatten(-1, shape) for piece, shape in zip(pieces, self.shapes))

    # ---- block by block

    def argmax(self, scores: Tensor) -> Tensor:
        return self._each("argmax", scores)

    def sparsemap(self, scores: Tensor) -> Tensor:
        return self._each("sparsemap", scores)

    def project(self, point: Tensor) -> Tensor:
        return self._each("project", point)

    def marginals(self, scores: Tensor) -> Tensor:
        self._require("marginals")
        return self._each("marginals", scores)

    def restrict(self, scores: Tensor) -> Tensor:
        return self._each("restrict", scores)

    def sample(
        self, scores: Tensor, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        self._require("sample")
        return self._each("sample", scores, sample_shape, generator=generator)

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        def block(structure: Structure, event: Sequence[int]) -> Tensor:
            whole = (*shape[:-1], *event)
            allowed = structure.allowed(whole, device)
            allowed = torch.ones(whole, dtype=torch.bool, device=device) if allowed is None else allowed.expand(whole)
            return allowed.flatten(-len(event))

        return torch.cat([block(*pair) for pair in zip(self.structures, self.shapes)], -1)

    def forbid(self, scores: Tensor) -> Tensor:
        return self._each("forbid", scores)

    def count_once(self, numbers: Tensor) -> Tensor:
        return self._each("count_once", numbers)

    def visible(self, gradient: Tensor, usable: Tensor | None = None) -> Tensor:
        if usable is None:
            return self._each("visible", gradient)
        blocks = zip(self.structures, self.unpack(gradient), self.unpack(usable.expand(gradient.shape)))
        return self.pack(*(structure.visible(block, used) for structure, block, used in blocks))

    def gradient_of_parts(self, gradient: Tensor) -> Tensor:
        return self._each("gradient_of_parts", gradient)

    # ---- sums over the blocks

    @property
    def has_own_scores(self) -> bool:  # type: ignore[override]
        return any(structure.has_own_scores for structure in self.structures)

    def own_score(self, point: Tensor) -> Tensor:
        return self._sum("own_score", point if point.is_floating_point() else point.double())

    def log_partition(self, scores: Tensor) -> Tensor:
        self._require("log_partition")
        return self._sum("log_partition", scores)

    def entropy(self, scores: Tensor) -> Tensor:
        self._require("entropy")
        return self._sum("entropy", scores)

    def maximum_entropy(self, point: Tensor) -> Tensor:
        self._require("maximum_entropy")
        return self._sum("maximum_entropy", point)

    def log_prob(self, scores: Tensor, z: Tensor) -> Tensor:
        self._require("log_prob")
        return self._sum("log_prob", scores, z if z.is_floating_point() else z.double())

    def contains(self, vertices: Tensor) -> Tensor:
        answers = [structure.contains(block) for structure, block in zip(self.structures, self.unpack(vertices))]
        return torch.stack(answers).all(0)

    # ---- combinations

    def vertices(self, event: Sequence[int]) -> Tensor:
        blocks = [
            require(structure, Enumerable, "Product.enumerate").vertices(shape).flatten(1)
            for structure, shape in zip(self.structures, self.shapes)
        ]
        return list_combinations("Product", blocks)

    def support(self, scores: Tensor) -> Mixture:
        found = [
            structure.support(block) for structure, block in zip(self.structures, self.unpack(self._checked(scores)))
        ]
        flat = [Mixture(m.vertices.flatten(scores.dim()), m.probabilities, m.size) for m in found]
        return combine_mixtures("Product", flat)

    def solve(self, scores: Tensor, start: Tensor | None = None) -> Solution:
        """Block by block, each started from its part of the given vertices; the gap is the sum of theirs."""
        scores = self._checked(scores)
        if start is not None:
            check_start("Product", start, *self._split(scores.shape))
        starts = [None] * len(self.structures) if start is None else self.unpack(start)
        found = [
            structure.solve(block, given)
            for structure, block, given in zip(self.structures, self.unpack(scores), starts)
        ]
        flat = [Mixture(one.mixture.vertices.flatten(scores.dim()), *one.mixture[1:]) for one in found]
        gap, iterations, converged = (torch.stack(answers) for answers in list(zip(*found))[1:])
        return Solution(combine_mixtures("Product", flat), gap.sum(0), iterations.amax(0), converged.all(0))

    def best_vertices(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        best = [
            require(structure, KBest, "Product.topk").topk(block, k)
            for structure, block in zip(self.structures, self.unpack(scores))
        ]
        return combine_best([(found.vertices.flatten(scores.dim()), found.scores) for found in best], k)

    # ---- plumbing

    def _each(self, operation: str, scores: Tensor, *arguments: Any, **options: Any) -> Tensor:
        blocks = zip(self.structures, self.unpack(self._checked(scores)))
        return self.pack(*(getattr(structure, operation)(block, *arguments, **options) for structure, block in blocks))

    def _sum(self, operation: str, *packed: Tensor) -> Tensor:
        blocks = zip(self.structures, *(self.unpack(self._checked(tensor)) for tensor in packed))
        values: list[Tensor] = [getattr(structure, operation)(*block) for structure, *block in blocks]
        return torch.stack(values).sum(0)

    def _require(self, what: str) -> None:
        for structure in self.structures:
            require(structure, LogLinear, f"Product.{what}")


def product(*structures: Structure, shapes: Sequence[Sequence[int]]) -> Product:
    """Structures of different kinds in one: `product(Categorical(), DependencyTree(), shapes=[(5,), (11, 11)])`."""
    return Product(structures, shapes)

"""Dependency trees over the words of a sentence."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from pullback.operators import labelled_trees, tree_sparsemap, trees
from pullback.operators._family import Family
from pullback.structures._capabilities import relative_to_best
from pullback.structures._checks import check_flag, check_parts, check_tolerance
from pullback.structures._compiled import Compiled
from pullback.structures._constants import constant
from pullback.structures._limits import check_count
from pullback.structures._one_hot import chosen_index, one_hot
from pullback.structures._sequences import list_sequences


@constant
def _needed_words(size: int, device: torch.device | None) -> tuple[Tensor]:
    """How many words a sentence needs to have an arc, [head, modifier]; more than it can have where there is none."""
    nodes = torch.arange(size, device=device)
    is_arc = (nodes > 0) & (nodes.unsqueeze(-1) != nodes)
    return (torch.maximum(nodes, nodes.unsqueeze(-1)).masked_fill(~is_arc, size),)


@dataclass(frozen=True, eq=False)
class DependencyTree(Compiled):
    """Trees in which every word has one head: another word, or the root.

    Scores: (..., n + 1, n + 1), scores[..., head, modifier]; node 0 is the root.  Column 0 and the diagonal are
    never read and are exactly zero in every output and gradient.

    lengths: the number of words of each example, n if not given;  words beyond it are padding, and 0 words give zeros.
    mask: (..., n + 1, n + 1), true for arcs that are allowed.
    projective: no two arcs cross, so that every head governs a contiguous span.
    single_root: exactly one word hangs on the root; any number if not.
    labelled: every arc has one of t labels.  Scores and mask are then (..., n + 1, n + 1, t), [head, modifier, label].
    tolerance: the largest gap that `solve` and `support`, of projective trees SparseMAP too, may stop at, see
    `Structure.tolerance`; None is exact.

    With n words there are (n + 1)ⁿ⁻¹ trees, nⁿ⁻¹ with a single root; with labels, tⁿ times as many.  Argmax: O(n²) by
    contraction, projective O(n³) by Eisner's chart.  Log-partition and marginals: O(n³), by the matrix-tree theorem or
    the chart.  Labels add O(n² t) to each.
    """

    lengths: Tensor | None = None
    mask: Tensor | None = None
    _: KW_ONLY
    projective: bool = False
    single_root: bool = False
    labelled: bool = False
    tolerance: float | None = None
    length_advice = trees.LENGTH_ADVICE

    def __post_init__(self) -> None:
        for option in ("projective", "single_root", "labelled"):
            check_flag("DependencyTree", option, getattr(self, option))
        check_tolerance("DependencyTree", self.tolerance)

    @property
    def event_dims(self) -> int:  # type: ignore[override]
        return 3 if self.labelled else 2

    @property
    def fixed_sums(self) -> tuple[int, ...]:  # type: ignore[override]
        return (-3, -1) if self.labelled else (-2,)

    # ---- inference

    def sparsemap(self, scores: Tensor) -> Tensor:
        """The mixture of trees nearest to `scores`.

        By cuts, where trees are not projective; without labels, peaked scores go by the active-set method first.
        Projective trees go by the active-set method, and where scores are flat, by their chart.
        """
        if self.projective:
            return super().sparsemap(scores)
        project = tree_sparsemap.project_labelled if self.labelled else tree_sparsemap.project
        return project(*self._prepare(scores), self.single_root)[0]

    def marginals(self, scores: Tensor) -> Tensor:
        scores, lengths = self._prepare(scores)
        linearized = torch.is_grad_enabled() and scores.requires_grad and not (self.projective or self.labelled)
        partition = trees.linearized_partition if linearized else self._operators.partition
        return partition(scores, lengths, self.single_root)[1]

    @property
    def _operators(self) -> Family:
        if self.labelled:
            return labelled_trees.projective_trees if self.projective else labelled_trees.trees
        return trees.projective_trees if self.projective else trees.trees

    @property
    def _options(self) -> tuple[bool]:
        return (self.single_root,)

    # ---- what a tree is

    def longest(self, event: Sequence[int]) -> tuple[int]:
        return (event[0] - 1,)

    def check_event(self, event: torch.Size) -> None:
        if event[0] != event[1]:
            labels = ", t" if self.labelled else ""
            raise ValueError(
                f"DependencyTree: scores have parts of shape {tuple(event)}; expected (..., n + 1, n + 1{labels}) for "
                "n words, node 0 being the root."
            )

    def allowed(self, shape: Sequence[int], device: torch.device | None = None) -> Tensor:
        (needed,) = _needed_words(shape[-2], device)
        words = shape[-2] - 1 if self.lengths is None else self.lengths.to(device).unsqueeze(-1).unsqueeze(-1)
        arcs = needed <= words
        arcs = arcs.unsqueeze(-1) if self.labelled else arcs
        return arcs if self.mask is None else arcs & self.mask.to(device)

    def _list(self, length: tuple[int, ...], event: Sequence[int]) -> Tensor:
        (n,), (size, *labels) = length, event[1:]
        check_count("DependencyTree", (n + 1) ** n * math.prod(labels) ** n)
        heads = list_sequences(n, n + 1)
        arcs = torch.zeros(len(heads), size, size)
        arcs[:, :, 1 : n + 1] = torch.nn.functional.one_hot(heads, size).mT.to(arcs.dtype)
        arcs = arcs[self._are_trees(arcs, torch.full((len(heads),), n))]
        if not self.labelled:
            return arcs
        chosen = torch.zeros(labels[0] ** n, size, labels[0])
        chosen[:, 1 : n + 1] = torch.nn.functional.one_hot(list_sequences(n, labels[0]), labels[0])
        return (arcs[:, None, :, :, None] * chosen[:, None]).flatten(0, 1)

    def contains(self, vertices: Tensor) -> Tensor:
        self.check_event(self._split(vertices.shape)[1])
        if self.labelled:
            whole = ((vertices == 0) | (vertices == 1)).flatten(-3).all(-1)
            answer = whole & self._are_trees(vertices.sum(-1), self._lengths_of(vertices))
        else:
            answer = self._are_trees(vertices, self._lengths_of(vertices))
        if self.mask is not None:
            forbidden = (vertices != 0) & ~self.mask.to(vertices.device)
            answer = answer & ~forbidden.flatten(-self.event_dims).any(-1)
        return answer

    def _are_trees(self, arcs: Tensor, lengths: Tensor | None) -> Tensor:
        return trees.heads(arcs, lengths, self.projective, self.single_root)[..., 0] == 0

    def _without_offset(self, scores: Tensor) -> Tensor:
        return relative_to_best(scores, (-3, -1) if self.labelled else -2)

    def _slots(self, event: Sequence[int]) -> Tensor:
        modifiers = torch.arange(event[1])
        return (modifiers.unsqueeze(-1) if self.labelled else modifiers).expand(*event)

    # ---- heads and labels

    @staticmethod
    def heads(arcs: Tensor) -> Tensor:
        """The heads (..., n) of trees given as arc matrices (..., n + 1, n + 1): 0 for the root, −1 for no head.

        Of labelled trees, `heads_and_labels`.
        """
        advice = "  Of labelled trees, `heads_and_labels`."
        check_parts("DependencyTree.heads", "arcs", arcs, "n + 1, n + 1", advice)
        return chosen_index(arcs[..., 1:], -2)

    @staticmethod
    def heads_and_labels(arcs: Tensor) -> tuple[Tensor, Tensor]:
        """Heads and labels, (..., n) each, of labelled trees (..., n + 1, n + 1, t): −1 for no head and no label."""
        advice = "  Of trees without labels, `heads`."
        check_parts("DependencyTree.heads_and_labels", "arcs", arcs, "n + 1, n + 1, t", advice)
        used = arcs[..., 1:, :] != 0
        return chosen_index(used.any(-1), -2), chosen_index(used.any(-3))

    @staticmethod
    def arcs(heads: Tensor, labels: Tensor | None = None, t: int | None = None) -> Tensor:
        """The arc matrices (..., n + 1, n + 1) of trees given as heads (..., n): 0 is the root, −1 is no head.

        With labels (..., n) out of t, labelled trees: (..., n + 1, n + 1, t).
        """
        count = heads.shape[-1] + 1 if isinstance(heads, Tensor) else 1
        words = one_hot("DependencyTree.arcs", "heads", heads, count).mT
        arcs = torch.nn.functional.pad(words, (1, 0))
        if labels is None:
            return arcs
        if t is None:
            raise TypeError("DependencyTree.arcs: labels were given without t; expected how many labels there are.")
        chosen = one_hot("DependencyTree.arcs", "labels", labels, t)  # (..., n, t)
        return arcs.unsqueeze(-1) * torch.nn.functional.pad(chosen, (0, 0, 1, 0)).unsqueeze(-3)

"""The operators of SparseMAP over dependency trees, with the face of each solution kept for its derivative.

By cuts, for non-projective trees: the face is the support of the point and the sets of words that are tight.  By trees,
with the active-set method, for either kind: the face is spanned by trees, kept as heads.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import instances, operator
from pullback.structures._projection import ConvergenceWarning
from pullback.structures._tree_operators import KIND, run

_ROUNDS = 10_000


# ---- by cuts


def _by_cuts(scores: Tensor, lengths: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
    size = scores.shape[-1]
    point, sets = torch.empty_like(scores), lengths.new_empty(*lengths.shape, size, (size + 63) // 64)
    rest = (single_root, instances(point, 2), instances(sets, 2))
    run(kernels.tree_projection.project, scores, lengths, *rest, work=100 * size**2)
    return point, sets


def _fake_by_cuts(scores: Tensor, lengths: Tensor, single_root: bool) -> tuple[Tensor, Tensor]:
    size = scores.shape[-1]
    return scores.new_empty(scores.shape), lengths.new_empty(*lengths.shape, size, (size + 63) // 64)


def _save_sets(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[1], *output)


def _differentiate_by_cuts(ctx: Any, gradient: Tensor, _: Any) -> tuple[Any, ...]:
    return by_cuts_backward(gradient, *ctx.saved_tensors), None, None


by_cuts = operator(
    "tree_project(Tensor scores, Tensor lengths, bool single_root) -> (Tensor, Tensor)",
    _by_cuts,
    _fake_by_cuts,
    save=_save_sets,
    backward=_differentiate_by_cuts,
)
"""The nearest mixture of trees, and its active sets as bits."""


def _by_cuts_backward(gradient: Tensor, lengths: Tensor, point: Tensor, sets: Tensor) -> Tensor:
    product = torch.empty_like(gradient)
    rest = (instances(point, 2), instances(sets, 2), instances(product, 2))
    run(kernels.tree_projection.project_backward, gradient, lengths, *rest, work=20 * gradient.shape[-1] ** 2)
    return product


def _save_face(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _differentiate_by_cuts_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The Jacobian is symmetric, and constant wherever it exists."""
    return by_cuts_backward(gradient, *ctx.saved_tensors), None, None, None


by_cuts_backward = operator(
    "tree_project_backward(Tensor gradient, Tensor lengths, Tensor point, Tensor sets) -> Tensor",
    _by_cuts_backward,
    lambda gradient, *_: gradient.new_empty(gradient.shape),
    save=_save_face,
    backward=_differentiate_by_cuts_backward,
)


# ---- by trees


def _most_trees(size: int) -> int:
    """Affinely independent trees over size − 1 words, at most."""
    words = size - 1
    return words * words - words + 1


def _by_trees(
    scores: Tensor, lengths: Tensor, start: Tensor, projective: bool, single_root: bool, tolerance: float
) -> tuple[Tensor, ...]:
    size = scores.shape[-1]
    most = _most_trees(size)
    point = torch.empty_like(scores)
    heads = lengths.new_empty(*lengths.shape, most, size, dtype=torch.int16)
    probabilities = scores.new_empty(*lengths.shape, most)
    count, iterations = torch.empty_like(lengths), torch.empty_like(lengths)
    gap = scores.new_empty(lengths.shape, dtype=torch.float64)
    outputs = (instances(point, 2), instances(heads, 2), instances(probabilities, 1))
    report = (instances(count, 0), instances(gap, 0), instances(iterations, 0))
    rest = (projective, single_root, instances(start, 2), tolerance, _ROUNDS, *outputs, *report)
    run(kernels.tree_mixture.sparsemap, scores, lengths, *rest, work=20 * size**3)
    if (iterations >= _ROUNDS).any() and not is_certified(gap, scores, point).all():
        warnings.warn(f"SparseMAP over trees stopped at a gap of {gap.max():.1e}.", ConvergenceWarning, stacklevel=2)
    return point, heads, probabilities, count, gap, iterations


def _fake_by_trees(scores: Tensor, lengths: Tensor, *_: Any) -> tuple[Tensor, ...]:
    most = _most_trees(scores.shape[-1])
    return (
        scores.new_empty(scores.shape),
        lengths.new_empty(*lengths.shape, most, scores.shape[-1], dtype=torch.int16),
        scores.new_empty(*lengths.shape, most),
        torch.empty_like(lengths),
        lengths.new_empty(lengths.shape, dtype=torch.float64),
        torch.empty_like(lengths),
    )


def _save_trees(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, lengths, _, *ctx.kind, _ = inputs
    ctx.save_for_backward(scores, lengths, output[1], output[3])


def _differentiate_by_trees(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
    scores, lengths, heads, count = ctx.saved_tensors
    return by_trees_backward(scores, lengths, heads, count, gradient, *ctx.kind), None, None, None, None, None


by_trees = operator(
    f"tree_mixture(Tensor scores, Tensor lengths, Tensor start, {KIND}, float tolerance) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _by_trees,
    _fake_by_trees,
    save=_save_trees,
    backward=_differentiate_by_trees,
)
"""The nearest mixture of trees; heads, probabilities and number of the trees it mixes; gap, iterations.

`start` (*batch, k, n + 1) holds the heads of trees to begin with, −1 where there is none.
"""


def is_certified(gap: Tensor, scores: Tensor, point: Tensor) -> Tensor:
    """Whether a gap is small beside the scores that the point uses."""
    return gap <= 1e-6 * scores.masked_fill(point == 0, 0).abs().amax((-2, -1)).clamp_min(1)


def no_trees(lengths: Tensor, size: int) -> Tensor:
    """The start of a search that begins with nothing."""
    return lengths.new_empty((*lengths.shape, 0, size), dtype=torch.int16)


def _by_trees_backward(
    scores: Tensor,
    lengths: Tensor,
    heads: Tensor,
    count: Tensor,
    gradient: Tensor,
    projective: bool,
    single_root: bool,
) -> Tensor:
    product = torch.empty_like(gradient)
    trees = (instances(heads, 2), instances(count, 0))
    rest = (projective, single_root, *trees, instances(gradient, 2), instances(product, 2))
    run(kernels.tree_mixture.sparsemap_backward, scores, lengths, *rest, work=5 * scores.shape[-1] ** 3)
    return product


def _save_trees_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, _, projective, single_root = inputs
    ctx.kind = projective, single_root
    ctx.save_for_backward(*tensors)


def _differentiate_by_trees_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The Jacobian is symmetric, and constant wherever it exists."""
    product = by_trees_backward(*ctx.saved_tensors, gradient, *ctx.kind)
    return None, None, None, None, product, None, None


by_trees_backward = operator(
    "tree_mixture_backward(Tensor scores, Tensor lengths, Tensor heads, Tensor count, Tensor gradient, "
    f"{KIND}) -> Tensor",
    _by_trees_backward,
    lambda scores, lengths, heads, count, gradient, *_: gradient.new_empty(gradient.shape),
    save=_save_trees_backward,
    backward=_differentiate_by_trees_backward,
)

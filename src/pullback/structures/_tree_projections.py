"""The operators of SparseMAP over dependency trees, with the face of each solution kept for its derivative.

By cuts, for non-projective trees: the face is the support of the point and the sets of words that are tight.  By trees,
with the active-set method, for either kind: the face is spanned by trees, kept as heads.

The cost of cuts hardly depends on how many trees mix, that of trees on little else.  Where scores are peaked, up to a
dozen trees mix, and going by them is up to twice as fast (`benchmarks`, trees.peaked and trees.parser).
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import instances, operator
from pullback.structures._projection import ConvergenceWarning
from pullback.structures._tree_operators import KIND, run

_ROUNDS = 10_000
# A derivative needs the trees that the last rounds bring, a point does not: 1e-10 leaves it right to about 1e-11, and
# where hundreds of non-projective trees mix, rounding may make ten times as many rounds of 1e-12.
GAP, GAP_OF_DERIVATIVE = 1e-10, 1e-12
_FEW_RIVALS, _FEW_PER_WORD = 20, 0.8  # arcs that compete with the best into their words; about as many trees mix
_FEW_TREES = 32


# ---- trees as heads here, as parts in the kernels: head · size + word, −1 for the root


def _to_parts(heads: Tensor) -> NDArray[np.int32]:
    words = torch.arange(heads.shape[-1])
    parts = torch.where((heads < 0) | (words == 0), -1, heads.int() * len(words) + words.int())
    return instances(parts, 2)


def _to_heads(parts: NDArray[np.int32], heads: Tensor) -> None:
    np.floor_divide(np.maximum(parts, 0), parts.shape[-1], out=instances(heads, 2), casting="unsafe")


# ---- by the better way for each example


def _project(scores: Tensor, lengths: Tensor, single_root: bool) -> tuple[Tensor, ...]:
    point, sets, heads, count = _fake_project(scores, lengths, single_root)
    for output in (sets, heads, count):  # the face is written in one form only
        output.numpy().fill(0)  # torch would leave a thread spinning on the core that the kernel needs
    few, many = torch.empty_like(lengths), torch.empty_like(lengths)
    batch, size, words = lengths.numel(), scores.shape[-1], (instances(few, 0), instances(many, 0))
    limits = (_FEW_RIVALS, _FEW_PER_WORD)
    peaked = kernels.tree_cuts.split_by_rivals(instances(scores, 2), instances(lengths, 0), *limits, *words)
    if peaked > 0:
        start, probabilities = np.empty((batch, 0, size), np.int32), np.empty((batch, _FEW_TREES))
        parts = np.zeros((batch, _FEW_TREES, size), np.int32)
        trees = (instances(point, 2), parts, probabilities, instances(count, 0))
        gap, rounds = np.zeros(batch), np.empty(batch, np.int64)
        rest = (single_root, start, GAP_OF_DERIVATIVE, _ROUNDS, *trees, gap, rounds)
        run(kernels.trees.mixture, scores, few, *rest, work=50 * size**2)
        _to_heads(parts, heads)
        if int(count.max()) > _FEW_TREES or gap.max() > GAP:  # cuts are right for them too
            others = (count > _FEW_TREES) | torch.from_numpy(gap > GAP).reshape(count.shape)
            many[others], heads[others], count[others], peaked = lengths[others], 0, 0, 0
    if peaked < batch:
        face = (instances(point, 2), instances(sets, 2))
        run(kernels.tree_cuts.project, scores, many, single_root, *face, work=100 * size**2)
    return point, sets, heads, count


def _fake_project(scores: Tensor, lengths: Tensor, single_root: bool) -> tuple[Tensor, ...]:
    size = scores.shape[-1]
    return (
        scores.new_empty(scores.shape),
        lengths.new_empty(*lengths.shape, size, (size + 63) // 64),
        lengths.new_empty(*lengths.shape, _FEW_TREES, size, dtype=torch.int16),
        lengths.new_empty(lengths.shape),
    )


def _save_face(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, lengths, ctx.single_root = inputs
    ctx.save_for_backward(scores, lengths, *output)


def _differentiate_project(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Any, ...]:
    return project_backward(gradient, *ctx.saved_tensors, ctx.single_root), None, None


project = operator(
    "tree_project(Tensor scores, Tensor lengths, bool single_root) -> (Tensor, Tensor, Tensor, Tensor)",
    _project,
    _fake_project,
    save=_save_face,
    backward=_differentiate_project,
)
"""The nearest mixture of non-projective trees, and its face.

By cuts, with the active sets as bits; or by trees where few of them are expected to mix, with their heads and number,
which is 0 where it went by cuts.
"""


def _project_backward(
    gradient: Tensor,
    scores: Tensor,
    lengths: Tensor,
    point: Tensor,
    sets: Tensor,
    heads: Tensor,
    count: Tensor,
    single_root: bool,
) -> Tensor:
    product = torch.empty_like(gradient)
    few = count > 0
    peaked = int(few.sum())
    if peaked > 0:
        rest = (single_root, _to_parts(heads), instances(count, 0))
        arrays = (instances(gradient, 2), instances(product, 2))
        words, work = torch.where(few, lengths, -1), 20 * scores.shape[-1] ** 2
        run(kernels.trees.mixture_backward, scores, words, *rest, *arrays, work=work)
    if peaked < few.numel():
        face = (instances(point, 2), instances(sets, 2), instances(product, 2))
        many, work = torch.where(few, -1, lengths), 20 * scores.shape[-1] ** 2
        run(kernels.tree_cuts.project_backward, gradient, many, *face, work=work)
    return product


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *tensors, ctx.single_root = inputs
    ctx.save_for_backward(*tensors)


def _differentiate_project_backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    """The Jacobian is symmetric, and constant wherever it exists."""
    return project_backward(gradient, *ctx.saved_tensors, ctx.single_root), *(None,) * 7


project_backward = operator(
    "tree_project_backward(Tensor gradient, Tensor scores, Tensor lengths, Tensor point, Tensor sets, Tensor heads, "
    "Tensor count, bool single_root) -> Tensor",
    _project_backward,
    lambda gradient, *_: gradient.new_empty(gradient.shape),
    save=_save_backward,
    backward=_differentiate_project_backward,
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
    parts = np.zeros((lengths.numel(), most, size), np.int32)
    probabilities = scores.new_zeros(*lengths.shape, most)
    count, iterations = torch.empty_like(lengths), torch.empty_like(lengths)
    gap = scores.new_empty(lengths.shape, dtype=torch.float64)
    outputs = (instances(point, 2), parts, instances(probabilities, 1))
    report = (instances(count, 0), instances(gap, 0), instances(iterations, 0))
    rest = (single_root, _to_parts(start), tolerance, _ROUNDS, *outputs, *report)
    folder = kernels.projective_trees if projective else kernels.trees
    run(folder.mixture, scores, lengths, *rest, work=20 * size**3)
    _to_heads(parts, heads)
    if not is_certified(gap, scores, point).all():
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
    ctx.set_materialize_grads(False)


def _differentiate_by_trees(ctx: Any, gradient: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if gradient is None:
        return (None,) * 6
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
    """Whether a gap is as small as rounding allows, given the scores that the point uses beside each column's best."""
    if not (gap > 1e-9).any():
        return torch.ones_like(gap, dtype=torch.bool)
    used = scores.double().masked_fill(point == 0, -torch.inf)
    below = (used - used.amax(-2, keepdim=True)).masked_fill(point == 0, 0).abs().amax((-2, -1))
    return gap <= 1e-9 + 1e-14 * scores.shape[-1] * below


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
    trees = (_to_parts(heads), instances(count, 0))
    rest = (single_root, *trees, instances(gradient, 2), instances(product, 2))
    folder = kernels.projective_trees if projective else kernels.trees
    run(folder.mixture_backward, scores, lengths, *rest, work=5 * scores.shape[-1] ** 3)
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

"""The operators of dependency trees.

Scores are (*batch, n + 1, n + 1) and lengths (*batch), counting words.  Non-projective trees are solved by contraction,
by the matrix-tree theorem and by cuts; projective ones by Eisner's chart.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pullback import kernels
from pullback.structures._bridge import Kernel, instances, name_example, no_derivative, operator, over_batch
from pullback.structures._projection import ConvergenceError

KIND = "bool projective, bool single_root"


def arcs_in_use(lengths: Tensor, size: int) -> Tensor:
    """Which arcs head → modifier exist: both within the sentence, none into the root, none from a word to itself."""
    nodes = torch.arange(size, device=lengths.device)
    inside = nodes <= lengths.unsqueeze(-1)
    words = inside & (nodes > 0)
    return inside.unsqueeze(-1) & words.unsqueeze(-2) & (nodes.unsqueeze(-1) != nodes)


def run(kernel: Kernel, scores: Tensor, lengths: Tensor, *rest: Any, work: float) -> NDArray[np.int64]:
    """A kernel over a batch of trees, with `work` nanoseconds for each, or an error naming the example it failed at.

    Returns the lengths as the kernel has read them.
    """
    words = instances(lengths, 0)
    batch = len(words)
    failed = over_batch(kernel, instances(scores, 2), words, *rest, batch=batch, work=work * batch)
    if failed <= -2:
        raise ConvergenceError(f"DependencyTree: the projection of {name_example(-2 - failed, lengths.shape)} failed.")
    if failed >= 0:
        example = name_example(failed, lengths.shape)
        used = scores.masked_fill(~arcs_in_use(lengths, scores.shape[-1]), 0).reshape(batch, -1)[failed]
        if used.isnan().any() or (used == torch.inf).any():
            raise ValueError(f"DependencyTree: the scores of {example} contain NaN or +inf; expected numbers or -inf.")
        raise ValueError(f"DependencyTree: {example} has no tree: not every word is reachable by arcs above -inf.")
    return words


# ---- argmax, samples, the k best


def _argmax(scores: Tensor, lengths: Tensor, projective: bool, single_root: bool) -> Tensor:
    size = scores.shape[-1]
    heads = np.empty((lengths.numel(), size), np.int64)
    kernel = kernels.projective_trees.argmax if projective else kernels.trees.argmax
    words = run(kernel, scores, lengths, single_root, heads, work=size**3 if projective else 4 * size**2)
    return _write_arcs(heads, words, torch.empty_like(scores))


def _write_arcs(heads: NDArray[Any], words: NDArray[np.int64], matrix: Tensor) -> Tensor:
    """Heads (instances, n + 1) of sentences with so many words, as arcs in `matrix`, which is returned."""
    kernels.trees.write_arcs(heads, words, instances(matrix, 2), 0, len(heads))
    return matrix


def _arcs(heads: NDArray[Any], lengths: Tensor, like: Tensor) -> Tensor:
    """Heads (instances, n + 1) as arc matrices (*lengths.shape, n + 1, n + 1), in the dtype of `like`."""
    size = heads.shape[-1]
    return _write_arcs(heads, instances(lengths, 0), like.new_empty(*lengths.shape, size, size))


def _fake_arcs(like: Tensor, heads: Tensor, lengths: Tensor) -> Tensor:
    return like.new_empty(*heads.shape, heads.shape[-1])


arcs = operator(
    "tree_arcs(Tensor like, Tensor heads, Tensor lengths) -> Tensor",
    lambda like, heads, lengths: _arcs(instances(heads, 1), lengths, like),
    _fake_arcs,
)
"""Trees given by their heads (*batch, n + 1) as arc matrices."""


def _like_scores(scores: Tensor, *_: Any) -> Tensor:
    return scores.new_empty(scores.shape)


argmax = operator(f"tree_argmax(Tensor scores, Tensor lengths, {KIND}) -> Tensor", _argmax, _like_scores)


def _sample(scores: Tensor, lengths: Tensor, seeds: Tensor, count: int, projective: bool, single_root: bool) -> Tensor:
    size = scores.shape[-1]
    heads = np.empty((lengths.numel(), count, size), np.int64)
    kernel = kernels.projective_trees.sample if projective else kernels.trees.sample
    run(kernel, scores, lengths, single_root, instances(seeds, 0), heads, work=size**3 + 10 * count * size**2)
    return _arcs(heads.reshape(-1, size), lengths.unsqueeze(-1).expand(*lengths.shape, count).contiguous(), scores)


def _fake_sample(scores: Tensor, lengths: Tensor, seeds: Tensor, count: int, *_: Any) -> Tensor:
    return scores.new_empty(*lengths.shape, count, *scores.shape[-2:])


sample = operator(
    f"tree_sample(Tensor scores, Tensor lengths, Tensor seeds, int count, {KIND}) -> Tensor", _sample, _fake_sample
)


def _topk(scores: Tensor, lengths: Tensor, k: int, projective: bool, single_root: bool) -> tuple[Tensor, Tensor]:
    size = scores.shape[-1]
    heads = np.empty((lengths.numel(), k, size), np.int64)
    values = scores.new_empty(*lengths.shape, k, dtype=torch.float64)
    counts = torch.empty_like(lengths)
    kernel = kernels.projective_trees.topk if projective else kernels.trees.topk
    rest = (single_root, k, heads, instances(values, 1), instances(counts, 0))
    run(kernel, scores, lengths, *rest, work=k * size**3)
    found = torch.arange(k) < counts.unsqueeze(-1)
    return _arcs(heads.reshape(-1, size), torch.where(found, lengths.unsqueeze(-1), 0), scores), counts


def _fake_topk(scores: Tensor, lengths: Tensor, k: int, *_: Any) -> tuple[Tensor, Tensor]:
    return scores.new_empty(*lengths.shape, k, *scores.shape[-2:]), torch.empty_like(lengths)


topk = operator(f"tree_topk(Tensor scores, Tensor lengths, int k, {KIND}) -> (Tensor, Tensor)", _topk, _fake_topk)


def _heads(arcs: Tensor, lengths: Tensor, projective: bool, single_root: bool) -> Tensor:
    heads = lengths.new_empty(arcs.shape[:-1], dtype=torch.int16)
    rest = (single_root, projective, instances(heads, 1))
    kernel, batch = kernels.trees.read_trees, lengths.numel()
    over_batch(kernel, instances(arcs, 2), instances(lengths, 0), *rest, batch=batch, work=0)
    return heads


heads = operator(
    f"tree_heads(Tensor arcs, Tensor lengths, {KIND}) -> Tensor",
    _heads,
    lambda arcs, lengths, *_: lengths.new_empty(arcs.shape[:-1], dtype=torch.int16),
)
"""Arc matrices as heads (*batch, n + 1), the root's being 0; −1 throughout where the matrix is not a tree."""


def contains(arcs: Tensor, lengths: Tensor, projective: bool, single_root: bool) -> Tensor:
    """Whether each arc matrix is a tree."""
    return heads(arcs, lengths, projective, single_root)[..., 0] == 0


# ---- sums over all trees


def _log_partition(scores: Tensor, lengths: Tensor, projective: bool, single_root: bool) -> Tensor:
    value = scores.new_empty(lengths.shape)
    room = kernels.projective_trees if projective else kernels.trees
    run(room.log_partition, scores, lengths, single_root, instances(value, 0), work=scores.shape[-1] ** 3)
    return value


log_partition = operator(
    f"tree_log_partition(Tensor scores, Tensor lengths, {KIND}) -> Tensor",
    _log_partition,
    lambda scores, lengths, *_: scores.new_empty(lengths.shape),
)
"""The value alone, for when nothing is differentiated."""


def _partition_and_marginals(
    scores: Tensor, lengths: Tensor, projective: bool, single_root: bool, linearized: bool
) -> tuple[Tensor, ...]:
    value, marginals, weights, slopes = _fake_partition(scores, lengths, projective, single_root, linearized)
    room = kernels.projective_trees if projective else kernels.trees
    kernel, kept = room.log_partition_and_marginals, [instances(value, 0), instances(marginals, 2)]
    if weights.numel():
        kernel, kept = kernels.trees.linearize, [*kept, instances(weights, 2), instances(slopes, 2)]
    run(kernel, scores, lengths, single_root, *kept, work=2 * scores.shape[-1] ** 3)
    return value, marginals, weights, slopes


def _fake_partition(
    scores: Tensor, lengths: Tensor, projective: bool, single_root: bool, linearized: bool
) -> tuple[Tensor, ...]:
    shape = scores.shape if linearized and not projective else (*lengths.shape, 0)
    weights, slopes = (scores.new_empty(shape, dtype=torch.float64) for _ in range(2))
    return scores.new_empty(lengths.shape), scores.new_empty(scores.shape), weights, slopes


def _save_partition(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    scores, lengths, ctx.projective, ctx.single_root, _ = inputs
    ctx.save_for_backward(scores, lengths, *output[1:])
    ctx.set_materialize_grads(False)


def _differentiate_partition(
    ctx: Any, of_value: Tensor | None, of_marginals: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    """The value's gradient is the marginals; that of the marginals is the Hessian of the value."""
    scores, lengths, marginals, weights, slopes = ctx.saved_tensors
    gradient = None
    if of_value is not None:
        gradient = of_value[..., None, None] * marginals
    if of_marginals is not None:
        curvature = hessian_product(scores, lengths, weights, slopes, of_marginals, ctx.projective, ctx.single_root)
        gradient = curvature if gradient is None else gradient + curvature
    return gradient, None, None, None, None


partition_and_marginals = operator(
    f"tree_partition_and_marginals(Tensor scores, Tensor lengths, {KIND}, bool linearized) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
    _partition_and_marginals,
    _fake_partition,
    save=_save_partition,
    backward=_differentiate_partition,
)
"""The log-partition and the marginals; if `linearized`, also what makes the derivative of the marginals cheap."""


def _hessian_product(
    scores: Tensor,
    lengths: Tensor,
    weights: Tensor,
    slopes: Tensor,
    direction: Tensor,
    projective: bool,
    single_root: bool,
) -> Tensor:
    product = torch.empty_like(scores)
    room = kernels.projective_trees if projective else kernels.trees
    kernel, rest = room.hessian_product, [instances(direction.to(scores.dtype), 2), instances(product, 2)]
    if weights.numel():
        kernel, rest = kernels.trees.hessian_product_at, [instances(weights, 2), instances(slopes, 2), *rest]
    run(kernel, scores, lengths, single_root, *rest, work=4 * scores.shape[-1] ** 3)
    return product


hessian_product = operator(
    f"tree_hessian_product(Tensor scores, Tensor lengths, Tensor weights, Tensor slopes, Tensor direction, {KIND}) "
    "-> Tensor",
    _hessian_product,
    _like_scores,
    backward=no_derivative,
)

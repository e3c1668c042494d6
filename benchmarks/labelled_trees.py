"""Labelled dependency trees against torch-struct and ufal, given what the labels of each arc are worth, in torch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

import pullback as pb

from ._harness import OURS, Figure, absolute, agree, case, faster_than, optional, take_turns, with_gradient
from ._tree_peers import Peers, TorchStruct, Ufal, tree_score

SIZES = ((32, 10, 40), (32, 25, 40))  # sentences, words, labels; as many as Universal Dependencies has


def random_scores(batch: int, words: int, labels: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(words)
    return scale * torch.randn(batch, words + 1, words + 1, labels, generator=generator)


def size_of(batch: int, words: int, labels: int, projective: bool) -> str:
    return f"{batch} × {words} words, {labels} labels, {'projective' if projective else 'non-projective'}"


def _summed_by_torch_struct(scores: Tensor, projective: bool) -> Tensor:
    """An arc is worth all of its labels together."""
    library = optional("torch_struct")
    family = library.DependencyCRF if projective else library.NonProjectiveDependencyCRF
    return family(TorchStruct.from_ours(scores.logsumexp(-1)), multiroot=True).partition


@case("labelled_trees.log_partition")
def log_partition() -> Iterator[Figure]:
    """Log-partition, forward and backward, against torch-struct over a log-sum-exp of the labels."""
    for projective in (False, True):
        for shape in SIZES:
            scores = random_scores(*shape).requires_grad_()
            trees = pb.DependencyTree(labelled=True, projective=projective)
            theirs = None
            if optional("torch_struct"):
                agree(trees.log_partition(scores), _summed_by_torch_struct(scores, projective), "log_partition", 2e-3)
                theirs = lambda: with_gradient(lambda: _summed_by_torch_struct(scores, projective), scores)
            ours = lambda: with_gradient(lambda: trees.log_partition(scores), scores)
            times = take_turns({OURS: ours, TorchStruct.name: theirs}, rounds=(3, 15))
            yield faster_than(times, TorchStruct.name, size=size_of(*shape, projective))


@case("labelled_trees.argmax")
def argmax() -> Iterator[Figure]:
    """The best tree against ufal over the best label of each arc, whose labels are then looked up."""
    trees = pb.DependencyTree(labelled=True)
    for shape in SIZES:
        scores = random_scores(*shape)
        theirs = None
        if optional("ufal.chu_liu_edmonds"):

            def theirs() -> Tensor:
                best, label = scores.max(-1)
                heads = Peers(best).ufal.argmax().clamp_min(0)
                return label.gather(1, heads.unsqueeze(1))

            best = scores.amax(-1)
            agree(trees.inner(scores, trees.argmax(scores)), _best_by_ufal(best), "best tree", 1e-4)
        times = take_turns({OURS: lambda: trees.argmax(scores), Ufal.name: theirs})
        yield faster_than(times, Ufal.name, size=size_of(*shape, projective=False))


def _best_by_ufal(best: Tensor) -> Tensor:
    return tree_score(best, Ufal.to_ours(Peers(best).ufal.argmax()))


@case("labelled_trees.flat")
def flat() -> Iterator[Figure]:
    """SparseMAP forward and backward where scores are nearly equal, of labelled arcs and spans; against scale 1."""
    structures = {
        "projective": pb.DependencyTree(labelled=True, projective=True),
        "constituency": pb.ConstituencyTree(labelled=True),
    }
    for name, trees in structures.items():
        for words, labels in ((10, 10), (30, 3), (60, 3)):
            size = words + (name == "projective")
            scores = random_scores(1, words, labels)[:, :size, :size]
            weight = scores.flip(0, 1)
            for scale in (0.01, 0.0):
                flat, peaked = ((factor * scores).requires_grad_() for factor in (scale, 1.0))
                times = take_turns(
                    {
                        OURS: lambda: with_gradient(lambda: trees.sparsemap(flat), flat, weight),
                        "scale 1": lambda: with_gradient(lambda: trees.sparsemap(peaked), peaked, weight),
                    },
                    rounds=(1, 3),
                )
                label = f"{name}, {words} words, {labels} labels, scale {scale:g}"
                yield absolute(times, size=label, unit="s/sentence")
                medians = {OURS: times.median(OURS), "scale 1": times.median("scale 1")}
                yield Figure(label, times.ratio(OURS, "scale 1"), "of scale 1", times=medians)


@case("labelled_trees.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """SparseMAP forward and backward, from peaked to flat scores."""
    for projective in (False, True):
        trees = pb.DependencyTree(labelled=True, projective=projective)
        for scale in (1.0, 0.1):
            shape = (8, 10, 10)
            scores, weight = random_scores(*shape, scale).requires_grad_(), random_scores(*shape)
            times = take_turns(
                {OURS: lambda: with_gradient(lambda: trees.sparsemap(scores), scores, weight)}, rounds=(2, 5)
            )
            size = f"{size_of(*shape, projective)}, scale {scale:g}"
            yield absolute(times, per=shape[0], unit="s/sentence", size=size)

"""Dependency trees against torch-struct, supar, ufal.chu_liu_edmonds and lp-sparsemap, float32, N(0, 1) scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

import pullback as pb
from pullback.operators import tree_sparsemap
from pullback.operators import trees as tree_operators

from ._harness import (
    OURS,
    Disagreement,
    Figure,
    Times,
    absolute,
    agree,
    case,
    data_folder,
    faster_than,
    take_turns,
    with_gradient,
    with_threads,
)
from ._parser import attachment, read_treebank, trained_parser
from ._report import plot
from ._tree_peers import LpSparseMAP, Peers, Supar, TorchStruct, Ufal, tree_score

ALL_SIZES = ((32, 10), (64, 25), (32, 50), (8, 100))  # sentences, words
PROJECTIVE_SIZES = ALL_SIZES[:3]

# lp-sparsemap does not install from a registry.  On record are its milliseconds with 1000 iterations, (words, scale) →
# time, and those of ufal on the same machine for 64 sentences of 25 words, multi-root: what ufal takes today tells how
# this machine compares.  (At that size conversions are a few percent.)
LP_SPARSEMAP = {(10, 1.0): 13.8, (10, 0.1): 73.9, (25, 1.0): 336, (25, 0.1): 3845, (50, 1.0): 1178, (50, 0.1): 10288}
LP_SPARSEMAP_PROJECTIVE = {(10, 1.0): 9.38, (10, 0.1): 44.7, (25, 1.0): 149, (25, 0.1): 4131}
UFAL = 2.14
SPARSEMAP_SIZES = {10: 32, 25: 64, 50: 16}  # words → sentences


def random_scores(batch: int, words: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(words)
    return scale * torch.randn(batch, words + 1, words + 1, generator=generator)


def size_of(batch: int, words: int, single_root: bool) -> str:
    return f"{batch} × {words} words, {'single' if single_root else 'multi'}-root"


@case("trees.argmax")
def argmax() -> Iterator[Figure]:
    """Non-projective MAP against ufal's C++."""
    for single_root in (False, True):
        for batch, words in ALL_SIZES:
            scores = random_scores(batch, words)
            trees, peers = pb.DependencyTree(single_root=single_root), Peers(scores, single_root=single_root)
            ours = trees.argmax(scores)
            if peers.ufal:
                theirs = peers.ufal.to_ours(peers.ufal.argmax())
                agree(tree_score(scores, ours), tree_score(scores, theirs), "best tree", 1e-5)
            times = take_turns({OURS: lambda: trees.argmax(scores), Ufal.name: peers.ufal and peers.ufal.argmax})
            yield faster_than(times, Ufal.name, at_least=6.0, size=size_of(batch, words, single_root))


@case("trees.projective_argmax")
def projective_argmax() -> Iterator[Figure]:
    """Projective MAP against the better of torch-struct and supar."""
    for single_root in (False, True):
        for batch, words in PROJECTIVE_SIZES:
            scores = random_scores(batch, words)
            trees = pb.DependencyTree(projective=True, single_root=single_root)
            peers = Peers(scores, projective=True, single_root=single_root)
            contenders = {OURS: lambda: trees.argmax(scores)}
            ours = trees.argmax(scores)
            for name, peer in ((TorchStruct.name, peers.torch_struct), (Supar.name, peers.supar)):
                contenders[name] = peer and peer.argmax
                if peer:
                    theirs = peer.to_ours(peer.argmax().detach())
                    agree(tree_score(scores, ours), tree_score(scores, theirs), "best tree", 1e-5)
            best = (TorchStruct.name, Supar.name)
            yield faster_than(take_turns(contenders), best, at_least=40.0, size=size_of(batch, words, single_root))


def _differentiated(operation: str, batch: int, words: int, *, projective: bool, single_root: bool) -> Times:
    """Forward and backward of `log_partition` or `marginals`, ours and the torch peers', once they agree."""
    scores = random_scores(batch, words).requires_grad_()
    trees = pb.DependencyTree(projective=projective, single_root=single_root)
    peers = Peers(scores.detach(), projective=projective, single_root=single_root)

    def ours() -> Tensor:
        return getattr(trees, operation)(scores)

    is_matrix = operation == "marginals"
    cotangent = random_scores(batch, words) if is_matrix else None
    contenders = {OURS: lambda: with_gradient(ours, scores, cotangent)}
    expected, gradient = ours().detach(), with_gradient(ours, scores, cotangent)
    for family, peer in ((TorchStruct, peers.torch_struct), (Supar, peers.supar)):
        contenders[family.name] = None
        if peer:
            theirs, weights = getattr(peer, operation), family.from_ours(cotangent) if is_matrix else None
            found, slope = theirs().detach(), with_gradient(theirs, peer.scores, weights)
            agree(expected, family.to_ours(found) if is_matrix else found, operation, 2e-3)
            agree(gradient, family.to_ours(slope), f"gradient of {operation}", 2e-3)
            contenders[family.name] = lambda call=theirs, at=peer.scores, w=weights: with_gradient(call, at, w)
    return take_turns(contenders)


@case("trees.log_partition")
def log_partition() -> Iterator[Figure]:
    """Non-projective log-partition, forward and backward, against torch-struct."""
    for single_root in (False, True):
        for batch, words in ALL_SIZES:
            times = _differentiated("log_partition", batch, words, projective=False, single_root=single_root)
            target, size = (1.7 if words == 100 else 2.0), size_of(batch, words, single_root)
            yield faster_than(times, TorchStruct.name, at_least=target, size=size)


@case("trees.marginals")
def marginals() -> Iterator[Figure]:
    """Non-projective marginals, forward and backward, against torch-struct."""
    for single_root in (False, True):
        for batch, words in ALL_SIZES:
            times = _differentiated("marginals", batch, words, projective=False, single_root=single_root)
            yield faster_than(times, TorchStruct.name, at_least=1.5, size=size_of(batch, words, single_root))


@case("trees.projective_log_partition")
def projective_log_partition() -> Iterator[Figure]:
    """Projective log-partition, forward and backward, against the better of torch-struct and supar."""
    yield from _projective("log_partition", 12.0)


@case("trees.projective_marginals")
def projective_marginals() -> Iterator[Figure]:
    """Projective marginals, forward and backward, against the better of torch-struct and supar."""
    yield from _projective("marginals", 8.0)


def _projective(operation: str, target: float) -> Iterator[Figure]:
    for single_root in (False, True):
        for batch, words in PROJECTIVE_SIZES:
            times = _differentiated(operation, batch, words, projective=True, single_root=single_root)
            size = size_of(batch, words, single_root)
            yield faster_than(times, (TorchStruct.name, Supar.name), at_least=target, size=size)


@case("trees.accuracy")
def accuracy() -> Iterator[Figure]:
    """Relative error of the non-projective log-partition against arithmetic with 6000 digits, 8 words."""
    import mpmath

    for scale in (1.0, 10.0, 100.0, 1000.0):
        scores = random_scores(1, 8, scale).double()
        errors = []
        for single_root in (False, True):
            exact = _exact_log_partition(mpmath, scores[0], single_root)
            ours = float(pb.DependencyTree(single_root=single_root).log_partition(scores)[0])
            errors.append(float(abs((ours - exact) / exact)))
        yield Figure(f"8 words, scale {scale:g}", max(errors), "relative error", at_most=1e-12)


def _exact_log_partition(mpmath, scores: Tensor, single_root: bool):
    """The matrix-tree theorem as it is written: the determinant of the Laplacian without the root."""
    n = len(scores) - 1
    with mpmath.workdps(6000):
        weight = [[mpmath.exp(mpmath.mpf(float(s))) for s in row] for row in scores]
        laplacian = mpmath.matrix(n, n)
        for m in range(n):
            for h in range(n):
                if h != m:
                    laplacian[h, m] = -weight[h + 1][m + 1]
                    laplacian[m, m] += weight[h + 1][m + 1]
            if not single_root:
                laplacian[m, m] += weight[0][m + 1]
        if single_root:  # Koo et al. (2007): the first row holds the root's arcs instead
            for m in range(n):
                laplacian[0, m] = weight[0][m + 1]
        return mpmath.log(mpmath.det(laplacian))


def _sparsemap_against_lp(words: int, scale: float, projective: bool, at_least: float | None) -> Figure:
    batch = SPARSEMAP_SIZES[words]
    scores = random_scores(batch, words, scale)
    trees = pb.DependencyTree(projective=projective, single_root=projective)  # what lp-sparsemap's factors mean
    gap = _gap(trees, scores)
    peers = Peers(scores, projective=projective, single_root=projective)
    reference = Peers(random_scores(64, 25)).ufal
    contenders = {OURS: lambda: trees.sparsemap(scores), Ufal.name: reference and reference.argmax}
    note = f"gap {gap:.0e}"
    if peers.lp_sparsemap:
        theirs = peers.lp_sparsemap.to_ours(peers.lp_sparsemap.sparsemap())
        if words < 50:  # it has not converged at 50 words
            agree(trees.sparsemap(scores), theirs, "sparsemap", 1e-2)
        times = take_turns({**contenders, LpSparseMAP.name: peers.lp_sparsemap.sparsemap})
    else:
        stored = (LP_SPARSEMAP_PROJECTIVE if projective else LP_SPARSEMAP)[words, scale]
        times = take_turns(contenders)
        times = times.with_stored(LpSparseMAP.name, stored * 1e-3, by=Ufal.name, then=UFAL * 1e-3)
        note += f"; {LpSparseMAP.name}: stored figure, scaled by {Ufal.name}"
    size = f"{size_of(batch, words, projective)}, scale {scale:g}"
    return faster_than(times, LpSparseMAP.name, at_least=at_least, size=size, note=note)


def _gap(trees: pb.Structure, scores: Tensor) -> float:
    """The largest Frank–Wolfe gap ⟨s − μ, argmax(s − μ) − μ⟩ of the batch: what a comparison has to hold fixed."""
    scores = scores.double()
    point = trees.sparsemap(scores)
    slope = scores - point
    gap = float((slope * (trees.argmax(slope) - point)).sum((-2, -1)).max())
    if gap > 1e-6 * max(1.0, float(scores.abs().max())):
        raise Disagreement(f"sparsemap: Frank–Wolfe gap {gap:.1e}")
    return gap


@case("trees.sparsemap")
def sparsemap() -> Iterator[Figure]:
    """Non-projective SparseMAP at a gap below 1e-6 against lp-sparsemap with 1000 iterations."""
    targets = {(10, 1.0): 15, (10, 0.1): 100, (25, 1.0): 50, (25, 0.1): 1000, (50, 1.0): 300, (50, 0.1): 3000}
    for (words, scale), target in targets.items():
        yield _sparsemap_against_lp(words, scale, projective=False, at_least=target)


@case("trees.projective_sparsemap")
def projective_sparsemap() -> Iterator[Figure]:
    """Projective SparseMAP at a gap below 1e-6 against lp-sparsemap with 1000 iterations."""
    targets = {(10, 1.0): None, (10, 0.1): None, (25, 1.0): 5, (25, 0.1): 8}
    for (words, scale), target in targets.items():
        yield _sparsemap_against_lp(words, scale, projective=True, at_least=target)


@case("trees.sparsemap_backward")
def sparsemap_backward() -> Iterator[Figure]:
    """The backward pass of SparseMAP as a share of its forward pass."""
    for projective, (batch, words), scale in itertools.product((False, True), ((32, 10), (64, 25)), (1.0, 0.1)):
        scores = random_scores(batch, words, scale).requires_grad_()
        trees, cotangent = pb.DependencyTree(projective=projective, single_root=projective), random_scores(batch, words)
        point = trees.sparsemap(scores)
        times = take_turns(
            {
                OURS: lambda: trees.sparsemap(scores),
                "backward": lambda: torch.autograd.grad(point, scores, cotangent, retain_graph=True),
            }
        )
        medians = {OURS: times.median(OURS), "backward": times.median("backward")}
        size = f"{'projective' if projective else 'non-projective'}, {batch} × {words} words, scale {scale:g}"
        share = times.ratio("backward", OURS)
        yield Figure(size, share, "of the forward", "backward", at_most=0.3, times=medians)


@case("trees.peaked")
def peaked() -> Iterator[Figure]:
    """Non-projective SparseMAP of scores with scale 10 against the vertex active set, and at 400 words."""
    trees = pb.DependencyTree()
    for batch, words in ((64, 10), (64, 25), (32, 50), (16, 100)):
        scores = random_scores(batch, words, 10.0)
        yield faster_than(
            _against_active_set(trees, scores), "active set", at_least=0.9, size=size_of(batch, words, False)
        )
    yield _milliseconds(trees, 400, 10.0, at_most=20e-3)


def _against_active_set(trees: pb.DependencyTree, scores: Tensor, **options: Any) -> Times:
    """SparseMAP against the vertex active set alone, which is what `support` uses."""
    lengths = torch.full(scores.shape[:1], scores.shape[-1] - 1) if trees.lengths is None else trees.lengths
    start = torch.empty(len(scores), 0, scores.shape[-1], dtype=torch.int32)
    limits = (1e-12, 10_000, 8 * scores.shape[-1])
    operators = tree_operators.projective_trees if trees.projective else tree_operators.trees

    def active_set() -> Tensor:
        return operators.mixture(scores, lengths, trees.single_root, start, *limits)[0]

    agree(trees.sparsemap(scores), active_set(), "sparsemap", 1e-3)
    return take_turns({OURS: lambda: trees.sparsemap(scores), "active set": active_set}, **options)


def _milliseconds(trees: pb.Structure, words: int, scale: float, at_most: float) -> Figure:
    scores = random_scores(4, words, scale)
    times = take_turns({OURS: lambda: trees.sparsemap(scores)})
    size = f"4 × {words} words, scale {scale:g}"
    return Figure(size, times.median(OURS) / 4, "s/sentence", at_most=at_most, times={OURS: times.median(OURS)})


@case("trees.flat")
def flat() -> Iterator[Figure]:
    """SparseMAP where scores are nearly equal, as at initialization, and where cuts meet a ring of rivals.

    Projective trees against the vertex active set, which is too slow to be measured twice above 40 words.
    """
    trees = pb.DependencyTree(projective=True)
    for words, scale, target in ((25, 0.0, 0.9), (25, 0.01, 0.9), (40, 0.0, 1.5), (40, 0.01, 1.5), (40, 0.1, 0.9)):
        scores = random_scores(1, words, scale)
        times = _against_active_set(trees, scores, rounds=(2, 5))
        yield faster_than(times, "active set", at_least=target, size=f"projective, {words} words, scale {scale:g}")
    for words, scale in itertools.product((60, 100), (0.0, 0.01)):
        scores = random_scores(1, words, scale).requires_grad_()
        point = trees.sparsemap(scores)
        cotangent = random_scores(1, words)
        times = take_turns(
            {
                OURS: lambda: trees.sparsemap(scores),
                "backward": lambda: torch.autograd.grad(point, scores, cotangent, retain_graph=True),
            },
            rounds=(1, 3),
        )
        size = f"projective, {words} words, scale {scale:g}"
        yield absolute(times, size=size, unit="s/sentence")
        medians = {OURS: times.median(OURS), "backward": times.median("backward")}
        yield Figure(size, times.ratio("backward", OURS), "of the forward", "backward", at_most=0.3, times=medians)
    for words in (100, 400):
        ring = torch.eye(words + 1)
        noise = 0.01 * random_scores(1, words)[0]
        scores = 5 * (ring.roll(1, 1) + ring.roll(-1, 1)) + noise
        times = take_turns({OURS: lambda: pb.DependencyTree().sparsemap(scores)}, rounds=(1, 3))
        yield absolute(times, size=f"non-projective, every word between two rivals, {words} words", unit="s/sentence")
    yield from _tied_by_position()


def _tied_by_position() -> Iterator[Figure]:
    """Scores of the distance alone, as a position bias gives them, and of the head alone, against N(0, 1)."""
    for words in (25, 100, 400):
        distance, noise = _distance(words), random_scores(1, words)[0]
        for name, scores in (
            ("−distance", -distance),
            ("−distance / 10", -0.1 * distance),
            ("−log(1 + distance)", -distance.log1p()),
            ("heads alike / 100", 0.01 * noise[:, :1].expand_as(noise)),
        ):
            yield _against_noise(name, scores, noise, single_root=False)


@case("trees.patterned")
def patterned() -> Iterator[Figure]:
    """Non-projective SparseMAP of 400 words whose scores have a pattern that is hard for cuts, from flat to peaked.

    Against the same scores at scale 1, and for information against N(0, 1), which needs few cuts at any scale.
    """
    words = 400
    distance, noise = _distance(words), random_scores(1, words)[0]
    ring = torch.eye(words + 1)
    patterns = {
        "−distance": -distance,
        "−log(1 + distance)": -distance.log1p(),
        "−distance + N(0, 0.1)": -distance + 0.1 * noise,
        "−distance + N(0, 1)": -distance + noise,
        "N(0, 1) near, −10 far": torch.where(distance <= 3, noise, -10.0),
        "ring of rivals": 5 * (ring.roll(1, 1) + ring.roll(-1, 1)) + 0.01 * noise,
        "heads alike": noise[:, :1].expand_as(noise),
        "nested blocks": sum(_blocks(words, 2**k) for k in range(1, 10)),
    }
    for single_root, (name, scores) in itertools.product((False, True), patterns.items()):
        yield from _over_scales(name, scores, noise, single_root=single_root)


def _over_scales(name: str, scores: Tensor, noise: Tensor, *, single_root: bool) -> Iterator[Figure]:
    """The slowest scale against scale 1 and against N(0, 1)."""
    trees = pb.DependencyTree(single_root=single_root)
    others = (0.01, 0.1, 10.0, 100.0, 1000.0)
    for scale in others:
        _gap(trees, scale * scores[None])
    given = {f"scale {scale:g}": scale * scores for scale in (1.0, *others)} | {"N(0, 1)": noise}
    times = take_turns({which: partial(trees.sparsemap, one) for which, one in given.items()}, rounds=(2, 3))
    slowest = max((f"scale {scale:g}" for scale in others), key=times.median)
    medians = {which: times.median(which) for which in (slowest, "scale 1", "N(0, 1)")}
    size = f"non-projective, {name}, {len(scores) - 1} words{', single-root' if single_root else ''}, {slowest}"
    yield Figure(size, times.ratio(slowest, "scale 1"), "of the time of scale 1", at_most=20.0, times=medians)
    yield Figure(size, times.ratio(slowest, "N(0, 1)"), "of the time of N(0, 1)", times=medians)


def _distance(words: int) -> Tensor:
    place = torch.arange(words + 1.0)
    return (place[:, None] - place).abs()


def _blocks(words: int, size: int) -> Tensor:
    """One where head and modifier are in the same block of `size` neighbors."""
    block = torch.arange(words + 1) // size
    return (block[:, None] == block).float()


def _against_noise(name: str, scores: Tensor, noise: Tensor, *, single_root: bool) -> Figure:
    trees = pb.DependencyTree(single_root=single_root)
    _gap(trees, scores[None])
    times = take_turns(
        {OURS: lambda: trees.sparsemap(scores), "N(0, 1)": lambda: trees.sparsemap(noise)},
        rounds=(2, 5),
    )
    medians = {OURS: times.median(OURS), "N(0, 1)": times.median("N(0, 1)")}
    size = f"non-projective, {name}, {len(scores) - 1} words{', single-root' if single_root else ''}"
    return Figure(size, times.ratio(OURS, "N(0, 1)"), "of the time of N(0, 1)", at_most=20.0, times=medians)


@case("trees.tolerance")
def tolerance() -> Iterator[Figure]:
    """Projective SparseMAP that may stop at a gap, forward and backward, against the exact one; flat scores."""
    exact = pb.DependencyTree(projective=True)
    for words, gap, target in ((30, 1e-3, None), (40, 1e-2, 3.0), (40, 1e-3, 1.5)):
        scores, cotangent = random_scores(1, words, 0.01).requires_grad_(), random_scores(1, words)
        trees = pb.DependencyTree(projective=True, tolerance=gap)
        agree(trees.sparsemap(scores), exact.sparsemap(scores), "sparsemap", math.sqrt(gap))
        times = take_turns(
            {
                OURS: lambda: with_gradient(lambda: trees.sparsemap(scores), scores, cotangent),
                "exact": lambda: with_gradient(lambda: exact.sparsemap(scores), scores, cotangent),
            },
            rounds=(2, 5),
        )
        yield faster_than(times, "exact", at_least=target, size=f"{words} words, scale 0.01, tolerance {gap:g}")


@case("trees.parser")
def parser() -> Iterator[Figure]:
    """SparseMAP of a trained parser's scores, by length: by cuts against the vertex active set, and projective."""
    folder = data_folder()
    if folder is None:
        yield Figure("", None, "", note="needs a treebank: --data FOLDER")
        return
    model, sentences = trained_parser(folder), read_treebank(folder, "dev")
    yield Figure("the parser, on sentences it has not seen", attachment(model, sentences), "of heads right")
    for shortest, longest in ((5, 9), (10, 19), (20, 29), (30, 49), (50, 99)):
        batch = model.batch([s for s in sentences if shortest <= len(s.heads) <= longest][:32])
        with torch.no_grad():
            scores = model(batch)
        for projective in (False, True):
            trees = pb.DependencyTree(batch.lengths, projective=projective, single_root=True)
            kind = "projective" if projective else "non-projective"
            yield _learned(trees, scores, f"{kind}, {len(scores)} × {shortest}–{longest} words")


def _learned(trees: pb.DependencyTree, scores: Tensor, size: str) -> Figure:
    """Time per sentence, with how many trees mix; non-projective ones also against the active set."""
    note = f"gap {_gap(trees, scores):.0e}; {trees.solve(scores).mixture.size.double().mean():.1f} trees mix"
    if trees.projective:
        times = take_turns({OURS: lambda: trees.sparsemap(scores)})
        return absolute(times, size=size, per=len(scores), unit="s/sentence", note=note)
    times = _against_active_set(trees, scores)
    _, sets, _, size_by_trees = tree_sparsemap.project(scores, trees.lengths, trees.single_root)
    by_cuts = size_by_trees == 0
    note = f"{1e6 * times.median(OURS) / len(scores):.0f} µs/sentence; {note}; {by_cuts.double().mean():.0%} by cuts"
    if by_cuts.any():
        note += f", {(sets[by_cuts] != 0).any(-1).sum(-1).double().mean():.1f} of them active"
    return faster_than(times, "active set", size=size, note=note)


@case("trees.threads")
def threads() -> Iterator[Figure]:
    """Two threads against one on 64 sentences of 25 words; promised where one thread needs over 2 ms."""
    scores = random_scores(64, 25)
    operations: dict[str, Callable[[], object]] = {}
    for kind, projective in (("non-projective", False), ("projective", True)):
        trees = pb.DependencyTree(projective=projective)
        operations[f"{kind} sparsemap"] = lambda trees=trees: trees.sparsemap(scores)
        operations[f"{kind} marginals"] = lambda trees=trees: trees.marginals(scores)
    for name, call in operations.items():
        times = take_turns({OURS: with_threads(2, call), "one thread": with_threads(1, call)})
        promised = 1.5 if times.median("one thread") > 2e-3 else None
        yield faster_than(times, "one thread", at_least=promised, size=name)


@case("trees.growth")
def growth() -> Iterator[Figure]:
    """How argmax and SparseMAP grow with the sentence, from 10 to 400 words; the curves go to results/growth.png."""
    trees = pb.DependencyTree()
    lengths = (10, 25, 50, 100, 200, 400)
    curves: dict[str, list[float]] = {"argmax": [], "sparsemap, scale 1": [], "sparsemap, scale 0.1": []}
    for words in lengths:
        batch = max(4, 800 // words)
        scores, flat = random_scores(batch, words), random_scores(batch, words, 0.1)
        times = take_turns(
            {
                "argmax": lambda: trees.argmax(scores),
                "sparsemap, scale 1": lambda: trees.sparsemap(scores),
                "sparsemap, scale 0.1": lambda: trees.sparsemap(flat),
            }
        )
        for name, curve in curves.items():
            curve.append(times.median(name) / batch)
    exponent = math.log(curves["argmax"][-1] / curves["argmax"][2]) / math.log(400 / 50)
    yield Figure("argmax, 50 to 400 words", exponent, "exponent", at_most=2.2)
    for name in ("sparsemap, scale 1", "sparsemap, scale 0.1"):
        yield Figure(f"{name}, 400 words", curves[name][-1], "s/sentence", at_most=5e-3)
    plot("growth", "Non-projective dependency trees, one thread", "words", lengths, curves)

"""Mixtures of trees at the length of sentences, and the two ways to them: certificates in place of enumeration."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators import labelled_trees, tree_sparsemap
from pullback.operators import trees as tree_operators

KINDS = pytest.mark.parametrize(
    ("projective", "single_root"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["any roots", "one root", "projective, any roots", "projective, one root"],
)
LENGTHS = torch.tensor([20, 0, 13, 1])


def sentences(projective, single_root, *, scale, dtype=torch.float64):
    """Trees over sentences of different lengths in which some arcs are forbidden by a mask, some by a score of −∞."""
    generator = torch.Generator().manual_seed(0)
    scores = scale * torch.randn(4, 21, 21, generator=generator, dtype=torch.float64).to(dtype)
    mask, score = torch.rand(2, 4, 21, 21, generator=generator) < 0.8
    chain = torch.ones(21, 21).diagonal(1).diag_embed(1).bool()  # some tree there must be
    trees = pb.DependencyTree(LENGTHS, mask | chain, projective=projective, single_root=single_root)
    return trees, scores.masked_fill(~(score | chain), -torch.inf)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [10.0, 1.0, 0.1], ids=lambda scale: f"scale {scale:g}")
def test_the_support_is_a_small_independent_mixture_with_a_certificate(projective, single_root, dtype, scale):
    trees, scores = sentences(projective, single_root, scale=scale, dtype=dtype)
    vertices, probabilities, count = trees.support(scores)
    assert vertices.dtype == probabilities.dtype == dtype
    used = torch.arange(vertices.shape[1]) < count[:, None]
    assert ((probabilities > 0) == used).all() and (vertices[~used] == 0).all()
    assert trees.contains(vertices.movedim(1, 0)).movedim(0, 1)[used].all()
    rounding = 20 * torch.finfo(dtype).eps
    assert_close(probabilities.sum(-1), torch.ones(4, dtype=dtype), atol=rounding, rtol=0)
    point = torch.einsum("bm,bmij->bij", probabilities.double(), vertices.double())
    assert_close(point, trees.sparsemap(scores).double(), atol=max(rounding, 1e-8 * scale), rtol=0)
    rest = scores.double() - point
    gap = trees.inner(rest, trees.argmax(rest)) - trees.inner(rest, point)
    assert (gap <= 1e-6 * scores[scores.isfinite()].abs().max().clamp_min(1)).all()
    for matrices, number in zip(vertices.double().flatten(2), count):
        assert torch.linalg.matrix_rank(matrices[1:number] - matrices[0]) == number - 1


@KINDS
def test_the_probabilities_of_a_long_sentence_have_the_slope_of_the_point(projective, single_root):
    """⟨g, Σ p z⟩ has the gradient of ⟨g, sparsemap⟩ where the trees in use span the face."""
    trees, scores = sentences(projective, single_root, scale=1.0)
    scores.requires_grad_()
    vertices, probabilities, _ = trees.support(scores)
    weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (through_trees,) = torch.autograd.grad((probabilities * (vertices * weight[:, None]).sum((-2, -1))).sum(), scores)
    (direct,) = torch.autograd.grad((trees.sparsemap(scores) * weight).sum(), scores)
    assert_close(through_trees, direct, atol=1e-9, rtol=0)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_warm_start_saves_rounds_and_leads_to_the_same_point(projective, single_root, dtype):
    trees, scores = sentences(projective, single_root, scale=0.1, dtype=dtype)
    cold = trees.solve(scores)
    nearby = scores + 1e-4 * torch.randn(scores.shape, generator=torch.Generator().manual_seed(2)).to(dtype)
    warm, fresh = trees.solve(nearby, start=cold.mixture.vertices), trees.solve(nearby)
    assert warm.converged.all() and warm.iterations.sum() < 0.5 * fresh.iterations.sum()
    assert_close(warm.mixture.mean(), trees.sparsemap(nearby), atol=1e-8 if dtype == torch.float64 else 1e-6, rtol=0)


def test_a_start_may_hold_anything():
    """Trees that are forbidden or repeated, other trees' heads, padding: whatever is not a tree is ignored."""
    trees, scores = sentences(True, False, scale=0.1)
    found = trees.solve(scores)
    start = torch.cat(
        [found.mixture.vertices, found.mixture.vertices, pb.DependencyTree(LENGTHS).argmax(-scores.abs()).unsqueeze(1)],
        1,
    )
    start[2] = torch.randint(2, start[2].shape, generator=torch.Generator().manual_seed(3))
    assert_close(trees.solve(scores, start).mixture.probabilities.sum(-1), torch.ones(4).double())
    assert (trees.solve(scores, start).iterations[[0, 1, 3]] == 1).all()
    with pytest.raises(ValueError, match=r"start has shape \(4, 21, 21\); expected \(4, k, 21, 21\)"):
        trees.solve(scores, start=scores)


WORDS = torch.tensor([12, 12, 12, 7, 12, 0])
SCALES = torch.tensor([10.0, 0.5, 4.0, 10.0, 1.0, 1.0], dtype=torch.float64)


def mixed_batch(dtype=torch.float64):
    """Peaked and flat scores by turns."""
    generator = torch.Generator().manual_seed(0)
    return (SCALES[:, None, None] * torch.randn(6, 13, 13, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("single_root", [False, True])
def test_peaked_examples_go_by_trees_and_flat_ones_by_cuts_to_the_same_points(single_root, monkeypatch):
    trees, scores = pb.DependencyTree(WORDS, single_root=single_root), mixed_batch().requires_grad_()
    weights = torch.randn(6, 13, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def both():
        point, _, _, count = tree_sparsemap.project(scores, WORDS, single_root)
        (gradient,) = torch.autograd.grad((point * weights).sum(), scores)
        return count, point, gradient

    count, *expected = both()
    assert count[0] > 0 and count[3] > 0 and count[1] == count[4] == 0
    assert_close(trees.sparsemap(scores), expected[0])
    for most in (0, 1):
        monkeypatch.setattr(tree_sparsemap, "_FEW_TREES", most)
        count, *found = both()
        assert (count <= most).all()  # all by cuts, or all whose trees were more than expected
        for given, wanted in zip(found, expected):
            assert_close(given, wanted, atol=1e-9, rtol=0)
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_way_of_an_example_does_not_depend_on_its_batch(dtype):
    scores = mixed_batch(dtype)
    together = pb.DependencyTree(WORDS).sparsemap(scores)
    for b in range(6):
        alone = pb.DependencyTree(WORDS[b]).sparsemap(scores[b])
        assert torch.equal(together[b], alone)


def test_the_derivative_is_right_whichever_way_was_taken():
    scores = mixed_batch()[:, :6, :6].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(pb.DependencyTree().sparsemap, scores)
    assert torch.autograd.gradgradcheck(pb.DependencyTree().sparsemap, scores)


@pytest.mark.parametrize("penalty", [1e6, 1e9])
@pytest.mark.parametrize("projective", [False, True])
def test_a_large_price_that_all_trees_pay_does_not_blur_the_face(projective, penalty):
    """Taking it from all root arcs makes a single root dear and nothing else."""
    scores = (1024 * torch.randn(16, 9, 9, generator=torch.Generator().manual_seed(0))).round().double() / 512
    priced = scores.clone()
    priced[:, 0] -= penalty
    weight = torch.randn(16, 9, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    answers = []
    for single_root, given in ((False, priced), (True, scores)):
        given = given.clone().requires_grad_()
        point = pb.DependencyTree(projective=projective, single_root=single_root).sparsemap(given)
        answers.append((point, *torch.autograd.grad((point * weight).sum(), given)))
    for found, expected in zip(*answers):
        assert_close(found, expected, atol=1e-5, rtol=0)


def certified_gap(trees, scores, point):
    slope = trees.forbid(scores) - point
    better = trees.argmax(slope) - point
    return torch.where(better == 0, 0, slope * better).flatten(1).sum(-1).max()


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("shifts", [(1, -1), (3, -3), (1, -1, 2, -2), (1,)], ids=str)
@pytest.mark.parametrize("magnitude", [1.0, 5.0, 100.0])
def test_rings_of_rivals_which_make_nearly_every_set_tight_are_projected_exactly(single_root, shifts, magnitude):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3, 41, 41, generator=generator, dtype=torch.float64)
    ring = magnitude * sum(torch.eye(41, dtype=torch.float64).roll(shift, 1) for shift in shifts)
    scores = ring + torch.tensor([0.0, 0.01, 0.1], dtype=torch.float64)[:, None, None] * noise
    trees = pb.DependencyTree(single_root=single_root)
    point = trees.sparsemap(scores)
    assert certified_gap(trees, scores, point) < 1e-12 * magnitude * 40
    start = torch.empty(3, 0, 41, dtype=torch.int32)
    mixed = tree_operators.trees.mixture(scores, None, single_root, start, 1e-13, 10_000, 400)[0]
    assert_close(point, mixed, atol=1e-6, rtol=0)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("scale", [0.0, 0.1, 0.5, 2.0, 10.0])
@pytest.mark.parametrize(("words", "labels"), [(2, 5), (4, 3), (9, 2)])
def test_cuts_of_labelled_trees_reach_the_point_of_their_active_set(single_root, scale, words, labels):
    generator = torch.Generator().manual_seed(words)
    scores = scale * torch.randn(16, words + 1, words + 1, labels, generator=generator, dtype=torch.float64)
    scores[::4, 1:, :, 0] = -torch.inf
    lengths = torch.arange(16) % words + 1
    trees = pb.DependencyTree(lengths, single_root=single_root, labelled=True)
    point = trees.sparsemap(scores)
    assert certified_gap(trees, scores, point) < 1e-12 * max(1.0, scale)
    start = torch.empty(16, 0, words + 1, dtype=torch.int32)
    mixed = labelled_trees.trees.mixture(scores, lengths, single_root, start, 1e-13, 10_000, 400)[0]
    assert_close(point, mixed, atol=1e-8, rtol=0)


@pytest.mark.parametrize("single_root", [False, True])
def test_labelled_trees_are_differentiated_on_their_face(single_root):
    generator = torch.Generator().manual_seed(3)
    scores = 0.3 * torch.randn(4, 5, 5, 3, generator=generator, dtype=torch.float64)
    trees = pb.DependencyTree(single_root=single_root, labelled=True)
    assert torch.autograd.gradcheck(trees.sparsemap, scores.requires_grad_(), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("single_root", [False, True])
@pytest.mark.parametrize("scale", [1e9, 1e12, 1e14, 1e16, 1e25])
def test_sparsemap_of_tied_scores_that_are_far_apart_is_a_mixture_or_an_error(scale, single_root):
    scores = torch.randn(3, 10, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64).round() * scale
    for one in scores:
        try:
            point = pb.DependencyTree(single_root=single_root).sparsemap(one)
        except pb.ConvergenceError:
            assert scale > 1e9
        else:
            assert_close(point[:, 1:].sum(0), point.new_ones(9), atol=1e-6, rtol=0)

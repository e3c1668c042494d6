"""Labels of arcs: against every labelled tree where there are few, by certificates and other ways where not."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from reference import labels as reference

KINDS = pytest.mark.parametrize(
    ("projective", "single_root"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["any roots", "one root", "projective, any roots", "projective, one root"],
)
LENGTHS = torch.tensor([12, 0, 7, 1])


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@KINDS
def test_labelled_trees_are_the_trees_times_the_labels(projective, single_root):
    trees = pb.DependencyTree(projective=projective, single_root=single_root, labelled=True)
    listed = trees.enumerate((4, 4, 2)).vertices
    expected = reference.labelled_trees(3, 2, projective, single_root)
    assert {tuple(map(tuple, pair)) for pair in zip(*(x.tolist() for x in trees.heads_and_labels(listed)))} == set(
        expected
    )
    assert len(listed) == len(expected)


@KINDS
@pytest.mark.parametrize("k", [1, 7, 60, 3000])
def test_the_k_best_labelled_trees_are_those_of_the_list(projective, single_root, k):
    trees = pb.DependencyTree(projective=projective, single_root=single_root, labelled=True)
    for seed, rounded in enumerate([False, True]):
        scores = random(4, 4, 3, seed=seed)
        scores = scores.round() if rounded else scores
        scores[1, 2, 0] = scores[0, 1, 1] = -torch.inf
        best = trees.topk(scores, k)
        expected = reference.k_best(scores.numpy(), k, projective, single_root)
        assert best.size == len(expected)
        assert_close(best.scores[: best.size], torch.tensor(expected, dtype=torch.float64))
        assert len(best.vertices[: best.size].unique(dim=0)) == best.size


@KINDS
def test_one_label_makes_no_difference(projective, single_root):
    options = {"lengths": LENGTHS, "projective": projective, "single_root": single_root}
    plain, labelled = pb.DependencyTree(**options), pb.DependencyTree(labelled=True, **options)
    scores, weight = random(4, 13, 13), random(4, 13, 13, seed=1)
    assert_close(labelled.argmax(scores[..., None])[..., 0], plain.argmax(scores))
    assert_close(labelled.topk(scores[..., None], 5).scores, plain.topk(scores, 5).scores)
    for name in ("sparsemap", "marginals", "entropy", "log_partition"):
        leaf, answers = scores.clone().requires_grad_(), []
        for structure, given in ((plain, leaf), (labelled, leaf[..., None])):
            answer = getattr(structure, name)(given)
            answer = answer[..., 0] if answer.dim() == 4 else answer
            (slope,) = torch.autograd.grad((answer * (weight if answer.dim() == 3 else 1)).sum(), leaf)
            answers.append((answer.detach(), slope))
        for found, expected in zip(*answers):
            assert_close(found, expected, atol=1e-8, rtol=1e-8, msg=lambda text, name=name: f"{name}: {text}")


@KINDS
def test_a_label_that_is_forbidden_everywhere_is_as_good_as_none(projective, single_root):
    trees = pb.DependencyTree(LENGTHS, projective=projective, single_root=single_root, labelled=True)
    scores = random(4, 13, 13, 3)
    more = torch.cat([scores, torch.full((4, 13, 13, 1), -torch.inf)], -1)
    assert_close(trees.log_partition(more), trees.log_partition(scores))
    for name in ("argmax", "marginals", "sparsemap"):
        assert_close(getattr(trees, name)(more)[..., :3], getattr(trees, name)(scores), atol=1e-9, rtol=0)
    drawn = trees.sample(more, (20,), generator=torch.Generator().manual_seed(0))
    assert (drawn[..., 3] == 0).all() and trees.contains(drawn).all()


@KINDS
@pytest.mark.parametrize("scale", [1.0, 1e4], ids=lambda scale: f"scale {scale:g}")
@pytest.mark.parametrize("t", [1, 3, 40])
def test_sums_and_their_derivatives_are_those_of_an_arc_that_is_worth_its_labels_together(
    projective, single_root, scale, t
):
    """Padding and what is no arc hold NaN; some labels are forbidden, and all of some arcs."""
    options = {"lengths": LENGTHS, "projective": projective, "single_root": single_root}
    plain, labelled = pb.DependencyTree(**options), pb.DependencyTree(labelled=True, **options)
    scores, weight = random(4, 13, 13, t, scale=scale), random(4, 13, 13, t, seed=1)
    scores[random(4, 13, 13, t, seed=2) > 1.0] = -torch.inf
    scores[0, 3:7, 5:] = -torch.inf
    scores[:, 0] = random(4, 13, t, seed=3, scale=scale)  # so that there is a tree
    scores[0, range(1, 12), range(2, 13)] = random(11, t, seed=4, scale=scale)
    scores[2, range(1, 7), range(2, 8)] = random(6, t, seed=5, scale=scale)
    exists = plain.allowed(scores.shape[:-1])
    given = scores.masked_fill(~exists[..., None], torch.nan).requires_grad_()
    leaf = scores.masked_fill(~exists[..., None], 0.0).requires_grad_()
    value, expected = labelled.log_partition(given), plain.log_partition(leaf.logsumexp(-1))
    assert_close(value, expected, atol=0, rtol=1e-13)
    marginals = labelled.marginals(given)
    (wanted,) = torch.autograd.grad(expected.sum(), leaf, create_graph=True)
    assert_close(marginals, wanted.nan_to_num(0.0), atol=1e-12 * max(1, scale / 10), rtol=0)
    (slope,) = torch.autograd.grad((marginals * weight).sum(), given)
    (wanted_slope,) = torch.autograd.grad((wanted * weight).nansum(), leaf)
    assert_close(slope, wanted_slope.nan_to_num(0.0), atol=1e-10 * max(1, scale / 10), rtol=0)
    assert (marginals[~exists] == 0).all() and (slope[~exists] == 0).all()
    assert (marginals[scores == -torch.inf] == 0).all()


@KINDS
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 30.0, 1e4], ids=lambda scale: f"scale {scale:g}")
def test_labelled_sparsemap_has_a_certificate_at_the_length_of_sentences(projective, single_root, scale):
    trees = pb.DependencyTree(LENGTHS, projective=projective, single_root=single_root, labelled=True)
    scores = random(4, 13, 13, 4, scale=scale)
    scores[0, :3, 5:, 1] = -torch.inf
    point = trees.sparsemap(scores)
    used = torch.arange(13) <= LENGTHS[:, None]
    assert_close(point.sum((1, 3)), (used & (torch.arange(13) > 0)).double(), atol=1e-9, rtol=0)
    rest = (scores - point).masked_fill(scores == -torch.inf, -torch.inf)
    gap = trees.inner(rest, trees.argmax(rest)) - trees.inner(rest, point)
    assert (gap <= 1e-9 * max(1.0, scale)).all()
    assert_close(trees.support(scores).mean(), point, atol=1e-7, rtol=0)


@KINDS
def test_given_its_mass_the_labels_of_an_arc_are_the_nearest(projective, single_root):
    """The projection onto {x ≥ 0, Σx = m} of the scores of the arc's labels, a sparsemax after scaling."""
    trees, scores = pb.DependencyTree(projective=projective, single_root=single_root, labelled=True), random(6, 6, 5)
    point = trees.sparsemap(scores)
    mass = point.sum(-1)
    heads, modifiers = torch.nonzero(mass > 1e-6, as_tuple=True)
    m = mass[heads, modifiers, None]
    expected = m * pb.Categorical().sparsemap(scores[heads, modifiers] / m)
    assert_close(point[heads, modifiers], expected, atol=1e-8, rtol=0)


def test_samples_draw_each_label_given_its_arc_in_proportion():
    trees, scores, many = pb.DependencyTree(labelled=True), random(3, 3, 3), 20_000
    drawn = trees.sample(scores, (many,), generator=torch.Generator().manual_seed(0))
    every = trees.enumerate(scores.shape).vertices.double()
    frequency = (drawn.flatten(1) @ every.flatten(1).T == 2).double().mean(0)
    expected = trees.log_prob(scores, every).exp()
    assert_close(frequency.sum(), torch.ones((), dtype=torch.float64))
    assert ((frequency - expected).abs() < 5 * (expected * (1 - expected) / many).sqrt()).all()


def test_heads_and_labels_go_both_ways():
    heads, labels = torch.tensor([[2, 0, 2], [0, -1, -1]]), torch.tensor([[1, 0, 3], [2, -1, -1]])
    arcs = pb.DependencyTree.arcs(heads, labels, t=4)
    np.testing.assert_array_equal(arcs[0], reference.arcs(3, 4, (2, 0, 2), (1, 0, 3)))
    found = pb.DependencyTree.heads_and_labels(arcs)
    assert torch.equal(found[0], heads) and torch.equal(found[1], labels)
    assert pb.DependencyTree(torch.tensor([3, 1]), labelled=True).contains(arcs).all()
    with pytest.raises(TypeError, match="labels were given without t"):
        pb.DependencyTree.arcs(heads, labels)


def test_an_arc_with_two_labels_or_half_of_each_is_not_a_vertex():
    trees = pb.DependencyTree(labelled=True)
    arcs = pb.DependencyTree.arcs(torch.tensor([0, 1]), torch.tensor([1, 0]), t=2)
    twice, halves = arcs.clone(), arcs.clone()
    twice[0, 1] = 1
    halves[0, 1] = 0.5
    assert trees.contains(torch.stack([arcs, twice, halves])).tolist() == [True, False, False]


def test_scores_without_labels_are_refused_in_words():
    with pytest.raises(ValueError, match=r"parts of shape \(4, 4, 3\)|expected \(\.\.\., n \+ 1, n \+ 1, t\)"):
        pb.DependencyTree(labelled=True).argmax(torch.zeros(2, 5, 4, 3))
    with pytest.raises(ValueError, match="no tree"):
        pb.DependencyTree(labelled=True).argmax(torch.full((3, 3, 2), -torch.inf))
    for bad in (torch.nan, torch.inf):
        scores = torch.zeros(2, 3, 3, 2)
        scores[1, 0, 1, 1] = bad
        for name in ("argmax", "sparsemap", "marginals", "log_partition", "sample"):
            with pytest.raises(ValueError, match=r"scores of example \[1\] contain NaN or \+inf"):
                getattr(pb.DependencyTree(labelled=True), name)(scores)

"""Segmentations whose labels have transitions, against the list of all of them."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators import segmentation


def example(forbidden=True):
    generator = torch.Generator().manual_seed(0)
    transitions = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    if forbidden:
        transitions[0, 1] = -torch.inf
    scores = torch.randn(2, 4, 3, 3, generator=generator, dtype=torch.float64)
    return scores.requires_grad_(), transitions.requires_grad_()


def listed_scores(scores, transitions):
    """The score of every segmentation, from its segments: (vertices, batch)."""
    vertices = pb.Segmentation().enumerate(scores.shape).vertices.double()
    totals = vertices.flatten(1) @ scores.flatten(1).T
    steps = []
    for vertex in vertices:
        labels = [label for _, _, label in pb.Segmentation.segments(vertex)]
        steps.append(sum((transitions[a, b] for a, b in itertools.pairwise(labels)), torch.zeros(()).double()))
    return vertices, totals + torch.stack(steps)[:, None]


def test_a_segmentation_in_integers_has_the_score_of_the_same_in_floats():
    scores, transitions = example()
    segmentations, every = pb.Segmentation(transitions=transitions), pb.Segmentation().enumerate(scores.shape).vertices
    possible = segmentations.contains(every.double())
    assert 0 < possible.sum() < len(every)
    for dtype in (torch.int64, torch.bool):
        assert_close(segmentations.own_score(every.to(dtype)), segmentations.own_score(every.double()))
        assert torch.equal(segmentations.contains(every.to(dtype)), possible)


@pytest.mark.parametrize("forbidden", [False, True])
def test_sums_and_their_gradients_are_those_of_the_list(forbidden):
    scores, transitions = example(forbidden)
    _, every = listed_scores(scores, transitions)
    segmentations = pb.Segmentation(transitions=transitions)
    value = segmentations.log_partition(scores)
    assert_close(value, every.logsumexp(0))
    for ours, theirs in zip(
        *(torch.autograd.grad(v.sum(), [scores, transitions]) for v in (value, every.logsumexp(0)))
    ):
        assert_close(ours, theirs)


def test_the_best_are_those_of_the_list():
    scores, transitions = example()
    vertices, every = listed_scores(scores, transitions)
    segmentations = pb.Segmentation(transitions=transitions)
    assert_close(segmentations.argmax(scores), vertices[every.argmax(0)])
    best = segmentations.topk(scores, 5)
    assert_close(best.scores, every.topk(5, 0).values.mT)


def test_zero_transitions_change_nothing():
    scores, transitions = example(False)
    with_zeros, plain = pb.Segmentation(transitions=0 * transitions.detach()), pb.Segmentation()
    for name in ("argmax", "marginals", "sparsemap", "entropy", "log_partition", "project"):
        assert_close(getattr(with_zeros, name)(scores), getattr(plain, name)(scores), atol=1e-8, rtol=0)


def test_sparsemap_and_marginals_are_differentiable_in_scores_and_transitions():
    scores, transitions = example(False)
    for name in ("marginals", "sparsemap", "entropy"):

        def call(s, t, name=name):
            return getattr(pb.Segmentation(transitions=t), name)(s)

        assert torch.autograd.gradcheck(call, (0.3 * scores.detach().requires_grad_(), transitions), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.1, 1.0, 30.0])
def test_the_interior_and_the_vertices_agree_and_so_do_all_gradients(scale):
    scores, transitions = (scale * given.detach() for given in example())
    lengths = np.array([4, 3])
    inputs = scores.clone().requires_grad_(), transitions.clone().requires_grad_()
    wanted = pb.Segmentation(torch.from_numpy(lengths), transitions=inputs[1]).sparsemap(inputs[0])
    gradient = torch.randn(scores.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = torch.autograd.grad((wanted * gradient).sum(), inputs)
    inside = segmentation.SegmentationInterior(least=2, parts=np.inf)
    tables = transitions.expand(2, 3, 3).numpy()
    point, rest = np.empty(scores.shape), np.empty(scores.shape)
    assert inside.project(scores.numpy(), lengths, [tables], point, rest).all()
    assert_close(torch.from_numpy(point), wanted.detach(), atol=1e-9 * max(1.0, scale), rtol=0)
    product, uses = inside.differentiate(rest, lengths, [tables], gradient.numpy())
    assert_close(torch.from_numpy(product), expected[0], atol=1e-6, rtol=0)
    assert_close(torch.from_numpy(uses.sum(0)), expected[1], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("error")
def test_transitions_that_are_nearly_equal_go_by_the_interior_after_a_while():
    n, w, t = 25, 4, 5  # as after Adam's first step, where each is the learning rate up or down
    generator = torch.Generator().manual_seed(1)
    signs = torch.sign(torch.randn(t, t, generator=generator, dtype=torch.float64))
    transitions = 0.003 * signs * (1 - 1e-6 * torch.rand(t, t, generator=generator) ** 3)
    scores = 0.1 * torch.randn(2, n, w, t, generator=generator, dtype=torch.float64)
    structure = pb.Segmentation(transitions=transitions)
    size = segmentation.joined.sparsemap(*structure._inputs(scores), 1e-12)[2]
    assert (size == 0).all()
    point = structure.sparsemap(scores)
    rest = scores - point
    best = structure.argmax(rest)
    ahead = structure.own_score(best) - structure.own_score(point)
    assert (structure.inner(rest, best) - structure.inner(rest, point) + ahead <= 1e-9).all()


def test_errors_name_what_was_given():
    with pytest.raises(TypeError, match="Segmentation: transitions is a list"):
        pb.Segmentation(transitions=[[0.0]])
    with pytest.raises(ValueError, match=r"expected \(\.\.\., t, t\)"):
        pb.Segmentation(transitions=torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"expected \(\.\.\., n, w, 2\)"):
        pb.Segmentation(transitions=torch.zeros(2, 2)).argmax(torch.zeros(4, 2, 3))
    wrong = pb.Segmentation(transitions=torch.stack([torch.zeros(2, 2), torch.tensor([[0.0, torch.nan], [0.0, 0.0]])]))
    vertices = pb.Segmentation.vertex([[(0, 1, 0), (1, 2, 1)], [(0, 3, 1)]], 3, 3, 2)
    for name in ("own_score", "contains", "argmax"):
        with pytest.raises(
            ValueError, match=r"^Segmentation: the transitions of example \[1\] contain NaN or \+inf; expe"
        ):
            getattr(wrong, name)(vertices)

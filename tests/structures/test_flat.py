"""Flat scores, of which thousands of vertices would mix: they go by the chart, to the point that the vertices mix."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators._flat import ByChart

LENGTHS, LABELLED_LENGTHS = torch.tensor([44, 44, 12, 0, 41]), torch.tensor([16, 16, 1, 0, 16])
SCALES = torch.tensor([0.01, 10.0, 0.01, 1.0, 0.001], dtype=torch.float64)
IS_FLAT = torch.tensor([True, False, False, False, True])
NAMES = ["projective", "projective, one root", "constituency"]
KINDS = pytest.mark.parametrize(
    "kind", NAMES + [f"{name}, labelled" for name in NAMES], ids=lambda kind: kind.replace(",", "")
)
LABELS = 6
LIMITS = 1e-9, 1e-7  # of points and of gradients: where hundreds of vertices mix, their equations lose some digits


def structure_of(kind, lengths=None, mask=None):
    labelled = "labelled" in kind
    if "constituency" in kind:
        return pb.ConstituencyTree(lengths, mask, labelled=labelled)
    return pb.DependencyTree(lengths, mask, projective=True, single_root="one root" in kind, labelled=labelled)


def lengths_of(kind):
    return LABELLED_LENGTHS if "labelled" in kind else LENGTHS


def random_scores(kind, dtype=torch.float64):
    size = int(lengths_of(kind).max()) + ("constituency" not in kind)
    shape = (size, size, LABELS) if "labelled" in kind else (size, size)
    scores = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (SCALES.reshape(-1, *(1 for _ in shape)) * scores).to(dtype)


def by_vertices(monkeypatch):
    monkeypatch.setattr(ByChart, "are_flat", lambda self, scores, lengths, *_: np.zeros(len(lengths), bool))


def with_gradient(structure, scores):
    scores = scores.clone().requires_grad_()
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(
        scores.dtype
    )
    point = structure.sparsemap(scores)
    return point.detach(), *torch.autograd.grad((point * weights).sum(), scores)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_flat_examples_go_by_the_chart_and_have_a_certificate(kind, dtype):
    structure, scores = structure_of(kind, lengths_of(kind)), random_scores(kind, dtype)
    operator = structure._operators.sparsemap
    size = operator(*structure._inputs(scores), 1e-12)[2]
    assert torch.equal((size == 0) & (lengths_of(kind) > 0), IS_FLAT)
    point = structure.sparsemap(scores)
    assert point.dtype == dtype
    rest = scores.double() - point.double()
    gap = structure.inner(rest, structure.argmax(rest)) - structure.inner(rest, point.double())
    assert (gap <= (1e-9 if dtype == torch.float64 else 1e-5)).all()


def test_shorter_examples_go_by_the_chart_only_if_their_scores_are_equal():
    trees, scores = structure_of("projective"), random_scores("projective")[:1, :39, :39]
    both = torch.cat([scores, torch.full_like(scores, 0.3)])
    size = trees._operators.sparsemap(*trees._inputs(both), 1e-12)[2]
    assert size[0] > 0 and size[1] == 0


@KINDS
@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-6], ids=lambda scale: f"scale {scale:g}")
def test_equal_and_tiny_scores_are_as_certain_as_others(kind, scale):
    structure, scores = structure_of(kind), scale * random_scores(kind)[:1].sign()
    point, gradient = with_gradient(structure, scores)
    rest = scores - point
    assert structure.inner(rest, structure.argmax(rest)) - structure.inner(rest, point) <= 1e-9
    assert 0.1 < gradient.norm() / scores.numel() ** 0.5 < 1.0  # a projection, and onto more than a line


@KINDS
def test_the_chart_and_the_vertices_agree_and_so_do_their_derivatives(kind, monkeypatch):
    structure, scores = structure_of(kind, lengths_of(kind)), random_scores(kind)
    found = with_gradient(structure, scores)
    by_vertices(monkeypatch)
    for given, wanted, limit in zip(found, with_gradient(structure, scores), LIMITS):
        assert_close(given, wanted, atol=limit, rtol=0)


@KINDS
def test_the_derivative_of_a_flat_example_is_a_projection(kind):
    structure, scores = structure_of(kind, lengths_of(kind)), random_scores(kind).requires_grad_()
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    point = structure.sparsemap(scores)
    (once,) = torch.autograd.grad(point, scores, weights, retain_graph=True)
    (twice,) = torch.autograd.grad(point, scores, once)
    assert_close(twice[IS_FLAT], once[IS_FLAT], atol=1e-9, rtol=0)


@KINDS
def test_where_no_face_is_found_the_vertices_are_listed_after_all(kind, monkeypatch):
    structure, scores = structure_of(kind, lengths_of(kind)), random_scores(kind)
    found = with_gradient(structure, scores)
    monkeypatch.setattr(ByChart, "project", lambda self, scores, *_: np.zeros(len(scores), bool))
    for given, wanted, limit in zip(with_gradient(structure, scores), found, LIMITS):
        assert_close(given, wanted, atol=limit, rtol=0)


@KINDS
@pytest.mark.parametrize("threads", [1, 2])
def test_the_way_of_a_flat_example_does_not_depend_on_its_batch(kind, threads):
    scores, before = random_scores(kind), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = structure_of(kind, lengths_of(kind)).sparsemap(scores)
        for b in range(5):
            assert torch.equal(together[b], structure_of(kind, lengths_of(kind)[b]).sparsemap(scores[b]))
    finally:
        torch.set_num_threads(before)


@KINDS
def test_what_a_mask_forbids_is_zero_also_in_flat_points(kind, monkeypatch):
    scores = random_scores(kind)
    allowed = 0.95 if "labelled" in kind else 0.8
    mask = torch.rand(scores.shape, generator=torch.Generator().manual_seed(2)) < allowed
    mask[:, 0] = True  # the root may govern every word; the first word may begin every span
    words = torch.eye(scores.shape[1], dtype=torch.bool)
    mask |= words[..., None] if "labelled" in kind else words
    structure = structure_of(kind, lengths_of(kind), mask)
    point, gradient = with_gradient(structure, scores)
    assert not point[~mask].any() and not gradient[~mask].any()
    by_vertices(monkeypatch)
    for given, wanted, limit in zip((point, gradient), with_gradient(structure, scores), LIMITS):
        assert_close(given, wanted, atol=limit, rtol=0)


@KINDS
def test_the_derivative_of_a_flat_example_is_that_of_central_differences(kind):
    structure, scores = structure_of(kind), random_scores(kind)[:1]
    direction = torch.randn(scores.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    point = structure.sparsemap(scores.requires_grad_())
    (product,) = torch.autograd.grad(point, scores, direction)
    with torch.no_grad():
        ahead, back = (structure.sparsemap(scores + step * direction) for step in (1e-7, -1e-7))
    assert_close((ahead - back) / 2e-7, product, atol=1e-2, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_one_label_is_like_none(name):
    scores = random_scores(name)[:1]
    plain = with_gradient(structure_of(name), scores)
    labelled = with_gradient(structure_of(f"{name}, labelled"), scores.unsqueeze(-1))
    for given, wanted, limit in zip(labelled, plain, LIMITS):
        assert_close(given.squeeze(-1), wanted, atol=limit, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_labels_that_tie_share_alike(name):
    """Scores that are equal for all labels of an arc or a span give these the same, and so does a gradient."""
    kind = f"{name}, labelled"
    scores = random_scores(kind)[:1, ..., :1].expand(-1, -1, -1, LABELS).contiguous().requires_grad_()
    point = structure_of(kind).sparsemap(scores)
    weights = torch.randn(point.shape[:-1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(point, scores, weights.unsqueeze(-1).expand(point.shape))
    for found in (point.detach(), gradient):
        assert_close(found, found[..., :1].expand(found.shape), atol=1e-9, rtol=0)

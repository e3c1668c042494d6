"""Flat scores, of which thousands of vertices would mix: they go by the chart, to the point that the vertices mix."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators._flat import ByChart, Flat

LENGTHS = torch.tensor([44, 44, 12, 0, 41])
SCALES = torch.tensor([0.01, 10.0, 0.01, 1.0, 0.001], dtype=torch.float64)
IS_FLAT = torch.tensor([True, False, False, False, True])
KINDS = pytest.mark.parametrize(
    "kind", ["projective", "projective, one root", "constituency"], ids=lambda kind: kind.replace(",", "")
)
LIMITS = 1e-9, 1e-7  # of points and of gradients: where hundreds of vertices mix, their equations lose some digits


def structure_of(kind, lengths=None, mask=None):
    if kind == "constituency":
        return pb.ConstituencyTree(lengths, mask)
    return pb.DependencyTree(lengths, mask, projective=True, single_root="one root" in kind)


def random_scores(kind, dtype=torch.float64):
    size = 44 if kind == "constituency" else 45
    scores = torch.randn(5, size, size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (SCALES[:, None, None] * scores).to(dtype)


def by_vertices(monkeypatch):
    monkeypatch.setattr(Flat, "are_flat", lambda self, scores, lengths, point: np.zeros(len(lengths), bool))


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
    structure, scores = structure_of(kind, LENGTHS), random_scores(kind, dtype)
    operator = structure._operators.sparsemap
    size = operator(*structure._inputs(scores), 1e-12)[2]
    assert torch.equal((size == 0) & (LENGTHS > 0), IS_FLAT)
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
    structure, scores = structure_of(kind, LENGTHS), random_scores(kind)
    found = with_gradient(structure, scores)
    by_vertices(monkeypatch)
    for given, wanted, limit in zip(found, with_gradient(structure, scores), LIMITS):
        assert_close(given, wanted, atol=limit, rtol=0)


@KINDS
def test_the_derivative_of_a_flat_example_is_a_projection(kind):
    structure, scores = structure_of(kind, LENGTHS), random_scores(kind).requires_grad_()
    weights = torch.randn(scores.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    point = structure.sparsemap(scores)
    (once,) = torch.autograd.grad(point, scores, weights, retain_graph=True)
    (twice,) = torch.autograd.grad(point, scores, once)
    assert_close(twice[IS_FLAT], once[IS_FLAT], atol=1e-9, rtol=0)


@KINDS
def test_where_no_face_is_found_the_vertices_are_listed_after_all(kind, monkeypatch):
    structure, scores = structure_of(kind, LENGTHS), random_scores(kind)
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
        together = structure_of(kind, LENGTHS).sparsemap(scores)
        for b in range(5):
            assert torch.equal(together[b], structure_of(kind, LENGTHS[b]).sparsemap(scores[b]))
    finally:
        torch.set_num_threads(before)


@KINDS
def test_what_a_mask_forbids_is_zero_also_in_flat_points(kind, monkeypatch):
    scores = random_scores(kind)
    mask = torch.rand(scores.shape, generator=torch.Generator().manual_seed(2)) < 0.8
    mask[:, 0] = True  # the root may govern every word; the first word may begin every span
    mask |= torch.eye(scores.shape[-1], dtype=torch.bool)
    structure = structure_of(kind, LENGTHS, mask)
    point, gradient = with_gradient(structure, scores)
    assert not point[~mask].any() and not gradient[~mask].any()
    by_vertices(monkeypatch)
    for given, wanted, limit in zip((point, gradient), with_gradient(structure, scores), LIMITS):
        assert_close(given, wanted, atol=limit, rtol=0)

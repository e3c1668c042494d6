"""Flat scores of alignments, of which hundreds of vertices would mix: they go by the interior, to the same point."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators import alignment
from pullback.operators._flat import Flat

LENGTHS = torch.tensor([[18, 24], [18, 24], [4, 5], [0, 0], [16, 22]])
SCALES = torch.tensor([0.01, 10.0, 0.01, 1.0, 0.001], dtype=torch.float64)
IS_FLAT = torch.tensor([True, False, False, False, True])
KINDS = pytest.mark.parametrize("kind", ["dtw", "monotonic", "local"])
LIMITS = 1e-9, 1e-7  # of points and of gradients
FULL_SIZE = {"dtw": (40, 40), "monotonic": (30, 60), "local": (25, 25, 3)}


def normal(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_scores(kind, dtype=torch.float64):
    scores = normal((5, 18, 36, 3) if kind == "local" else (5, 18, 36))
    return (SCALES.reshape(5, *(1,) * (scores.dim() - 1)) * scores).to(dtype)


def lengths_of(kind):
    return LENGTHS + torch.tensor([0, 12]) * (LENGTHS > 5) * (kind == "monotonic")


def structure_of(kind, mask=None):
    return pb.Alignment(kind=kind, lengths=lengths_of(kind), mask=mask)


def with_gradient(structure, scores):
    scores = scores.clone().requires_grad_()
    point = structure.sparsemap(scores)
    weights = normal(scores.shape, seed=1).to(scores.dtype)
    return point.detach(), *torch.autograd.grad((point * weights).sum(), scores)


def gap_of(structure, scores, point):
    rest = scores.double() - point.double()
    return structure.inner(rest, structure.argmax(rest)) - structure.inner(rest, point.double())


def assert_same(found, wanted):
    for given, expected, limit in zip(found, wanted, LIMITS):
        assert_close(given, expected, atol=limit, rtol=0)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_flat_examples_go_by_the_interior_and_have_a_certificate(kind, dtype):
    structure, scores = structure_of(kind), random_scores(kind, dtype)
    size = structure._operators.sparsemap(*structure._inputs(scores), 1e-12)[2]
    assert torch.equal((size == 0) & (LENGTHS[:, 0] > 0), IS_FLAT)
    point = structure.sparsemap(scores)
    assert point.dtype == dtype
    assert (gap_of(structure, scores, point) <= (1e-9 if dtype == torch.float64 else 1e-5)).all()


def test_a_monotonic_alignment_with_few_columns_beyond_its_rows_is_flat_as_well():
    """A row has 7 columns to choose from, so that few parts can be in use, however long the alignment is."""
    structure, scores = pb.Alignment(kind="monotonic"), 0.01 * normal((2, 30, 36))
    assert (structure._operators.sparsemap(*structure._inputs(scores), 1e-12)[2] == 0).all()
    assert (gap_of(structure, scores, structure.sparsemap(scores)) <= 1e-9).all()


@KINDS
def test_the_interior_and_the_vertices_agree_and_so_do_their_derivatives(kind, monkeypatch):
    structure, scores = structure_of(kind), random_scores(kind)
    found = with_gradient(structure, scores)
    monkeypatch.setattr(Flat, "are_flat", lambda self, scores, lengths, *_: np.zeros(len(lengths), bool))
    assert_same(found, with_gradient(structure, scores))


@KINDS
def test_what_a_mask_forbids_is_zero_also_in_flat_points(kind, monkeypatch):
    scores = random_scores(kind)
    mask = torch.rand(scores.shape, generator=torch.Generator().manual_seed(2)) < 0.9
    mask |= pb.Alignment(kind=kind, lengths=lengths_of(kind)).argmax(scores) > 0  # so that one is left
    structure = structure_of(kind, mask)
    found = with_gradient(structure, scores)
    assert not found[0][~mask].any() and not found[1][~mask].any()
    monkeypatch.setattr(Flat, "are_flat", lambda self, scores, lengths, *_: np.zeros(len(lengths), bool))
    assert_same(found, with_gradient(structure, scores))


@KINDS
def test_the_derivative_of_a_flat_example_is_a_projection(kind):
    structure, scores = structure_of(kind), random_scores(kind).requires_grad_()
    point = structure.sparsemap(scores)
    (once,) = torch.autograd.grad(point, scores, normal(scores.shape, seed=1), retain_graph=True)
    (twice,) = torch.autograd.grad(point, scores, once)
    assert_close(twice[IS_FLAT], once[IS_FLAT], atol=1e-9, rtol=0)


@KINDS
def test_where_the_interior_fails_the_vertices_are_listed_after_all(kind, monkeypatch):
    structure, scores = structure_of(kind), random_scores(kind)
    found = with_gradient(structure, scores)
    monkeypatch.setattr(alignment.AlignmentInterior, "project", lambda self, scores, *_: np.zeros(len(scores), bool))
    assert_same(with_gradient(structure, scores), found)


@KINDS
def test_the_way_of_a_flat_example_does_not_depend_on_its_batch(kind):
    scores = random_scores(kind)
    together = structure_of(kind).sparsemap(scores)
    for b in range(5):
        assert torch.equal(together[b], pb.Alignment(kind=kind, lengths=lengths_of(kind)[b]).sparsemap(scores[b]))


@KINDS
@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.1], ids=lambda scale: f"scale {scale:g}")
def test_full_size_has_a_certificate_from_equal_scores_on(kind, scale):
    structure, scores = pb.Alignment(kind=kind), scale * normal((1, *FULL_SIZE[kind]))
    size = structure._operators.sparsemap(*structure._inputs(scores), 1e-12)[2]
    assert size == 0
    point, gradient = with_gradient(structure, scores)
    assert gap_of(structure, scores, point) <= 1e-9
    assert 0.1 < gradient.norm() / scores.numel() ** 0.5 < 1.0  # a projection, and onto more than a line


def test_an_offset_of_every_column_does_not_move_a_monotonic_alignment():
    structure, scores = pb.Alignment(kind="monotonic"), 1e-3 * normal((1, 18, 36))
    moved = scores + 100 * normal((1, 1, 36), seed=3)
    assert_close(structure.sparsemap(moved), structure.sparsemap(scores), atol=1e-9, rtol=0)

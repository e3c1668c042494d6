"""Flat scores of tags, of which hundreds of sequences would mix: they go by the interior, to the same point."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import tagging_of
from pullback.operators import tagging

N, T = 14, 6
LENGTHS = torch.tensor([14, 14, 3, 0, 1, 12])
SCALES = torch.tensor([0.01, 10.0, 0.01, 1.0, 1.0, 0.001], dtype=torch.float64)
IS_FLAT = torch.tensor([True, False, False, False, False, True])


def normal(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_inputs(dtype=torch.float64, forbidden=0.0):
    """Scores, transitions, start and end of each example."""
    inputs = [normal((6, *shape), seed) for seed, shape in enumerate([(N, T), (T, T), (T,), (T,)])]
    inputs = [(SCALES.reshape(6, *(1,) * (given.dim() - 1)) * given).to(dtype) for given in inputs]
    chance = torch.rand((6, T, T), generator=torch.Generator().manual_seed(2))
    inputs[1][(chance < forbidden) & ~torch.eye(T, dtype=torch.bool)] = -torch.inf
    return inputs


def structure_of(inputs, lengths=LENGTHS, **options):
    return tagging_of(*inputs[1:], lengths=lengths, **options)


def with_gradients(inputs, **options):
    inputs = [given.clone().requires_grad_() for given in inputs]
    point = structure_of(inputs, **options).sparsemap(inputs[0])
    weights = normal(point.shape, seed=9).to(point.dtype)
    return point.detach(), *torch.autograd.grad((point * weights).sum(), inputs)


def vertices_only(monkeypatch):
    monkeypatch.setattr(
        tagging.TaggingInterior, "are_flat", lambda self, scores, lengths, *_: np.zeros(len(lengths), bool)
    )
    monkeypatch.setattr(tagging.TaggingInterior, "patience", lambda self, lengths, event: None)


def gap_of(structure, scores, point):
    scores, point = scores.double(), point.double()
    rest = scores - point
    best = structure.argmax(rest)
    ahead = structure.own_score(best) - structure.own_score(point)
    return structure.inner(rest, best) - structure.inner(rest, point) + ahead


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_flat_examples_go_by_the_interior_and_have_a_certificate(dtype):
    inputs = random_inputs(dtype)
    structure = structure_of(inputs)
    size = tagging.sequences.sparsemap(*structure._inputs(inputs[0]), 1e-12)[2]
    assert torch.equal((size == 0) & (LENGTHS > 0), IS_FLAT)
    point = structure.sparsemap(inputs[0])
    assert point.dtype == dtype
    exact = structure_of([given.double() for given in inputs])
    assert (gap_of(exact, inputs[0], point) <= (1e-9 if dtype == torch.float64 else 1e-5)).all()
    assert not point[torch.arange(N) >= LENGTHS[:, None]].any()


@pytest.mark.parametrize("forbidden", [0.0, 0.2], ids=["any transition", "some transitions"])
def test_the_interior_and_the_vertices_agree_and_so_do_all_gradients(forbidden, monkeypatch):
    inputs = random_inputs(forbidden=forbidden)
    found = with_gradients(inputs)
    vertices_only(monkeypatch)
    wanted = with_gradients(inputs)
    assert_close(found[0], wanted[0], atol=1e-9, rtol=0)
    for given, expected in zip(found[1:], wanted[1:]):
        assert_close(given, expected, atol=1e-6, rtol=0)


def test_what_a_mask_forbids_is_zero_also_in_flat_points(monkeypatch):
    inputs = random_inputs()
    mask = torch.rand((6, N, T), generator=torch.Generator().manual_seed(4)) < 0.9
    mask[..., 0] = True  # so that one is left
    found = with_gradients(inputs, mask=mask)
    assert not found[0][~mask].any() and not found[1][~mask].any()
    vertices_only(monkeypatch)
    wanted = with_gradients(inputs, mask=mask)
    assert_close(found[0], wanted[0], atol=1e-9, rtol=0)
    assert_close(found[1], wanted[1], atol=1e-6, rtol=0)


def test_gradients_in_all_tables_are_those_of_finite_differences():
    inputs = [given[0] for given in random_inputs()]
    weights = normal((N, T), seed=9)
    moving = [given.clone().requires_grad_() for given in inputs]
    value = (tagging_of(*moving[1:]).sparsemap(moving[0]) * weights).sum()
    gradients = torch.autograd.grad(value, moving)
    step = 1e-7
    for k in range(4):
        direction = normal(inputs[k].shape, seed=20 + k)
        ends = []
        for sign in (step, -step):
            moved = [given + sign * direction if i == k else given for i, given in enumerate(inputs)]
            ends.append((tagging_of(*moved[1:]).sparsemap(moved[0]) * weights).sum())
        assert_close((ends[0] - ends[1]) / (2 * step), (gradients[k] * direction).sum(), atol=1e-5, rtol=1e-5)


def test_without_transitions_every_position_is_projected_by_itself():
    scores = 0.1 * normal((2, 40, 5)).requires_grad_()
    found = pb.Tagging(torch.zeros(5, 5, dtype=torch.float64)).sparsemap(scores)
    wanted = pb.Categorical().sparsemap(scores)
    assert_close(found, wanted, atol=1e-9, rtol=0)
    weights = normal(scores.shape, seed=1)
    ours, theirs = (torch.autograd.grad((point * weights).sum(), scores)[0] for point in (found, wanted))
    assert_close(ours, theirs, atol=1e-9, rtol=0)


def test_equal_scores_go_by_the_interior_though_few_vertices_mix():
    scores = torch.zeros(2, 30, 5, dtype=torch.float64)
    structure = pb.Tagging(torch.zeros(5, 5, dtype=torch.float64))
    point, _, size, _ = tagging.sequences.sparsemap(*structure._inputs(scores), 1e-12)
    assert_close(point, torch.full_like(point, 0.2))
    assert (size == 0).all()


def test_where_the_interior_fails_the_vertices_are_listed_after_all(monkeypatch):
    inputs = random_inputs()
    found = with_gradients(inputs)
    monkeypatch.setattr(tagging.TaggingInterior, "project", lambda self, scores, *_: np.zeros(len(scores), bool))
    assert_close(with_gradients(inputs)[0], found[0], atol=1e-9, rtol=0)


def test_the_way_of_a_flat_example_does_not_depend_on_its_batch():
    inputs = random_inputs()
    together = structure_of(inputs).sparsemap(inputs[0])
    for b in range(6):
        alone = [given[b] for given in inputs]
        assert torch.equal(together[b], structure_of(alone, LENGTHS[b]).sparsemap(alone[0]))


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 1000.0])
def test_full_size_sequences_of_any_scale_have_a_certificate(scale):
    inputs = [scale * normal(shape, seed) for seed, shape in enumerate([(2, 50, 20), (20, 20), (20,), (20,)])]
    structure = tagging_of(*inputs[1:])
    gap = gap_of(structure, inputs[0], structure.sparsemap(inputs[0]))
    assert (gap <= 1e-6 * max(1.0, float(inputs[0].abs().max()))).all()


@pytest.mark.filterwarnings("error")
def test_transitions_that_are_nearly_equal_go_by_the_interior_after_a_while():
    n, t = 31, 13  # as after Adam's first step, where each is the learning rate up or down
    signs, less = torch.sign(normal((t, t), 1)), torch.rand((t, t), generator=torch.Generator().manual_seed(2))
    transitions = 0.003 * signs * (1 - 1e-6 * less.double() ** 3)
    scores = (0.3 * normal((4, n, t))).requires_grad_()
    structure = pb.Tagging(transitions)
    size = tagging.sequences.sparsemap(*structure._inputs(scores), 1e-12)[2]
    assert (size == 0).all()
    point = structure.sparsemap(scores)
    assert (gap_of(structure, scores.detach(), point.detach()) <= 1e-9).all()
    weights = normal(point.shape, seed=9)
    (gradient,) = torch.autograd.grad((point * weights).sum(), scores)
    direction, step = normal(point.shape, seed=10), 1e-8
    ends = [structure.sparsemap(scores.detach() + sign * direction) for sign in (step, -step)]
    difference = ((ends[0] - ends[1]) / (2 * step) * weights).sum((-2, -1))
    assert_close((gradient * direction).sum((-2, -1)), difference, atol=1e-4, rtol=1e-4)


def test_a_tolerance_is_kept_where_scores_are_flat():
    inputs = random_inputs()
    structure = structure_of(inputs, tolerance=0.01)
    assert (gap_of(structure, inputs[0], structure.sparsemap(inputs[0])) <= 0.01 + 1e-9).all()


def nearly_tied(t, seed, scale, difference, dtype=torch.float64):
    """Transitions ± scale, with differences of so little among those of one sign."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.randn(t, t, generator=generator, dtype=dtype).sign()
    return scale * signs * (1 - difference * torch.rand(t, t, generator=generator, dtype=dtype) ** 3)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("n", "t"), [(25, 12), (25, 9), (50, 5), (10, 20)])
def test_equal_scores_with_transitions_that_nearly_tie_have_a_certificate_and_a_projector(n, t, seed):
    """Which transitions are in use cannot be told there; a point near the middle of all that may be is good enough."""
    structure, scores = pb.Tagging(nearly_tied(t, seed, 0.1, 1e-6)), torch.zeros(n, t, dtype=torch.float64)
    scores.requires_grad_()
    point = structure.sparsemap(scores)
    assert gap_of(structure, scores.detach(), point.detach()) < 1e-8
    assert_close(point.sum(-1), torch.ones(n, dtype=torch.float64), atol=1e-12, rtol=0)
    (once,) = torch.autograd.grad((point * normal((n, t))).sum(), scores, retain_graph=True)
    (twice,) = torch.autograd.grad((point * once).sum(), scores)
    assert_close(twice, once, atol=1e-9, rtol=0)


def test_transitions_on_a_grid_with_a_little_noise_have_a_certificate():
    generator = torch.Generator().manual_seed(576)
    steps = torch.randint(-2, 3, (12, 12), generator=generator).double()
    noise = torch.randn(12, 12, generator=generator, dtype=torch.float64)
    structure, scores = pb.Tagging(1e-4 * (steps + 1e-7 * noise)), torch.zeros(25, 12, dtype=torch.float64)
    assert gap_of(structure, scores, structure.sparsemap(scores)) < 1e-8


def test_a_derivative_that_searches_again_has_room_for_all_its_vertices(monkeypatch):
    """Its search does not go on from the vertices of the first one, and may end with more of them."""
    vertices_only(monkeypatch)
    for seed in (703, 703 + 48):
        structure = pb.Tagging(nearly_tied(20, seed, 1e-3, 1e-6), tolerance=1e-9)
        scores, weights = torch.zeros(4, 20, dtype=torch.float64, requires_grad=True), normal((4, 20), seed)
        (found,) = torch.autograd.grad((structure.sparsemap(scores) * weights).sum(), scores)
        mixed = structure.support(scores.detach())
        vertices = mixed.vertices[mixed.probabilities > 0].flatten(1)
        differences = vertices[1:] - vertices[:1]
        expected = torch.linalg.lstsq(differences.T, weights.flatten(), driver="gelsd").solution @ differences
        assert_close(found.flatten(), expected, atol=1e-7, rtol=0)

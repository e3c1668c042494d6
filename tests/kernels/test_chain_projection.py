"""Projection onto mixtures of tag sequences, against the list of all sequences and against the best sequence."""

import itertools

import numpy as np
import pytest

from pullback.kernels.chain.projection import project, project_as_flows, project_backward
from reference import flows as reference
from reference.active_set import project as project_on_hull

WAYS = [project, project_as_flows]
SIZES = [(25, 10), (50, 20), (100, 5), (2, 30), (40, 1)]


def parts(n, t):
    """The parts that exist as edges: tails, heads and (i, a, b), sorted by tail; one node is the end."""
    edges = [(0, 1 + b if n > 1 else 1, (0, 0, b)) for b in range(t)]
    for i, a, b in itertools.product(range(1, n), range(t), range(t)):
        edges.append((1 + (i - 1) * t + a, 1 + i * t + b if i < n - 1 else 1 + (n - 1) * t, (i, a, b)))
    tail, head, triples = zip(*edges)
    return list(tail), list(head), np.ravel_multi_index(np.array(triples).T, (n, t, t))


def sequences(n, t):
    """The indicators of all tag sequences, (sequences, n · t · t)."""
    every = []
    for tags in itertools.product(range(t), repeat=n):
        every.append(np.zeros((n, t, t)))
        every[-1][range(n), (0, *tags[:-1]), tags] = 1
    return np.array(every).reshape(len(every), -1)


def best_sequence(scores):
    """The indicator of a sequence of highest score."""
    n, t, _ = scores.shape
    tail, head, index = parts(n, t)
    best = np.zeros(scores.size)
    best[index] = reference.best_path(scores.ravel()[index], tail, head)
    return best.reshape(scores.shape)


def kinds(rng, n, t):
    """Scores of all characters, by name; all are feasible."""
    shape = (n, t, t)
    noise = rng.normal(size=shape)
    for scale in (1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4):
        yield f"normal {scale}", scale * noise
    for offset in (1e3, 1e6, -1e6):
        yield f"offset {offset}", offset + noise
    yield "integers", rng.integers(-2, 3, shape).astype(float)
    yield "quarters", rng.integers(-2, 3, shape) / 4
    yield "thousands", 1e3 * rng.integers(0, 3, shape)
    yield "near ties", rng.integers(0, 2, shape) + 1e-9 * noise
    yield "equal", np.full(shape, 0.3)
    yield "large and equal", np.full(shape, 1e4)
    yield "cauchy", rng.standard_cauchy(shape)
    for step in (0.1, 1.0):
        yield f"spigot {step}", best_sequence(noise) - step * rng.normal(size=shape)
    for share in (0.3, 0.7, 1.0):
        allowed = best_sequence(rng.normal(size=shape)) > 0
        for scale in (0.1, 10.0):
            yield f"masked {share} {scale}", np.where(allowed | (rng.random(shape) > share), scale * noise, -np.inf)


def project_all(scores, lengths=None, way=project):
    lengths = np.full(len(scores), scores.shape[1]) if lengths is None else np.asarray(lengths)
    point = np.full(scores.shape, np.nan, scores.dtype)
    assert way(scores, lengths, point, 0, len(scores)) == -1
    return point


def backward(point, gradient, lengths=None):
    lengths = np.full(len(point), point.shape[1]) if lengths is None else np.asarray(lengths)
    product = np.full(point.shape, np.nan, point.dtype)
    assert project_backward(lengths, point, gradient, product, 0, len(point)) == -1
    return product


def size(scores):
    return max(1.0, np.linalg.norm(scores[np.isfinite(scores)]))


@pytest.mark.parametrize("way", WAYS, ids=["hybrid", "newton"])
@pytest.mark.parametrize(("n", "t"), [(1, 1), (1, 4), (2, 3), (3, 2), (3, 3), (4, 2), (5, 2)])
def test_the_projection_is_the_nearest_mixture_of_sequences(n, t, way):
    every = sequences(n, t)
    for kind, scores in kinds(np.random.default_rng(n), n, t):
        if size(scores) < 1e3:  # beyond, the reference is not exact
            point = project_all(scores[None], way=way)[0]
            scores[0, 1:] = 0.0  # in no sequence, so any number will do
            assert np.abs(point.ravel() - project_on_hull(scores.ravel(), every)).max() < 1e-9, kind


@pytest.mark.parametrize("way", WAYS, ids=["hybrid", "newton"])
@pytest.mark.parametrize(("n", "t"), SIZES)
def test_the_projection_is_a_flow_that_no_sequence_improves(n, t, way):
    tail, head, index = parts(n, t)
    for kind, scores in kinds(np.random.default_rng(1), n, t):
        point = project_all(scores[None], way=way)[0]
        assert (point >= 0).all() and not point[np.isneginf(scores)].any() and not point[0, 1:].any(), kind
        flow = point.ravel()[index]
        assert np.abs(reference.imbalance(flow, tail, head)).max() < 1e-11, kind
        used = scores.ravel()[index]
        assert reference.gap(used, flow, tail, head) < 1e-10 * size(used), kind


@pytest.mark.parametrize("way", WAYS, ids=["hybrid", "newton"])
@pytest.mark.parametrize(("n", "t"), SIZES)
@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_what_all_parts_of_a_position_have_in_common_changes_nothing(n, t, offset, way):
    rng = np.random.default_rng(2)
    for scale in (0.1, 1.0, 10.0):
        scores = np.round(2**20 * scale * rng.normal(size=(2, n, t, t))) / 2**20
        moved = scores + np.round(offset * rng.normal(size=(2, n, 1, 1)))
        assert np.abs(project_all(moved, way=way) - project_all(scores, way=way)).max() < 1e-11


@pytest.mark.parametrize("way", WAYS, ids=["hybrid", "newton"])
@pytest.mark.parametrize(("n", "t", "scale"), [(100, 32, 1.0), (200, 10, 2.0), (200, 32, 0.3), (200, 32, 3.0)])
def test_long_chains_are_solved(n, t, scale, way):
    """On these, steps lead to points where no path of active edges connects the ends of the chain."""
    scores = scale * np.random.default_rng(3).normal(size=(40_000 // (n * t), n, t, t))
    tail, head, index = parts(n, t)
    for s, point in zip(scores, project_all(scores, way=way)):
        flow = point.ravel()[index]
        assert np.abs(reference.imbalance(flow, tail, head)).max() < 1e-11
        assert reference.gap(s.ravel()[index], flow, tail, head) < 1e-10 * size(s)


@pytest.mark.parametrize(("n", "t"), SIZES)
def test_equal_scores_give_equal_shares(n, t):
    point = project_all(np.full((1, n, t, t), -7.0))[0]
    assert np.abs(point[0, 0] - 1 / t).max() < 1e-12
    assert np.abs(point[1:] - 1 / t**2).max() < 1e-12


def test_a_sequence_is_its_own_projection():
    best = best_sequence(np.random.default_rng(3).normal(size=(25, 10, 10)))[None]
    assert np.abs(project_all(best) - best).max() < 1e-12


def test_one_feasible_sequence_is_the_answer():
    rng = np.random.default_rng(4)
    best = best_sequence(rng.normal(size=(25, 10, 10)))[None]
    point = project_all(np.where(best > 0, 100 * rng.normal(size=best.shape), -np.inf))
    assert np.abs(point - best).max() < 1e-12 and not point[best == 0].any()
    assert np.abs(backward(point, rng.normal(size=best.shape))).max() < 1e-13


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_only_the_parts_of_the_positions_are_read(scale):
    rng = np.random.default_rng(5)
    lengths = np.array([7, 4, 0, 1, 2])
    scores, gradient = scale * rng.normal(size=(5, 7, 4, 4)), rng.normal(size=(5, 7, 4, 4))
    for array in (scores, gradient):
        array[:, 0, 1:] = np.nan
        for b, n in enumerate(lengths):
            array[b, n:] = np.nan
    before = scores.copy()
    point = project_all(scores, lengths)
    product = backward(point, gradient, lengths)
    assert np.array_equal(scores, before, equal_nan=True)
    for b, n in enumerate(lengths):
        alone = project_all(np.ascontiguousarray(scores[b : b + 1, :n]))
        assert np.array_equal(point[b, :n], alone[0]) and not point[b, n:].any()
        inner = backward(alone, np.ascontiguousarray(gradient[b : b + 1, :n]))
        assert np.array_equal(product[b, :n], inner[0]) and not product[b, n:].any()


def test_single_precision_comes_back():
    scores = np.random.default_rng(6).normal(size=(6, 25, 10, 10)).astype(np.float32)
    point, exact = project_all(scores), project_all(scores.astype(float))
    assert point.dtype == np.float32 and np.abs(point - exact).max() < 1e-7
    gradient = np.random.default_rng(7).normal(size=scores.shape).astype(np.float32)
    assert np.abs(backward(point, gradient) - backward(exact, gradient.astype(float))).max() < 1e-6


def test_other_instances_are_left_alone():
    scores = np.random.default_rng(8).normal(size=(4, 6, 3, 3))
    lengths = np.full(4, 6)
    everything = project_all(scores)
    point, product = np.full(scores.shape, 7.0), np.full(scores.shape, 7.0)
    assert project(scores, lengths, point, 1, 3) == -1
    assert project_backward(lengths, everything, scores, product, 1, 3) == -1
    assert np.array_equal(point[1:3], everything[1:3])
    for array in (point, product):
        assert (array[[0, 3]] == 7).all() and not (array[1:3] == 7).any()


def test_an_instance_without_an_answer_is_named():
    point = np.empty((3, 4, 3, 3))

    def first_refused(change, lengths=(4, 4, 4)):
        scores = np.zeros((3, 4, 3, 3))
        change(scores)
        return project(scores, np.array(lengths), point, 0, 3)

    def put(value, *place):
        return lambda scores: scores.__setitem__(place, value)

    def separate(scores):
        scores[1, 1, :, 1:] = scores[1, 2, 0] = -np.inf  # only tag 0 at position 1, and nothing follows it

    assert first_refused(separate) == 1
    assert first_refused(put(-np.inf, 1, 0, 0)) == first_refused(put(-np.inf, 1, 3)) == 1
    for value in (np.nan, np.inf):
        assert first_refused(put(value, 2, 3, 1, 1)) == first_refused(put(value, 2, 0, 0, 1)) == 2
        assert first_refused(put(value, 2, 3, 1, 1), (4, 4, 3)) == first_refused(put(value, 2, 0, 1, 1)) == -1
    for length in (-1, 5):
        assert first_refused(put(0.0, 0, 0), (4, length, 4)) == 1
        lengths = np.array([4, length, 4])
        assert project_backward(lengths, np.zeros(point.shape), np.zeros(point.shape), point, 0, 3) == 1


@pytest.mark.parametrize(("n", "t"), [(1, 4), (2, 3), (3, 3), (5, 2)])
def test_the_backward_projects_on_the_face_of_the_sequences_in_use(n, t):
    every = sequences(n, t)
    rng = np.random.default_rng(n)
    for kind, scores in kinds(rng, n, t):
        point, gradient = project_all(scores[None]), rng.normal(size=(1, n, t, t))
        expected = reference.face_projection(point.ravel(), every, gradient.ravel())
        assert np.abs(backward(point, gradient).ravel() - expected).max() < 1e-11, kind


@pytest.mark.parametrize(("n", "t"), SIZES)
def test_the_backward_is_the_derivative(n, t):
    rng = np.random.default_rng(9)
    smooth = 0
    for scale in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0):
        scores, direction, gradient = rng.normal(size=(3, 2, n, t, t))
        above, below = (project_all(scale * scores + h * direction) for h in (1e-7, -1e-7))
        product = backward(project_all(scale * scores), gradient)
        for b in range(2):
            if ((above[b] > 0) == (below[b] > 0)).all():  # no kink between the two points
                smooth += 1
                slope = (product[b] * direction[b]).sum()
                difference = (gradient[b] * (above[b] - below[b])).sum() / 2e-7
                assert abs(difference - slope) < 1e-5 * (1 + abs(slope)), scale
    assert smooth > 7

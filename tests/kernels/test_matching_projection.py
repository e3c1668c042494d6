"""Projection onto the mixtures of matchings: optimality by its certificate, derivatives by differences and by faces."""

import numpy as np
import pytest

from pullback.kernels import matching
from pullback.kernels.matching.newton import nearest, new_workspace
from reference import matching as reference
from reference.active_set import as_vertices, face_projector
from reference.active_set import project as project_on_hull

SMALL = [(1, 1), (2, 2), (3, 3), (4, 4), (1, 3), (2, 4), (3, 2), (4, 1)]
LARGE = [(10, 10), (12, 17), (17, 12), (55, 55), (50, 70)]


def kinds(rng, n, m):
    """Scores of all characters, by name; all have a matching."""
    noise = rng.normal(size=(n, m))
    for scale in (0.0, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4):
        yield f"normal {scale}", scale * noise
    yield "offset", noise - 1e3
    yield "integers", rng.integers(-2, 3, (n, m)).astype(float)
    yield "quarters", rng.integers(-2, 3, (n, m)) / 4
    yield "near ties", rng.integers(0, 2, (n, m)) + 1e-9 * noise
    yield "large and equal", np.full((n, m), 1e4)
    yield "cauchy", rng.standard_cauchy((n, m))
    yield "sums", np.add.outer(100.0 * rng.normal(size=n), rng.normal(size=m))
    yield "one good matching", 100.0 * np.eye(n, m)
    for share in (0.3, 0.7, 1.0):
        allowed = np.eye(n, m)[rng.permutation(n)][:, rng.permutation(m)] > 0
        for scale in (0.1, 10.0):
            yield f"masked {share} {scale}", np.where(allowed | (rng.random((n, m)) > share), scale * noise, -np.inf)


def project(scores, optional, dtype=float):
    """(point, prices of rows, prices of columns) of one instance, from a batch with NaN in its padding."""
    n, m = scores.shape
    batch = np.full((1, n + 1, m + 2), np.nan, dtype)
    batch[0, :n, :m] = scores
    point = np.full_like(batch, 7.0)
    row_price, col_price = np.full((1, n + 1), 7.0, dtype), np.full((1, m + 2), 7.0, dtype)
    assert matching.project(batch, np.array([[n, m]]), optional, point, row_price, col_price, 0, 1) == -1
    assert not point[0, n:].any() and not point[0, :, m:].any()
    assert not row_price[0, n:].any() and not col_price[0, m:].any()
    return point[0, :n, :m], row_price[0, :n], col_price[0, :m]


def backward(found, optional, gradient):
    point, row_price, col_price = (np.ascontiguousarray(array[None]) for array in found)
    product = np.full_like(point, 7.0)
    lengths, gradient = np.array([point.shape[1:]]), gradient[None].astype(point.dtype)
    assert matching.project_backward(lengths, optional, point, row_price, col_price, gradient, product, 0, 1) == -1
    return product[0]


def tight(found, optional):
    """Which sums of rows and of columns cannot change on the face of the point."""
    point, row_price, col_price = found
    n, m = point.shape
    return (not optional and n <= m) | (row_price > 0), (not optional and m <= n) | (col_price > 0)


def size(scores):
    return max(1.0, np.abs(scores[np.isfinite(scores)]).max())


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SMALL)
def test_the_projection_is_the_nearest_mixture_of_matchings(n, m, optional):
    every = reference.vertices(n, m, optional).reshape(-1, n * m)
    for seed in range(2):
        for kind, scores in kinds(np.random.default_rng(seed), n, m):
            if size(scores) < 300:  # beyond, the reference is not exact
                nearest_point = project_on_hull(scores.ravel(), every).reshape(n, m)
                assert np.abs(project(scores, optional)[0] - nearest_point).max() < 1e-8, kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, *LARGE])
def test_the_projection_is_a_mixture_that_no_matching_improves(n, m, optional):
    for kind, scores in kinds(np.random.default_rng(1), n, m):
        point, row_price, col_price = project(scores, optional)
        assert (point >= 0).all() and not point[np.isneginf(scores)].any(), kind
        assert reference.surplus(point, optional) < 1e-11, kind
        assert abs(reference.gap(scores, point, optional)) < 1e-10 * size(scores), kind
        rest = scores - row_price[:, None] - col_price
        assert np.abs(np.maximum(rest, 0.0) - point).max() < 1e-14 * min(n, m) * size(scores) + 1e-11, kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, *LARGE])
def test_sums_with_a_price_are_one(n, m, optional):
    for kind, scores in kinds(np.random.default_rng(2), n, m):
        found = project(scores, optional)
        tight_rows, tight_cols = tight(found, optional)
        assert np.abs(found[0].sum(1)[tight_rows] - 1.0).max(initial=0.0) < 1e-11, kind
        assert np.abs(found[0].sum(0)[tight_cols] - 1.0).max(initial=0.0) < 1e-11, kind
        assert (found[1] >= 0).all() or not (optional or n > m), kind
        assert (found[2] >= 0).all() or not (optional or m > n), kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("shape", [(55, 55), (50, 70)])
def test_few_steps_are_enough_at_any_scale(shape, optional):
    w = new_workspace(*shape)
    for seed in range(3):
        for kind, scores in kinds(np.random.default_rng(seed), *shape):
            steps, feasible = nearest(scores.copy(), optional, w)
            assert feasible and 0 <= steps <= 60, kind


@pytest.mark.parametrize("optional", [False, True])
def test_a_matching_is_its_own_projection(optional):
    rng = np.random.default_rng(3)
    for n, m in LARGE:
        vertex = np.eye(n, m)[rng.permutation(n)][:, rng.permutation(m)]
        assert np.abs(project(vertex, optional)[0] - vertex).max() < 1e-12


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, *LARGE])
def test_the_derivative_is_a_projection_on_the_face(n, m, optional):
    rng = np.random.default_rng(4)
    for kind, scores in kinds(rng, n, m):
        found, gradient = project(scores, optional), rng.normal(size=(n, m))
        product = backward(found, optional, gradient)
        expected = reference.face_projection(found[0], *tight(found, optional), gradient)
        assert np.abs(product - expected).max() < 1e-10, kind


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("scores", "optional"),
    [
        (np.full((2, 2), 3.5), True),  # prices of rows, of columns, or of both
        ([[1, 1, 0, 0], [1, 1, 0, -1]], False),
        ([[1, 1, 0], [1, 1, -1]], True),
        ([[2, 2, -np.inf], [2, 2, -np.inf]], False),
        ([[1, 1], [1, 1], [0, -1]], False),
        (np.full((55, 55), 3.5), True),
    ],
)
def test_equal_scores_have_the_derivative_of_their_face(scores, optional, dtype):
    scores = np.array(scores, float)
    n, m = scores.shape
    found, gradient = project(scores, optional, dtype), np.random.default_rng(9).normal(size=(n, m))
    product = backward(found, optional, gradient)
    if n > 4:
        expected = gradient - gradient.mean(0) - gradient.mean(1, keepdims=True) + gradient.mean()
    else:
        every = reference.vertices(n, m, optional).reshape(-1, n * m)
        every = every[~(every * np.isneginf(scores).ravel()).any(1)]
        rest = np.where(np.isneginf(scores), 0.0, scores - found[0])
        expected = (face_projector(rest.ravel(), every, found[0].ravel()) @ gradient.ravel()).reshape(n, m)
    assert np.abs(product - expected).max() < (1e-10 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, *LARGE])
def test_the_derivative_agrees_with_differences(n, m, optional):
    rng, compared = np.random.default_rng(5), 0
    for _ in range(10):
        for scale in (0.1, 1.0, 10.0):
            scores, gradient = scale * rng.normal(size=(n, m)), rng.normal(size=(n, m))
            found = project(scores, optional)
            ahead, behind = (project(scores + step * gradient, optional) for step in (1e-6, -1e-6))
            same = [
                all(np.array_equal(a, b) for a, b in zip((near[0] > 0, *tight(near, optional)), face))
                for face in [(found[0] > 0, *tight(found, optional))]
                for near in (ahead, behind)
            ]
            if all(same):  # else the face changes in between
                difference = (ahead[0] - behind[0]) / 2e-6
                assert np.abs(difference - backward(found, optional, gradient)).max() < 1e-7
                compared += 1
    assert compared >= 10


@pytest.mark.parametrize("optional", [False, True])
def test_single_precision_gives_the_same_face(optional):
    rng = np.random.default_rng(6)
    for n, m in LARGE:
        scores, gradient = rng.normal(size=(n, m)).astype(np.float32), rng.normal(size=(n, m))
        single, double = project(scores, optional, np.float32), project(scores.astype(float), optional)
        assert single[0].dtype == np.float32 and np.abs(single[0] - double[0]).max() < 1e-7
        assert ((single[0] > 0) == (double[0] > 0)).all()
        assert np.abs(backward(single, optional, gradient) - backward(double, optional, gradient)).max() < 1e-5


@pytest.mark.parametrize("optional", [False, True])
def test_nothing_is_the_projection_where_a_side_is_empty(optional):
    for n, m in ((0, 0), (0, 3), (2, 0)):
        assert project(np.empty((n, m)), optional)[0].shape == (n, m)


@pytest.mark.parametrize("optional", [False, True])
def test_the_first_instance_without_a_mixture_is_named(optional):
    scores, lengths = np.zeros((4, 3, 3)), np.full((4, 2), 2)
    outputs = np.empty((4, 3, 3)), np.empty((4, 3)), np.empty((4, 3))
    scores[2, :2, 1] = -np.inf
    assert matching.project(scores, lengths, optional, *outputs, 0, 4) == (-1 if optional else 2)
    scores[1, 0, 0] = np.nan
    assert matching.project(scores, lengths, optional, *outputs, 0, 4) == 1
    lengths[0] = [2, 4]
    assert matching.project(scores, lengths, optional, *outputs, 0, 4) == 0
    assert matching.project(scores, lengths, optional, *outputs, 3, 4) == -1


def mixture(scores, optional, capacity=200):
    """(point, parts, probabilities, size) of one instance."""
    n, m = scores.shape
    point, parts = np.full((1, n, m), 7.0), np.zeros((1, capacity, n), np.int32)
    probabilities, gap = np.zeros((1, capacity)), np.zeros(1)
    count, iterations = np.zeros((2, 1), int)
    start, outputs = np.empty((1, 0, n), np.int32), (point, parts, probabilities, count, gap, iterations)
    lengths = np.array([[n, m]])
    assert matching.mixture(scores[None], lengths, (optional,), start, 1e-12, 10_000, *outputs, 0, 1) == -1
    return point, parts, probabilities, count


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, (7, 7), (6, 9)])
def test_the_matchings_that_mix_give_the_projection(n, m, optional):
    for kind, scores in kinds(np.random.default_rng(7), n, m):
        point, parts, probabilities, count = mixture(scores, optional)
        mixed = as_vertices(parts, count, n * m)[0, : count[0]].reshape(-1, n, m)
        assert all(reference.surplus(vertex, optional) == 0.0 for vertex in mixed), kind
        assert np.abs(probabilities[0, : count[0]].sum() - 1.0) < 1e-9, kind
        assert np.abs(np.tensordot(probabilities[0, : count[0]], mixed, 1) - point[0]).max() < 1e-9, kind
        assert np.abs(point[0] - project(scores, optional)[0]).max() < 1e-8 * size(scores), kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [*SMALL, (7, 7), (6, 9)])
def test_both_ways_to_the_projection_have_the_same_derivative(n, m, optional):
    rng = np.random.default_rng(8)
    for scale in (0.3, 1.0, 10.0):
        scores, gradient, product = scale * rng.normal(size=(n, m)), rng.normal(size=(n, m)), np.full((1, n, m), 7.0)
        _, parts, _, count = mixture(scores, optional)
        inputs = scores[None], np.array([[n, m]]), (optional,), parts, count, gradient[None]
        assert matching.mixture_backward(*inputs, product, 0, 1) == -1
        assert np.abs(product[0] - backward(project(scores, optional), optional, gradient)).max() < 1e-8

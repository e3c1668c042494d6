"""Entropic matchings: optimality by the conditions on their prices, derivatives by differences."""

import numpy as np
import pytest

from pullback.kernels import matching
from reference import matching as reference

SHAPES = [(1, 1), (3, 3), (8, 8), (2, 5), (6, 4), (20, 20), (15, 22)]
EPSILONS = [10.0, 1.0, 0.1, 0.01]


def kinds(rng, n, m):
    """Scores of all characters, by name; all have a matching."""
    noise = rng.normal(size=(n, m))
    for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1e4):
        yield f"normal {scale}", scale * noise
    yield "integers", rng.integers(-2, 3, (n, m)).astype(float)
    yield "large and equal", np.full((n, m), 1e4)
    yield "sums", np.add.outer(100.0 * rng.normal(size=n), rng.normal(size=m))
    for share in (0.3, 0.7, 1.0):
        allowed = np.eye(n, m)[rng.permutation(n)][:, rng.permutation(m)] > 0
        yield f"masked {share}", np.where(allowed | (rng.random((n, m)) > share), noise, -np.inf)


def sinkhorn(scores, optional, epsilon, tolerance=1e-9, start=None, dtype=float, max_iterations=500):
    """(point, prices of rows, prices of columns, iterations, error) of ⟨s, μ⟩ + ε H(μ); the padding is NaN."""
    n, m = scores.shape
    batch = np.full((1, n + 1, m + 2), np.nan, dtype)
    batch[0, :n, :m] = scores / epsilon
    point, row_price, col_price = np.full_like(batch, 7.0), np.full((1, n + 1), 7.0), np.full((1, m + 2), 7.0)
    iterations, error = np.zeros(1, int), np.zeros(1)
    begin = [np.empty((1, 0))] * 2
    if start is not None:
        begin = np.zeros((1, n + 1)), np.zeros((1, m + 2))
        begin[0][0, :n], begin[1][0, :m] = (prices / epsilon for prices in start)
    limits, outputs = (tolerance, max_iterations), (point, row_price, col_price, iterations, error)
    assert matching.sinkhorn(batch, np.array([[n, m]]), optional, *begin, *limits, *outputs, 0, 1) == -1
    assert not point[0, n:].any() and not point[0, :, m:].any()
    assert not row_price[0, n:].any() and not col_price[0, m:].any()
    return point[0, :n, :m], epsilon * row_price[0, :n], epsilon * col_price[0, :m], iterations[0], error[0]


def backward(found, optional, epsilon, gradient):
    point, row_price, col_price = (np.ascontiguousarray(array[None]) for array in found[:3])
    product, lengths = np.full(point.shape, 7.0), np.array([point.shape[1:]])
    inputs = lengths, optional, point, row_price, col_price, gradient[None]
    assert matching.sinkhorn_backward(*inputs, product, 0, 1) == -1
    return product[0] / epsilon


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_the_prices_prove_the_answer(n, m, epsilon, optional):
    for kind, scores in kinds(np.random.default_rng(0), n, m):
        point, row_price, col_price, _, error = sinkhorn(scores, optional, epsilon)
        largest = np.abs(scores[np.isfinite(scores)]).max()
        assert error <= 1e-9 and reference.surplus(point, optional) <= 2e-9, kind
        exponent = (scores - row_price[:, None] - col_price) / epsilon - 1.0
        assert np.abs(np.exp(exponent) - point).max() < 1e-12 + 1e-14 * largest / epsilon, kind
        if optional or n > m:
            assert (row_price >= 0).all() and (np.abs(point.sum(1) - 1.0)[row_price > 0] <= 2e-9).all(), kind
        if optional or n < m:
            assert (col_price >= 0).all() and (np.abs(point.sum(0) - 1.0)[col_price > 0] <= 2e-9).all(), kind


def test_equal_scores_are_shared_evenly():
    for n, m in SHAPES:
        point = sinkhorn(np.full((n, m), 0.7), False, 0.1)[0]
        assert np.abs(point - 1.0 / max(n, m)).max() < 1e-9


def test_a_single_optional_pair_is_an_exponential():
    for score in (-3.0, 0.0, 0.5, 0.99):
        assert np.isclose(sinkhorn(np.array([[score]]), True, 1.0)[0][0, 0], np.exp(score - 1.0))
    assert np.isclose(sinkhorn(np.array([[2.0]]), True, 1.0)[0][0, 0], 1.0)


def test_two_rows_and_two_columns_are_a_sigmoid():
    scores = np.array([[0.3, -0.2], [0.1, 0.9]])
    share = 1.0 / (1.0 + np.exp(-(scores[0, 0] + scores[1, 1] - scores[0, 1] - scores[1, 0]) / (2 * 0.5)))
    assert np.abs(sinkhorn(scores, False, 0.5)[0] - [[share, 1 - share], [1 - share, share]]).max() < 1e-9


@pytest.mark.parametrize("optional", [False, True])
def test_the_answer_tends_to_the_best_matching(optional):
    scores = np.random.default_rng(1).normal(size=(12, 12))
    point = sinkhorn(scores, optional, 1e-4)[0]
    assert abs((scores * point).sum() - reference.best_value(scores, optional)) < 1e-2


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_few_dozen_iterations_are_enough(n, m, optional):
    for epsilon in (1.0, 0.1, 1e-2, 1e-3):
        for seed in range(3):
            for kind, scores in kinds(np.random.default_rng(seed), n, m):
                assert sinkhorn(scores, optional, epsilon)[3] <= 60, kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_the_derivative_agrees_with_differences(n, m, optional):
    rng, compared = np.random.default_rng(2), 0
    for _ in range(4):
        for epsilon in (2.0, 0.5, 0.2):
            scores, gradient, step = rng.normal(size=(n, m)), rng.normal(size=(n, m)), 1e-4 * epsilon
            found = sinkhorn(scores, optional, epsilon, 1e-12)
            near = [sinkhorn(scores + sign * step * gradient, optional, epsilon, 1e-12) for sign in (1, -1)]
            square = n == m and not optional
            if square or all(((a > 0) == (b > 0)).all() for other in near for a, b in zip(other[1:3], found[1:3])):
                difference = (near[0][0] - near[1][0]) / (2 * step)
                product = backward(found, optional, epsilon, gradient)
                assert np.abs(difference - product).max() * epsilon < 1e-6
                compared += 1
    assert compared >= 4


@pytest.mark.parametrize("optional", [False, True])
def test_the_derivative_is_symmetric_and_keeps_tight_sums(optional):
    rng = np.random.default_rng(3)
    for n, m in SHAPES:
        scores, a, b = rng.normal(size=(3, n, m))
        found = sinkhorn(scores, optional, 0.1, 1e-12)
        left, right = backward(found, optional, 0.1, a), backward(found, optional, 0.1, b)
        assert np.isclose((left * b).sum(), (right * a).sum(), atol=1e-9)
        rows = (not optional and n <= m) | (found[1] > 0)
        cols = (not optional and m <= n) | (found[2] > 0)
        assert np.abs(left.sum(1)[rows]).max(initial=0.0) < 1e-9
        assert np.abs(left.sum(0)[cols]).max(initial=0.0) < 1e-9


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_a_start_at_the_answer_saves_the_search(n, m, optional):
    scores = np.random.default_rng(4).normal(size=(n, m))
    cold = sinkhorn(scores, optional, 0.1, 1e-10)
    warm = sinkhorn(scores, optional, 0.1, 1e-8, start=cold[1:3])
    assert warm[3] == 0 and np.abs(warm[0] - cold[0]).max() < 1e-7
    nearby = sinkhorn(scores + 1e-3, optional, 0.1, 1e-8, start=cold[1:3])
    assert nearby[3] <= 8


def test_the_search_ends_where_it_is_told_to():
    scores = np.random.default_rng(5).normal(size=(20, 20))
    iterations, error = sinkhorn(scores, False, 0.01, 1e-12, max_iterations=3)[3:]
    assert iterations == 3 and error > 1e-12
    assert sinkhorn(scores, False, 0.01, 0.1)[4] <= 0.1


def test_single_precision_is_computed_in_double():
    scores = np.random.default_rng(6).normal(size=(9, 9)).astype(np.float32)
    single, double = sinkhorn(scores, False, 0.0625, dtype=np.float32), sinkhorn(scores.astype(float), False, 0.0625)
    assert single[0].dtype == np.float32 and np.abs(single[0] - double[0]).max() < 1e-7


@pytest.mark.parametrize("optional", [False, True])
def test_the_first_instance_without_an_answer_is_named(optional):
    scores, lengths, none = np.zeros((4, 3, 3)), np.full((4, 2), 2), np.empty((4, 0))
    settings = optional, none, none, 1e-6, 100
    outputs = np.empty((4, 3, 3)), np.empty((4, 3)), np.empty((4, 3)), np.empty(4, int), np.empty(4)
    scores[2, :2, 1] = -np.inf
    assert matching.sinkhorn(scores, lengths, *settings, *outputs, 0, 4) == (-1 if optional else 2)
    scores[1, 0, 0] = np.nan
    assert matching.sinkhorn(scores, lengths, *settings, *outputs, 0, 4) == 1
    lengths[0] = [4, 1]
    assert matching.sinkhorn(scores, lengths, *settings, *outputs, 0, 4) == 0
    lengths[3] = 0
    assert matching.sinkhorn(scores, lengths, *settings, *outputs, 3, 4) == -1 and not outputs[0][3].any()

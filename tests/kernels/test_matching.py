"""The best and the k best matchings, against the list of all of them, and against SciPy where the list is too long."""

import math

import numpy as np
import pytest

from pullback.kernels import matching
from reference import matching as reference

SIZES = [(n, m) for n in range(5) for m in range(5)]


def kinds(rng, n, m):
    """Scores of all characters, by name."""
    noise = rng.normal(size=(n, m))
    for scale in (1e-3, 1.0, 1e4):
        yield f"normal {scale}", scale * noise
    yield "integers", rng.integers(-2, 3, (n, m)).astype(float)
    yield "equal", np.full((n, m), -0.3)
    yield "sums", np.add.outer(100.0 * rng.normal(size=n), rng.normal(size=m))
    for share in (0.2, 0.5, 0.8):
        yield f"masked {share}", np.where(rng.random((n, m)) < share, -np.inf, noise)
        yield f"masked integers {share}", np.where(rng.random((n, m)) < share, -np.inf, np.round(noise))


def padded(scores, more=(2, 1), dtype=float):
    """A batch of one with NaN beyond the rows and columns in use, and its lengths."""
    n, m = scores.shape
    batch = np.full((1, n + more[0], m + more[1]), np.nan, dtype)
    batch[0, :n, :m] = scores
    return batch, np.array([[n, m]])


def argmax(scores, optional, dtype=float):
    """The best matching of one instance, None if there is none."""
    batch, lengths = padded(scores, dtype=dtype)
    vertex = np.full(batch.shape, 7.0, dtype)
    if matching.argmax(batch, lengths, optional, vertex, 0, 1) == 0:
        return None
    best = vertex[0, : lengths[0, 0], : lengths[0, 1]]
    assert vertex.sum() == best.sum()
    return best


def topk(scores, optional, k):
    """The k best matchings of one instance, none if there are none."""
    batch, lengths = padded(scores)
    vertices, size = np.full((1, k, *batch.shape[1:]), 7.0), np.full(1, -1)
    if matching.topk(batch, lengths, optional, k, vertices, size, 0, 1) == 0:
        return vertices[0, :0]
    assert not vertices[0, size[0] :].any()
    best = vertices[0, : size[0], : lengths[0, 0], : lengths[0, 1]]
    assert vertices.sum() == best.sum()
    return best


@pytest.mark.parametrize(("n", "m"), SIZES)
def test_there_are_as_many_matchings_as_mathematics_says(n, m):
    small, large = min(n, m), max(n, m)
    assert len(reference.matchings(n, m)) == math.perm(large, small)
    pairs = sum(math.comb(n, k) * math.perm(m, k) for k in range(small + 1))
    assert len(reference.matchings(n, m, optional=True)) == pairs


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_no_matching_is_better_than_the_argmax(n, m, optional):
    every = reference.vertices(n, m, optional)
    for seed in range(3):
        for kind, scores in kinds(np.random.default_rng(seed), n, m):
            values = reference.values(scores, every)
            best = argmax(scores, optional)
            assert (best is None) == (values.max() == -np.inf), kind
            if best is not None:
                assert (every == best).all((1, 2)).any(), kind
                assert abs(scores[best > 0].sum() - values.max()) <= 1e-12 * max(1.0, abs(values.max())), kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [(30, 30), (20, 45), (45, 20), (1, 60), (60, 1)])
def test_long_matchings_are_as_good_as_those_of_scipy(n, m, optional):
    for kind, scores in kinds(np.random.default_rng(0), n, m):
        value, best = reference.best_value(scores, optional), argmax(scores, optional)
        assert (best is None) == (value == -np.inf), kind
        if best is not None:
            assert reference.surplus(best, optional) == 0.0, kind
            assert abs(scores[best > 0].sum() - value) <= 1e-12 * max(1.0, np.abs(scores[best > 0]).sum()), kind


@pytest.mark.parametrize("optional", [False, True])
def test_padding_and_the_other_instances_of_a_batch_choose_none_of_equal_matchings(optional):
    """Among ties, too: how long rows bid, and against whom, depends on their own matrix alone."""
    scores = np.random.default_rng(0).integers(-2, 3, (60, 4, 4)).astype(float)
    batch = np.full((60, 30, 30), np.nan)
    batch[:, :4, :4] = scores
    vertex = np.empty_like(batch)
    assert matching.argmax(batch, np.full((60, 2), 4), optional, vertex, 0, 60) == -1
    for one, found in zip(scores, vertex):
        alone = np.empty((1, 4, 4))
        assert matching.argmax(one[None], np.full((1, 2), 4), optional, alone, 0, 1) == -1
        np.testing.assert_array_equal(found[:4, :4], alone[0])


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_the_k_best_are_all_different_and_in_order(n, m, optional):
    every = reference.vertices(n, m, optional)
    for k in (1, 4, 250):
        for kind, scores in kinds(np.random.default_rng(k), n, m):
            values = reference.values(scores, every)
            values = np.sort(values[values > -np.inf])[::-1]
            best = topk(scores, optional, k)
            assert len(best) == min(k, len(values)), kind
            assert len({vertex.tobytes() for vertex in best}) == len(best), kind
            assert all((every == vertex).all((1, 2)).any() for vertex in best), kind
            found, expected = reference.values(scores, best), values[: len(best)]
            assert np.abs(found - expected).max(initial=0.0) <= 1e-12 * max(1.0, np.abs(values).max(initial=0.0)), kind


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize(("n", "m"), [(12, 12), (9, 14), (14, 9)])
def test_the_second_best_differs_from_the_best_in_some_pair_of_it(n, m, optional):
    for seed in range(5):
        scores = np.random.default_rng(seed).normal(size=(n, m))
        first, second, third = topk(scores, optional, 3)
        assert np.isclose(scores[first > 0].sum(), reference.best_value(scores, optional))
        rivals = []
        for i, j in np.argwhere(first > 0):  # without one pair of the best
            without = scores.copy()
            without[i, j] = -np.inf
            rivals.append(reference.best_value(without, optional))
        if optional:  # or with one pair more
            for i, j in np.argwhere(np.ones((n, m)) - first.sum(1)[:, None] - first.sum(0) > 0):
                rivals.append(scores[first > 0].sum() + scores[i, j])
        assert np.isclose(scores[second > 0].sum(), max(rivals))
        assert scores[third > 0].sum() <= scores[second > 0].sum() + 1e-12


def test_single_precision_stays():
    scores = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    best = argmax(scores, False, np.float32)
    assert best.dtype == np.float32
    assert np.isclose(scores[best > 0].sum(), reference.best_value(scores))


@pytest.mark.parametrize("optional", [False, True])
def test_a_range_of_instances_is_worked_on_and_the_first_bad_one_is_named(optional):
    scores, lengths = np.zeros((5, 2, 3)), np.full((5, 2), 2)
    vertex, vertices, size = np.full((5, 2, 3), 7.0), np.empty((5, 2, 2, 3)), np.empty(5, int)
    assert matching.argmax(scores, lengths, optional, vertex, 1, 4) == -1
    assert (vertex[[0, 4]] == 7.0).all() and (vertex[1:4].sum((1, 2)) <= 2).all()
    for bad in (np.nan, np.inf):
        scores[3, 1, 1] = bad
        assert matching.argmax(scores, lengths, optional, vertex, 0, 5) == 3
        assert matching.topk(scores, lengths, optional, 2, vertices, size, 0, 5) == 3
    scores[3] = -np.inf
    assert matching.argmax(scores, lengths, optional, vertex, 0, 5) == (-1 if optional else 3)
    assert matching.topk(scores, lengths, optional, 2, vertices, size, 0, 5) == (-1 if optional else 3)
    for wrong in ([3, 2], [2, 4], [-1, 2], [2, -1]):
        lengths[2] = wrong
        assert matching.argmax(scores, lengths, optional, vertex, 0, 5) == 2
        assert matching.topk(scores, lengths, optional, 2, vertices, size, 0, 5) == 2

"""The best sequence of a linear chain, against trying all of them."""

import numpy as np
import pytest

from pullback.kernels import chain
from reference import chain as reference


def argmax(scores, lengths):
    best = np.full(scores.shape, 7, scores.dtype)
    assert chain.argmax(scores, lengths, best, 0, len(scores)) == -1
    return best


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize(("n", "t"), [(1, 4), (2, 1), (5, 3), (4, 5), (7, 2)])
def test_the_best_sequence_is_the_one_that_trying_all_finds(n, t, scale, dtype):
    scores = (scale * np.random.default_rng(n).normal(size=(6, n, t, t))).astype(dtype)
    for s, best in zip(scores, argmax(scores, np.full(6, n))):
        np.testing.assert_array_equal(best, reference.argmax(s, n))


def test_tied_sequences_give_one_of_the_best():
    scores = np.random.default_rng(0).integers(-1, 2, size=(20, 5, 3, 3)).astype(float)
    scores[0] = 0.0
    every = reference.vertices(5, 5, 3)
    for s, best in zip(scores, argmax(scores, np.full(20, 5))):
        assert (every == best).all((1, 2, 3)).any()
        assert (s * best).sum() == reference.values(s, every).max()


def test_forbidden_parts_are_avoided():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(30, 5, 3, 3))
    scores[rng.random(scores.shape) < 0.4] = -np.inf
    expected = [reference.argmax(s, 5) for s in scores]
    possible = np.array([z is not None for z in expected])
    assert 5 < possible.sum() < 30
    found = argmax(scores[possible], np.full(possible.sum(), 5))
    np.testing.assert_array_equal(found, [z for z in expected if z is not None])
    for s in scores[~possible]:
        assert chain.argmax(s[None], np.array([5]), np.empty((1, 5, 3, 3)), 0, 1) == 0


def test_padding_and_the_rows_before_the_first_tag_are_never_read():
    lengths = np.array([3, 0, 5, 1, 2])
    scores, whole = np.full((5, 5, 3, 3), np.nan), np.random.default_rng(2).normal(size=(5, 5, 3, 3))
    for b, n in enumerate(lengths):
        scores[b, :n] = whole[b, :n]
    scores[:, 0, 1:] = np.nan
    for b, (n, best) in enumerate(zip(lengths, argmax(scores, lengths))):
        np.testing.assert_array_equal(best, reference.argmax(whole[b], n))


def test_chains_without_positions_are_empty():
    assert argmax(np.empty((2, 0, 3, 3)), np.zeros(2, int)).shape == (2, 0, 3, 3)
    assert (argmax(np.full((1, 2, 3, 3), np.nan), np.zeros(1, int)) == 0.0).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("where", [(0, 0, 2), (3, 1, 1)], ids=["first", "last"])
def test_an_instance_with_nan_or_infinite_scores_is_named(wrong, where):
    scores = np.random.default_rng(3).normal(size=(4, 4, 3, 3))
    scores[(2, *where)] = wrong
    assert chain.argmax(scores, np.full(4, 4), np.empty_like(scores), 0, 4) == 2


@pytest.mark.parametrize("length", [-1, 5])
def test_an_instance_whose_length_is_out_of_range_is_named(length):
    scores = np.random.default_rng(4).normal(size=(3, 4, 3, 3))
    assert chain.argmax(scores, np.array([4, length, 4]), np.empty_like(scores), 0, 3) == 1


def test_only_the_given_range_is_written():
    scores = np.random.default_rng(5).normal(size=(4, 4, 3, 3))
    best = np.full_like(scores, 7.0)
    assert chain.argmax(scores, np.full(4, 4), best, 1, 3) == -1
    assert (best[[0, 3]] == 7.0).all()
    np.testing.assert_array_equal(best[1:3], argmax(scores, np.full(4, 4))[1:3])

"""The best projective trees, against enumeration."""

import numpy as np
import pytest

from pullback.kernels.projective_trees import best, k_best
from reference.trees import distribution, enumerate_trees

ROOTS = pytest.mark.parametrize("single_root", [False, True], ids=["any roots", "one root"])


def batch(rng, lengths, draw, forbidden=0.0):
    """Scores of several sentences, NaN wherever there is no arc; the chain 0 → 1 → … → n is always allowed."""
    size = max(lengths) + 2
    scores = np.full((len(lengths), size, size), np.nan)
    for b, n in enumerate(lengths):
        sentence = draw(rng, (n + 1, n + 1))
        chain = np.eye(n + 1, k=1, dtype=bool)
        sentence[(rng.random(sentence.shape) < forbidden) & ~chain] = -np.inf
        scores[b, : n + 1, 1 : n + 1] = sentence[:, 1:]
        np.fill_diagonal(scores[b], np.nan)
    return scores


def normal(rng, shape):
    return rng.normal(size=shape)


def large(rng, shape):
    return 1e4 * rng.normal(size=shape)


def tied(rng, shape):
    return rng.integers(-1, 2, size=shape).astype(float)


def equal(rng, shape):
    return np.full(shape, 0.3)


KINDS = pytest.mark.parametrize("draw", [normal, large, tied, equal], ids=lambda f: f.__name__)


def argmax(scores, lengths, single_root):
    heads = np.full(scores.shape[:2], 7)
    assert best.argmax(scores, lengths, single_root, heads, 0, len(scores)) == -1
    return heads


def score(scores, heads, n):
    return scores[heads[1 : n + 1], np.arange(1, n + 1)].sum()


@ROOTS
@KINDS
@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_argmax_is_a_tree_with_the_best_score(single_root, draw, forbidden, dtype):
    lengths = np.array([4, 0, 1, 5, 2, 3, 5])
    scores = batch(np.random.default_rng(0), lengths, draw, forbidden).astype(dtype)
    heads = argmax(scores, lengths, single_root)
    for b, n in enumerate(lengths):
        trees, _, values, _ = distribution(scores[b, : n + 1, : n + 1].astype(float), True, single_root)
        assert tuple(heads[b, 1 : n + 1]) in trees
        assert score(scores[b].astype(float), heads[b], n) == pytest.approx(values.max(), rel=1e-14)
        assert heads[b, 0] == 0 and (heads[b, n + 1 :] == 0).all()


@ROOTS
def test_argmax_finds_the_only_tree(single_root):
    scores = np.full((1, 6, 6), -np.inf)
    heads = np.array([[0, 3, 1, 0, 3, 4]])
    scores[0, heads[0, 1:], np.arange(1, 6)] = -1e4
    np.testing.assert_array_equal(argmax(scores, np.array([5]), single_root), heads)


@ROOTS
def test_an_instance_without_trees_or_with_nan_scores_is_named(single_root):
    lengths = np.array([3, 3, 3])
    headless, cyclic, unclear, infinite = np.random.default_rng(1).normal(size=(4, 3, 4, 4))
    headless[1, :, 2] = -np.inf
    cyclic[1, 0] = -np.inf
    unclear[1, 2, 1] = np.nan
    infinite[1, 2, 1] = np.inf
    for scores in (headless, cyclic, unclear, infinite):
        heads = np.full((3, 4), 7)
        assert best.argmax(scores, lengths, single_root, heads, 0, 3) == 1
        assert best.argmax(scores, lengths, single_root, heads, 2, 3) == -1


def test_two_roots_are_no_tree_where_one_is_asked_for():
    scores = np.full((1, 3, 3), -np.inf)
    scores[0, 0, 1:] = 1.0
    heads = np.empty((1, 3), np.int64)
    assert best.argmax(scores, np.array([2]), True, heads, 0, 1) == 0
    np.testing.assert_array_equal(argmax(scores, np.array([2]), False), [[0, 0, 0]])


def test_only_the_given_range_is_written():
    lengths = np.array([3, 3, 3, 3])
    scores = batch(np.random.default_rng(2), lengths, normal)
    heads = np.full((4, 5), 7)
    assert best.argmax(scores, lengths, False, heads, 1, 3) == -1
    assert (heads[[0, 3]] == 7).all()
    np.testing.assert_array_equal(heads[1:3], argmax(scores, lengths, False)[1:3])


@ROOTS
def test_every_tree_is_counted_once(single_root):
    """The recurrences over (+, ·) count the trees: 1, 3, 12, 55, 273, or 1, 2, 7, 30, 143 with one root."""
    from pullback.kernels.projective_trees.inside_outside import inside_linear

    for n in range(1, 6):
        weight = np.ones((n + 1, n + 1))
        weight[:, 0] = 0.0
        trees = inside_linear(weight, n, single_root, np.empty((3, n + 1, n + 1)))
        assert trees == len(enumerate_trees(n, True, single_root))


def topk(scores, lengths, single_root, k):
    heads = np.full((len(scores), k, scores.shape[1]), 7)
    values = np.full((len(scores), k), 7.0)
    counts = np.full(len(scores), 7)
    assert k_best.topk(scores, lengths, single_root, k, heads, values, counts, 0, len(scores)) == -1
    return heads, values, counts


@ROOTS
@KINDS
@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("k", [1, 2, 7, 400])
def test_topk_are_the_best_distinct_trees_in_order(single_root, draw, forbidden, k):
    lengths = np.array([4, 0, 1, 5, 2, 3, 5])
    scores = batch(np.random.default_rng(3), lengths, draw, forbidden)
    heads, values, counts = topk(scores, lengths, single_root, k)
    for b, n in enumerate(lengths):
        trees, _, every, _ = distribution(scores[b, : n + 1, : n + 1], True, single_root)
        finite = np.sort(every[np.isfinite(every)])[::-1]
        assert counts[b] == min(k, len(finite))
        np.testing.assert_allclose(values[b, : counts[b]], finite[: counts[b]], rtol=1e-13, atol=1e-13)
        assert (values[b, counts[b] :] == -np.inf).all() and (heads[b, counts[b] :] == 0).all()
        found = [tuple(tree[1 : n + 1]) for tree in heads[b, : counts[b]]]
        assert len(set(found)) == counts[b] and set(found) <= set(trees)
        for tree, value in zip(heads[b], values[b, : counts[b]]):
            assert score(scores[b], tree, n) == pytest.approx(value, rel=1e-13, abs=1e-13)
        assert (heads[b, :, 0] == 0).all() and (heads[b, :, n + 1 :] == 0).all()


@ROOTS
def test_topk_of_long_sentences_begins_with_the_argmax_and_goes_down(single_root):
    lengths = np.array([30, 17])
    scores = batch(np.random.default_rng(4), lengths, normal)
    heads, values, counts = topk(scores, lengths, single_root, 20)
    np.testing.assert_array_equal(heads[:, 0], argmax(scores, lengths, single_root))
    assert (counts == 20).all() and (np.diff(values) <= 0.0).all()
    more, _, _ = topk(scores, lengths, single_root, 40)
    np.testing.assert_array_equal(more[:, :20], heads)


@ROOTS
def test_topk_names_an_instance_without_trees(single_root):
    scores = np.random.default_rng(5).normal(size=(3, 4, 4))
    scores[1, 0] = -np.inf
    out = np.empty((3, 2, 4), np.int64), np.empty((3, 2)), np.empty(3, np.int64)
    assert k_best.topk(scores, np.full(3, 3), single_root, 2, *out, 0, 3) == 1
    assert k_best.topk(scores, np.full(3, 3), single_root, 2, *out, 2, 3) == -1

"""Best trees against enumeration: values, not argmaxes, since ties are allowed."""

import numpy as np
import pytest

from pullback.kernels.trees import arborescence
from reference.trees import arcs, enumerate_trees

ROOTS = pytest.mark.parametrize("single_root", [False, True])


def vertices(n, single_root):
    return np.array([arcs(heads) for heads in enumerate_trees(n, False, single_root)])


def values(scores, matrices):
    return np.where(matrices > 0, scores, 0.0).sum((1, 2))


def kinds(n, seed, count=20):
    """Generic, tied, masked, huge and root-heavy score matrices over n words, with NaN where nothing may look."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        s = random.standard_normal((n + 1, n + 1))
        masked = np.where(random.random(s.shape) < 0.5, -np.inf, s)
        heavy = s.copy()
        heavy[0] += 1e15
        for kind in (s, np.round(s), masked, s * 1e12, heavy):
            kind[:, 0] = np.nan
            np.fill_diagonal(kind, np.nan)
            yield kind


def argmax(scores, single_root):
    heads = np.full((1, len(scores)), 99)
    bad = arborescence.argmax(scores[None], np.array([len(scores) - 1]), single_root, heads, 0, 1)
    return bad, heads[0]


def topk(scores, single_root, k):
    heads, best = np.full((1, k, len(scores)), 99), np.full((1, k), np.nan)
    counts = np.full(1, 99)
    bad = arborescence.topk(scores[None], np.array([len(scores) - 1]), single_root, k, heads, best, counts, 0, 1)
    return bad, heads[0], best[0], counts[0]


@ROOTS
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_argmax_attains_the_best_score_of_all_trees(n, single_root):
    matrices = vertices(n, single_root)
    for scores in kinds(n, seed=n):
        every = values(scores, matrices)
        bad, heads = argmax(scores, single_root)
        if every.max() == -np.inf:
            assert bad == 0
            continue
        assert bad == -1
        found = arcs(heads[1:])
        assert (matrices == found).all((1, 2)).any()
        assert values(scores, found[None])[0] >= every.max() - 1e-12 * np.abs(every[np.isfinite(every)]).max()


@ROOTS
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_topk_lists_the_best_trees_once_each_in_order(n, k, single_root):
    matrices = vertices(n, single_root)
    for scores in kinds(n, seed=n, count=6):
        every = values(scores, matrices)
        feasible = np.sort(every[every > -np.inf])[::-1][:k]
        bad, heads, best, count = topk(scores, single_root, k)
        if len(feasible) == 0:
            assert bad == 0
            continue
        assert bad == -1 and count == len(feasible)
        np.testing.assert_allclose(best[:count], feasible, rtol=1e-12, atol=1e-12)
        assert (np.diff(best[:count]) <= 0).all()
        assert len(set(map(tuple, heads[:count]))) == count
        for tree, value in zip(heads[:count], best[:count]):
            assert (matrices == arcs(tree[1:])).all((1, 2)).any()
            np.testing.assert_allclose(values(scores, arcs(tree[1:])[None])[0], value, rtol=1e-12)
        assert (best[count:] == -np.inf).all() and (heads[count:] == 0).all()


def test_topk_begins_with_argmax_on_long_sentences():
    scores = np.random.default_rng(0).standard_normal((41, 41))
    for single_root in (False, True):
        _, heads, best, count = topk(scores, single_root, 6)
        np.testing.assert_array_equal(heads[0], argmax(scores, single_root)[1])
        assert count == 6 and (np.diff(best) < 0).all()


@ROOTS
def test_a_long_chain_of_nested_cycles_is_opened_right(single_root):
    # Each word prefers the one before, the first the last: contraction after contraction down to one node.
    n = 60
    scores = np.full((n + 1, n + 1), -np.inf)
    for word in range(1, n + 1):
        scores[word - 1 or n, word] = 10.0
        scores[word % n + 1, word] = 9.0 - 0.01 * word
    scores[0, 1:] = -100.0
    scores[0, 30] = -99.0
    bad, heads = argmax(scores, single_root)
    assert bad == -1
    # The best of all rotations and reversals, found by cutting the cycle at each word.
    chains = []
    for root in range(1, n + 1):
        for reach in range(n):  # that many words after the root are reached forwards, the others backwards
            order = [(root + i - 1) % n + 1 for i in range(n)]
            tree = np.zeros(n, int)
            for i in range(1, n):
                tree[order[i] - 1] = order[i - 1] if i <= reach else order[(i + 1) % n]
            chains.append(values(scores, arcs(tree)[None])[0])
    np.testing.assert_allclose(values(scores, arcs(heads[1:])[None])[0], max(chains), rtol=1e-12)


@ROOTS
def test_a_padded_batch_agrees_with_its_sentences_alone(single_root):
    random = np.random.default_rng(0)
    lengths = np.array([3, 0, 5, 1, 4])
    scores = random.standard_normal((5, 6, 6)).astype(np.float32)
    for b, n in enumerate(lengths):
        scores[b, n + 1 :], scores[b, :, n + 1 :] = np.nan, np.nan
    heads, best = np.full((5, 2, 6), 99), np.full((5, 2), np.nan)  # which is in double precision always
    first, counts = np.full((5, 6), 99), np.full(5, 99)
    before = scores.copy()
    assert arborescence.argmax(scores, lengths, single_root, first, 1, 4) == -1
    assert arborescence.topk(scores, lengths, single_root, 2, heads, best, counts, 1, 4) == -1
    np.testing.assert_array_equal(scores, before)
    assert (first[[0, 4]] == 99).all() and (heads[[0, 4]] == 99).all()  # only the range asked for
    assert counts[1] == 1 and best[1, 0] == 0 and best[1, 1] == -np.inf and not heads[1].any()
    for b in (1, 2, 3):
        n = lengths[b]
        alone = argmax(scores[b, : n + 1, : n + 1].copy(), single_root)[1]
        np.testing.assert_array_equal(first[b, : n + 1], alone)
        np.testing.assert_array_equal(heads[b, 0, : n + 1], alone)
        assert not first[b, n + 1 :].any() and not heads[b, :, n + 1 :].any()


def test_the_first_instance_that_cannot_be_solved_is_named():
    scores = np.zeros((4, 3, 3))
    lengths = np.full(4, 2)
    heads, several, best, counts = np.empty((4, 3), int), np.empty((4, 2, 3), int), np.empty((4, 2)), np.empty(4, int)
    assert arborescence.argmax(scores, lengths, False, heads, 0, 4) == -1
    scores[3, :, 1] = -np.inf  # a word without heads
    assert arborescence.argmax(scores, lengths, False, heads, 0, 4) == 3
    assert arborescence.topk(scores, lengths, False, 2, several, best, counts, 0, 4) == 3
    scores[2, 1, 2] = np.nan
    assert arborescence.argmax(scores, lengths, False, heads, 0, 4) == 2
    assert arborescence.topk(scores, lengths, False, 2, several, best, counts, 0, 4) == 2
    scores[1, 1:, 1:] = -np.inf  # two roots are needed
    assert arborescence.argmax(scores, lengths, False, heads, 0, 2) == -1
    assert arborescence.argmax(scores, lengths, True, heads, 0, 2) == 1
    assert arborescence.topk(scores, lengths, True, 2, several, best, counts, 0, 2) == 1

"""The best spanning trees and forests, one or several, against enumeration and SciPy."""

import itertools

import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree

from pullback.kernels import spanning_trees
from reference.spanning_trees import forests, values

EVERY = [(n, components) for n in range(1, 7) for components in range(1, n + 1)]


def upper(scores, lengths):
    """The scores with NaN where nothing may look."""
    scores = scores.copy()
    for b, n in enumerate(lengths):
        scores[b, n:], scores[b, :, n:] = np.nan, np.nan
        scores[b][np.tril_indices(scores.shape[1])] = np.nan
    return scores


def kinds(random, batch, n):
    """Scores of all characters: noise of any scale, ties, near ties, missing edges."""
    noise = random.standard_normal((batch, n, n))
    for scale in (1e-3, 0.1, 1.0, 10.0, 1e4):
        yield scale * noise
    yield random.integers(-2, 3, noise.shape).astype(float)
    yield np.full(noise.shape, 0.3)
    yield random.integers(0, 2, noise.shape) + 1e-9 * noise
    for missing in (0.2, 0.5, 0.7):
        yield np.where(random.random(noise.shape) < missing, -np.inf, noise)
        yield np.where(random.random(noise.shape) < missing, -np.inf, np.round(noise))


def argmax(scores, lengths, components=1):
    vertex = np.full(scores.shape, 99, scores.dtype)
    report = spanning_trees.argmax(scores, np.asarray(lengths), components, vertex, 0, len(scores))
    return report, vertex


def topk(scores, lengths, components, k):
    vertices, size = np.full((len(scores), k, *scores.shape[1:]), 99, scores.dtype), np.full(len(scores), 99)
    report = spanning_trees.topk(scores, np.asarray(lengths), components, k, vertices, size, 0, len(scores))
    return report, vertices, size


def test_there_are_as_many_trees_as_cayley_says():
    assert [len(forests(n)) for n in range(1, 7)] == [1, 1, 3, 16, 125, 1296]
    assert [len(forests(4, components)) for components in (1, 2, 3, 4)] == [16, 15, 6, 1]


@pytest.mark.parametrize(("n", "components"), EVERY)
def test_the_best_forest_is_that_of_enumeration(n, components):
    random = np.random.default_rng(n)
    vertices = forests(n, components)
    known = {vertex.tobytes() for vertex in vertices}
    solved = 0
    for scores in kinds(random, 4, n):
        for one in upper(scores, [n] * 4):
            report, found = argmax(one[None], [n], components)
            every = values(one, vertices)
            assert report == (-1 if every.max() > -np.inf else 0)
            if report == -1:
                solved += 1
                assert found[0].tobytes() in known
                largest = np.abs(one[np.isfinite(one)]).max(initial=1)
                assert values(one, found)[0] == pytest.approx(every.max(), rel=0, abs=1e-14 * n * largest)
    assert solved > 20


@pytest.mark.parametrize("n", [10, 25, 50])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_best_tree_is_that_of_scipy(n, dtype):
    scores = np.random.default_rng(n).standard_normal((8, n, n)).astype(dtype)
    report, found = argmax(upper(scores, [n] * 8), [n] * 8)
    assert report == -1 and found.dtype == dtype
    for one, tree in zip(scores, found):
        costs = np.triu(10.0 - one.astype(float), 1)
        expected = minimum_spanning_tree(costs).toarray() > 0
        np.testing.assert_array_equal(tree > 0, expected | expected.T)


@pytest.mark.parametrize("n", [12, 40])
def test_a_forest_is_the_best_tree_without_its_smallest_edges(n):
    scores = np.random.default_rng(n).standard_normal((1, n, n))
    tree = np.triu(argmax(scores, [n])[1][0], 1) > 0
    for components in (2, 5, n - 1, n):
        forest = np.triu(argmax(scores, [n], components)[1][0], 1) > 0
        smallest = np.sort(scores[0][tree])[components - 1 :]
        np.testing.assert_array_equal(np.sort(scores[0][forest]), smallest)
        assert not (forest & ~tree).any()


@pytest.mark.parametrize(("n", "components"), [(n, c) for n, c in EVERY if n < 6])
def test_the_k_best_forests_are_those_of_enumeration(n, components):
    random = np.random.default_rng(n)
    vertices = forests(n, components)
    known = {vertex.tobytes() for vertex in vertices}
    for scores, k in itertools.product(kinds(random, 2, n), (1, 2, 7, 150)):
        for one in upper(scores, [n] * 2):
            every = values(one, vertices)
            every = np.sort(every[every > -np.inf])[::-1]
            report, found, size = topk(one[None], [n], components, k)
            assert report == (-1 if len(every) else 0)
            if report == -1:
                assert size[0] == min(k, len(every))
                listed = found[0, : size[0]]
                names = {vertex.tobytes() for vertex in listed}
                assert len(names) == size[0] and names <= known
                assert not found[0, size[0] :].any()
                largest = np.abs(one[np.isfinite(one)]).max(initial=1)
                np.testing.assert_allclose(values(one, listed), every[: size[0]], rtol=0, atol=1e-14 * n * largest)


def test_the_k_best_trees_of_larger_graphs_begin_with_the_best_and_never_get_better():
    scores = np.random.default_rng(0).standard_normal((3, 30, 30))
    report, found, size = topk(scores, [30, 20, 30], 1, 40)
    assert report == -1 and (size == 40).all()
    np.testing.assert_array_equal(found[:, 0], argmax(scores, [30, 20, 30])[1])
    for one, trees in zip(scores, found):
        assert (np.diff(values(one, trees)) <= 1e-12).all()
        assert len({tree.tobytes() for tree in trees}) == 40
        single_exchanges = np.abs(trees[1:] - trees[0]).sum((1, 2)) == 4
        assert single_exchanges[0]  # the second best differs by one edge


def test_padding_is_ignored_and_zero():
    random = np.random.default_rng(0)
    lengths = np.array([5, 0, 1, 2, 7, 3])
    scores = upper(random.standard_normal((6, 7, 7)), lengths)
    kept = scores.copy()
    report, found = argmax(scores, lengths)
    other, listed, _ = topk(scores, lengths, 1, 3)
    np.testing.assert_array_equal(scores, kept)
    assert report == other == -1
    np.testing.assert_array_equal(listed[:, 0], found)
    for b, n in enumerate(lengths):
        assert found[b].sum() == 2 * max(n - 1, 0)
        assert not found[b, n:].any() and not found[b, :, n:].any()
        alone = argmax(scores[b : b + 1, :n, :n].copy(), [n])[1][0] if n else np.zeros((0, 0))
        np.testing.assert_array_equal(found[b, :n, :n], alone)


def test_only_the_instances_asked_for_are_written():
    scores, lengths = np.zeros((5, 4, 4)), np.full(5, 4)
    vertex, vertices, size = np.full(scores.shape, 9.0), np.full((5, 2, 4, 4), 9.0), np.full(5, 9)
    assert spanning_trees.argmax(scores, lengths, 1, vertex, 1, 3) == -1
    assert spanning_trees.topk(scores, lengths, 1, 2, vertices, size, 1, 3) == -1
    for output in (vertex, vertices, size):
        assert (output[[0, 3, 4]] == 9).all() and not (output[1:3] == 9).any()


def test_the_first_instance_that_cannot_be_solved_is_named():
    scores, lengths = np.zeros((6, 4, 4)), np.full(6, 4)
    assert argmax(scores, lengths)[0] == topk(scores, lengths, 1, 2)[0] == -1
    scores[5, :3, 3] = -np.inf  # a node without edges
    assert argmax(scores, lengths)[0] == topk(scores, lengths, 1, 2)[0] == 5
    assert argmax(scores, lengths, 2)[0] == topk(scores, lengths, 2, 2)[0] == -1
    scores[4, 1, 2] = np.nan
    assert argmax(scores, lengths)[0] == topk(scores, lengths, 1, 2)[0] == 4
    scores[3, 1, 2] = np.inf
    assert argmax(scores, lengths)[0] == topk(scores, lengths, 1, 2)[0] == 3
    lengths[2] = 1
    assert argmax(scores, lengths, 2)[0] == topk(scores, lengths, 2, 2)[0] == 2
    assert argmax(scores[:2], lengths[:2], 5)[0] == topk(scores[:2], lengths[:2], 5, 2)[0] == 0

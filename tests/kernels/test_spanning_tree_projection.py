"""The nearest mixture of spanning trees or forests: feasible, optimal, and with the derivative of its face."""

import itertools

import numpy as np
import pytest

from pullback.kernels import spanning_trees
from pullback.kernels.spanning_trees import dense_sets
from reference.spanning_trees import excess, forests, values

SCALES = (0.0, 1e-3, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1000.0, 1e4)


def project(scores, components=1, lengths=None):
    """point, blocks of a batch that must be solvable."""
    lengths = np.full(len(scores), scores.shape[1]) if lengths is None else np.asarray(lengths)
    point, blocks = np.full(scores.shape, np.nan, scores.dtype), np.full(scores.shape, -1, np.int32)
    assert spanning_trees.project(scores, lengths, components, point, blocks, 0, len(scores)) == -1
    return point, blocks


def project_backward(blocks, gradient):
    product = np.full(gradient.shape, np.nan)
    assert spanning_trees.project_backward(blocks, gradient, product, 0, len(gradient)) == -1
    return product


def gaps(scores, point, components=1):
    """⟨s − μ, z − μ⟩ with z the best forest for s − μ, relative to the largest score."""
    batch, n, _ = scores.shape
    slope, best = np.triu(scores.astype(float) - point, 1), np.empty(scores.shape)
    assert spanning_trees.argmax(slope, np.full(batch, n), components, best, 0, batch) == -1
    better = np.triu(best - point, 1)
    assert not better[slope == -np.inf].any()
    slope[slope == -np.inf] = 0
    return (slope * better).sum((1, 2)) / np.maximum(1.0, np.abs(slope).max((1, 2)))


def kinds(random, batch, n):
    """Scores of all characters, by name: noise, ties, steps of SPIGOT, nested dense sets, missing edges."""
    noise = random.standard_normal((batch, n, n))
    for scale in SCALES:
        yield f"normal {scale}", scale * noise
    yield "integers", random.integers(-2, 3, noise.shape).astype(float)
    yield "quarters", random.integers(-2, 3, noise.shape) / 4
    yield "near ties", random.integers(0, 2, noise.shape) + 1e-9 * noise
    yield "far ties", 1e4 * random.integers(-2, 3, noise.shape)
    for step in (0.1, 1.0):
        tree = np.empty(noise.shape)
        spanning_trees.argmax(noise, np.full(batch, n), 1, tree, 0, batch)
        yield f"spigot {step}", tree - step * random.standard_normal(noise.shape)
    nested = 0.1 * noise
    for size in (2, 3, 5, 8, 13, 21, 34):
        nested[:, :size, :size] += 1
    yield "nested", nested
    yield "pairs", noise + 4 * np.kron(np.eye(n // 2 + 1), np.ones((2, 2)))[:n, :n]
    for name, scores in (("masked", noise), ("masked ties", np.zeros(noise.shape))):
        masked = np.where(random.random(noise.shape) < 0.5, -np.inf, scores)
        masked[:, np.arange(n - 1), np.arange(1, n)] = -1  # a path, so that a tree exists
        yield name, masked


@pytest.mark.parametrize(("n", "components"), [(n, c) for n in range(2, 7) for c in range(1, n)])
def test_the_projection_is_feasible_and_no_vertex_is_better(n, components):
    random = np.random.default_rng(n)
    vertices = forests(n, components)
    pairs = np.triu_indices(n, 1)
    for name, scores in kinds(random, 4, n):
        point, blocks = project(scores, components)
        for one, x, block in zip(scores, point, blocks):
            unit = max(1.0, np.abs(one[np.isfinite(one)]).max())
            assert excess(x, components) <= 1e-10, name
            np.testing.assert_array_equal(x, x.T)
            np.testing.assert_array_equal(block > 0, x > 0)
            finite = one[pairs] > -np.inf
            assert not x[pairs][~finite].any()
            slope = (one - x)[pairs][finite]
            allowed = vertices[values(one, vertices) > -np.inf][:, pairs[0], pairs[1]][:, finite]
            assert (allowed @ slope).max() - slope @ x[pairs][finite] <= 1e-10 * unit, name


@pytest.mark.parametrize(("n", "components"), [(10, 1), (10, 4), (25, 1), (25, 2), (60, 1), (60, 20), (100, 1)])
def test_the_gap_vanishes_at_every_scale(n, components):
    for name, scores in kinds(np.random.default_rng(n), 2, n):
        point, _ = project(scores, components)
        assert np.abs(gaps(scores, point, components)).max() <= 1e-10, name
        np.testing.assert_allclose(np.triu(point, 1).sum((1, 2)), n - components, rtol=1e-12)


@pytest.mark.parametrize("n", [3, 8, 30])
def test_the_projection_of_a_mixture_of_trees_is_itself(n):
    random = np.random.default_rng(n)
    trees = np.empty((6, n, n))
    assert spanning_trees.argmax(random.standard_normal((6, n, n)), np.full(6, n), 1, trees, 0, 6) == -1
    mixtures = np.einsum("mt,tij->mij", random.dirichlet(np.ones(6), 5), trees)
    shifts = random.standard_normal((5, 1, 1))  # every tree has n − 1 edges, so a common shift changes nothing
    point, _ = project(mixtures + shifts)
    np.testing.assert_allclose(point, mixtures * (1 - np.eye(n)), rtol=0, atol=1e-10)


def test_known_points():
    n = 7
    point, blocks = project(np.zeros((1, n, n)))
    np.testing.assert_allclose(point[0], (1 - np.eye(n)) * 2 / n, rtol=1e-14)
    assert set(blocks[0].ravel()) == {0, 1}
    scores = np.array([[[0, 0.5, 0.1], [0, 0, 0.0], [0, 0, 0]]])  # 0.5 + c, 0.1 + c and c sum to 2
    np.testing.assert_allclose(project(scores)[0][0][np.triu_indices(3, 1)], [29 / 30, 17 / 30, 14 / 30], rtol=1e-14)
    scores[0, 0, 1] = 2.0  # that edge is sure, and the other two share what is left
    np.testing.assert_allclose(project(scores)[0][0][np.triu_indices(3, 1)], [1.0, 0.55, 0.45], rtol=1e-14)


@pytest.mark.parametrize("components", [1, 2])
def test_the_backward_is_the_slope_of_the_projection(components):
    random = np.random.default_rng(0)
    step, tested = 1e-6, 0
    for n, scale in itertools.product((3, 4, 6, 10, 20), (0.05, 0.3, 1.0, 3.0, 30.0)):
        scores, direction = random.standard_normal((2, 8, n, n)) * [[[[scale]]], [[[1]]]]
        if n > 4:  # missing edges
            scores[:4][random.random((4, n, n)) < 0.4] = -np.inf
            scores[:, np.arange(n - 1), np.arange(1, n)] = -scale
        ahead, behind = project(scores + step * direction, components), project(scores - step * direction, components)
        _, blocks = project(scores, components)
        product = project_backward(blocks, direction)
        np.testing.assert_array_equal(product, product.transpose(0, 2, 1))
        same = ((ahead[1] == blocks) & (behind[1] == blocks)).all((1, 2))  # no kink between
        slope = (ahead[0] - behind[0]) / (2 * step)
        np.testing.assert_allclose(product[same], slope[same], rtol=0, atol=1e-7 * max(1, scale))
        tested += same.sum()
    assert tested > 180


def test_parts_that_meet_in_one_node_are_blocks_of_their_own_even_where_they_tie():
    scores = np.full((1, 7, 7), -np.inf)
    for i, j in ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (2, 4), (4, 5), (5, 6)):  # two triangles, two bridges
        scores[0, i, j] = 0.0
    point, blocks = project(scores)
    assert point[0, 4, 5] == point[0, 5, 6] == pytest.approx(1)
    np.testing.assert_allclose([point[0, 0, 1], point[0, 3, 4]], 2 / 3)
    members = {frozenset(zip(*np.nonzero(np.triu(blocks[0] == k)))) for k in range(1, blocks.max() + 1)}
    assert members == {
        frozenset({(0, 1), (1, 2), (0, 2)}),
        frozenset({(2, 3), (3, 4), (2, 4)}),
        frozenset({(4, 5)}),
        frozenset({(5, 6)}),
    }


def test_components_that_must_be_spanned_are_blocks_of_their_own_even_where_they_tie():
    scores = np.full((1, 6, 6), -np.inf)
    for i, j in ((0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5)):
        scores[0, i, j] = 0.0
    _, apart = project(scores, 2)  # one tree in each triangle
    assert len(set(apart[0, :3, :3].ravel()) & set(apart[0, 3:, 3:].ravel()) - {0}) == 0
    _, together = project(scores, 3)  # one edge less, anywhere
    assert set(together.ravel()) == {0, 1}


def test_padding_is_ignored_and_zero():
    random = np.random.default_rng(0)
    lengths = np.array([5, 0, 1, 2, 7, 3])
    scores = random.standard_normal((6, 7, 7))
    scores[:, np.tri(7, dtype=bool)] = np.nan
    for b, n in enumerate(lengths):
        scores[b, n:], scores[b, :, n:] = np.nan, np.nan
    kept = scores.copy()
    point, blocks = project(scores, 1, lengths)
    np.testing.assert_array_equal(scores, kept)
    product = project_backward(blocks, np.where(np.isnan(scores), np.nan, 1.0))
    for b, n in enumerate(lengths):
        for output in (point[b], blocks[b], product[b]):
            assert not output[n:].any() and not output[:, n:].any()
        assert point[b].sum() == pytest.approx(2 * max(n - 1, 0))
        np.testing.assert_allclose(product[b], 0, atol=1e-14)  # the sum cannot change
        if n > 0:
            np.testing.assert_array_equal(point[b, :n, :n], project(scores[b : b + 1, :n, :n].copy())[0][0])


def test_single_precision_goes_in_and_comes_out():
    scores = np.random.default_rng(0).standard_normal((3, 12, 12)).astype(np.float32)
    np.testing.assert_allclose(project(scores)[0], project(scores.astype(float))[0], rtol=0, atol=1e-7)


def test_the_first_instance_that_cannot_be_solved_is_named():
    scores, lengths = np.zeros((6, 4, 4)), np.full(6, 4)
    point, blocks = np.empty(scores.shape), np.empty(scores.shape, np.int32)

    def failure(components, lo=0):
        return spanning_trees.project(scores, lengths, components, point, blocks, lo, 6)

    assert failure(1) == failure(4) == -1
    scores[5, :3, 3] = -np.inf
    assert failure(1) == 5 and failure(2) == -1
    scores[4, 1, 2] = np.nan
    assert failure(1) == failure(1, 3) == 4
    scores[3, 1, 2] = np.inf
    assert failure(1) == 3
    lengths[2] = 1
    assert failure(2) == 2
    assert failure(5) == 0


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_the_partition_into_dense_sets_holds_most(n):
    random = np.random.default_rng(n)

    def partitions(nodes):
        if not nodes:
            yield []
            return
        for size in range(len(nodes)):
            for others in itertools.combinations(nodes[1:], size):
                rest = [node for node in nodes[1:] if node not in others]
                for more in partitions(rest):
                    yield [(nodes[0], *others), *more]

    def surplus(weight, sets):
        return sum(weight[np.ix_(one, one)].sum() / 2 - len(one) + 1 for one in sets)

    every = list(partitions(list(range(n))))
    for trial in range(60):
        weight = np.triu(random.exponential(size=(n, n)) * random.choice([0.3, 0.6, 1.0, 2.0]) * 2 / n, 1)
        weight[random.random((n, n)) < 0.3 * (trial % 3)] = 0
        weight += weight.T
        label = np.empty(n, np.int64)
        count = dense_sets.partition(weight.copy(), n, 1e-12, dense_sets.workspace(n), label)
        sets = [tuple(np.flatnonzero(label == name)) for name in set(label)]
        assert len(sets) == count
        assert surplus(weight, sets) == pytest.approx(max(surplus(weight, one) for one in every), abs=1e-11)

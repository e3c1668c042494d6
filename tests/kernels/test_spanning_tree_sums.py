"""Sums over all spanning trees: against enumeration, arithmetic in many digits, and known counts."""

import itertools

import numpy as np
import pytest
from scipy.stats import chisquare

from pullback.kernels import spanning_trees
from reference import spanning_trees as reference

SCALES = pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0, 100.0, 1000.0])


def symmetric(scores):
    """The upper half of the scores in both halves, with NaN on the diagonal, where nothing may look."""
    upper = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return np.where(upper, scores, np.where(upper.T, np.swapaxes(scores, -1, -2), np.nan))


def solve(scores, lengths=None):
    """The report, log-partition and marginals of a batch."""
    lengths = np.full(len(scores), scores.shape[1]) if lengths is None else np.asarray(lengths)
    alone, value = np.full((2, len(scores)), np.nan)
    gradient = np.full(scores.shape, np.nan, scores.dtype)
    report = spanning_trees.partition(scores, lengths, value, gradient, 0, len(scores))
    assert spanning_trees.log_partition(scores, lengths, alone, 0, len(scores)) == report
    if report == -1:
        np.testing.assert_allclose(alone, value, rtol=1e-13, atol=1e-13)
    return report, value, 2 * gradient  # each half has half of an edge


def hessian_product(scores, direction, lengths=None):
    """The slope of the marginals along a direction."""
    lengths = np.full(len(scores), scores.shape[1]) if lengths is None else np.asarray(lengths)
    product = np.full(scores.shape, np.nan)
    assert spanning_trees.hessian_product(scores, lengths, direction, product, 0, len(scores)) == -1
    return 2 * product


@SCALES
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_values_and_marginals_are_those_of_enumeration_whatever_is_forbidden(n, scale):
    random = np.random.default_rng(n)
    solved = 0
    for missing in (0.0, 0.0, 0.2, 0.2, 0.4, 0.4, 0.6):
        noise = random.standard_normal((n, n)) * scale
        scores = symmetric(np.where(random.random((n, n)) < missing, -np.inf, noise))
        trees, totals, probabilities = reference.distribution(scores)
        report, value, marginals = solve(scores[None])
        assert report == (-1 if totals.max() > -np.inf else 0)
        if report == -1:
            solved += 1
            expected = totals.max() + np.log(np.exp(totals - totals.max()).sum())
            np.testing.assert_allclose(value[0], expected, rtol=1e-13, atol=1e-13)
            np.testing.assert_allclose(
                marginals[0], np.einsum("t,tij->ij", probabilities, trees), rtol=0, atol=1e-14 * max(1.0, scale)
            )
            np.testing.assert_array_equal(marginals[0], marginals[0].T)
    assert solved > 2


@SCALES
@pytest.mark.parametrize("n", [5, 12])
def test_values_and_marginals_are_those_of_many_digits(n, scale):
    scores = symmetric(np.random.default_rng(n).standard_normal((n, n)) * scale)
    expected, marginals = reference.partition(scores, digits=40 + int(2.5 * scale))
    report, value, found = solve(scores[None])
    assert report == -1
    assert abs(value[0] - float(expected)) <= 1e-12 * abs(float(expected))
    np.testing.assert_allclose(found[0], marginals, rtol=0, atol=1e-12)


@SCALES
@pytest.mark.parametrize("n", [25, 60])
def test_the_log_partition_lies_between_the_best_score_and_that_plus_the_log_of_the_count(n, scale):
    scores = symmetric(np.random.default_rng(n).standard_normal((4, n, n)) * scale)
    best = np.empty(scores.shape)
    assert spanning_trees.argmax(scores, np.full(4, n), 1, best, 0, 4) == -1
    totals = np.array([reference.values(one, tree[None])[0] for one, tree in zip(scores, best)])
    report, value, marginals = solve(scores)
    assert report == -1
    slack = 1e-13 * np.abs(totals)
    assert (value >= totals - slack).all() and (value <= totals + (n - 2) * np.log(n) + slack).all()
    assert (marginals >= 0).all() and (marginals <= 1 + 1e-10).all()
    np.testing.assert_allclose(np.triu(marginals, 1).sum((1, 2)), n - 1, rtol=1e-12)


def test_the_score_of_an_edge_is_the_mean_of_both_halves():
    scores = np.random.default_rng(0).standard_normal((3, 6, 6))
    for found, expected in zip(solve(scores), solve(0.5 * scores + 0.5 * scores.swapaxes(1, 2))):
        np.testing.assert_array_equal(found, expected)


def test_equal_scores_count_the_trees_as_cayley_does():
    for n in (2, 3, 10, 40):
        report, value, marginals = solve(np.full((1, n, n), 0.7))
        assert report == -1
        assert value[0] == pytest.approx((n - 2) * np.log(n) + 0.7 * (n - 1), rel=1e-13)
        np.testing.assert_allclose(marginals[0][np.triu_indices(n, 1)], 2 / n, rtol=1e-12)


def test_a_bridge_is_in_every_tree():
    scores = np.full((1, 6, 6), -np.inf)
    for i, j in ((0, 1), (1, 2), (0, 2), (2, 3), (3, 4), (4, 5), (3, 5)):
        scores[0, i, j] = scores[0, j, i] = i - j / 3
    _, value, marginals = solve(scores)
    assert marginals[0, 2, 3] == pytest.approx(1, rel=1e-14)
    assert value[0] == pytest.approx(np.logaddexp.reduce(reference.distribution(scores[0])[1]), rel=1e-14)


@SCALES
def test_the_hessian_is_the_covariance_of_enumeration(scale):
    random = np.random.default_rng(0)
    for n in (2, 3, 4, 5):
        scores = symmetric(random.standard_normal((n, n)) * scale)
        direction = symmetric(random.standard_normal((n, n)))
        trees, _, probabilities = reference.distribution(scores)
        slopes = reference.values(direction, trees)
        centered = slopes - probabilities @ slopes
        expected = np.einsum("t,t,tij->ij", probabilities, centered, trees)
        found = hessian_product(scores[None], direction[None])[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * max(1.0, scale))


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 300.0])
def test_the_hessian_is_the_slope_of_the_marginals_and_no_slope_is_above_a_quarter(scale):
    random = np.random.default_rng(0)
    n, step = 12, 1e-6
    scores, direction = random.standard_normal((2, 1, n, n)) * [[[[scale]]], [[[1]]]]
    ahead, behind = solve(scores + step * direction)[2], solve(scores - step * direction)[2]
    np.testing.assert_allclose(
        hessian_product(scores, direction), (ahead - behind) / (2 * step), rtol=0, atol=2e-9 * max(1.0, scale)
    )
    edges = list(itertools.combinations(range(n), 2))
    units = np.zeros((len(edges), n, n))
    for unit, (i, j) in zip(units, edges):
        unit[i, j] = unit[j, i] = 1
    columns = hessian_product(np.repeat(scores, len(edges), 0), units)
    assert np.abs(columns).max() <= 0.25 + 1e-12
    matrix = np.array([[column[i, j] for i, j in edges] for column in columns])
    np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-12 * max(1.0, scale))
    np.testing.assert_allclose(matrix.sum(0), 0, atol=1e-11 * max(1.0, scale))  # every tree has n − 1 edges


@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0, 100.0])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_samples_pass_the_chi_squared_test(n, scale):
    scores = symmetric(np.random.default_rng(n).standard_normal((n, n)) * scale)
    drawn = np.full((1, 20000, n, n), np.nan)
    assert spanning_trees.sample(scores[None], np.array([n]), np.array([1]), 20000, drawn, 0, 1) == -1
    trees, _, probabilities = reference.distribution(scores)
    index = {tree.tobytes(): t for t, tree in enumerate(trees)}
    counts = np.bincount([index[tree.tobytes()] for tree in drawn[0]], minlength=len(trees))
    expected = probabilities * 20000
    rare = expected < 5
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    if expected[-1] < 1e-3:
        assert counts[-1] == 0
        counts, expected = counts[:-1], expected[:-1]
    assert len(counts) == 1 or chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-3


def test_samples_of_larger_graphs_are_trees_with_the_frequencies_of_the_marginals():
    random = np.random.default_rng(0)
    scores = symmetric(random.standard_normal((2, 20, 20)))
    lengths = np.array([20, 13])
    drawn = np.full((2, 4000, 20, 20), np.nan)
    assert spanning_trees.sample(scores, lengths, np.array([3, 4]), 4000, drawn, 0, 2) == -1
    _, _, marginals = solve(scores, lengths)
    np.testing.assert_allclose(drawn.mean(1), marginals, atol=5 * 0.5 / np.sqrt(4000))
    for b, n in enumerate(lengths):
        for tree in drawn[b, :50]:
            edges = np.argwhere(np.triu(tree, 1) > 0)
            assert len(edges) == n - 1 and not reference.has_cycle(20, edges) and (tree == tree.T).all()


def test_padding_is_ignored_and_zero():
    random = np.random.default_rng(0)
    lengths = np.array([5, 0, 1, 2, 7, 3, 6])
    scores, direction = symmetric(random.standard_normal((2, 7, 7, 7)))
    for b, n in enumerate(lengths):
        scores[b, n:], scores[b, :, n:] = np.nan, np.nan
    report, value, marginals = solve(scores, lengths)
    product = hessian_product(scores, direction, lengths)
    drawn = np.full((7, 3, 7, 7), np.nan)
    assert spanning_trees.sample(scores, lengths, np.arange(7), 3, drawn, 0, 7) == -1
    assert report == -1 and not value[[1, 2]].any()
    for b, n in enumerate(lengths):
        for output in (marginals[b], product[b], *drawn[b]):
            assert not output[n:].any() and not output[:, n:].any()
            np.testing.assert_array_equal(output, output.T)
        if n > 0:
            _, alone, edges = solve(scores[b : b + 1, :n, :n].copy())
            np.testing.assert_allclose(value[b], alone[0], rtol=1e-14)
            np.testing.assert_allclose(marginals[b, :n, :n], edges[0], rtol=0, atol=1e-15)


def test_graphs_without_nodes_have_one_empty_tree():
    nothing, lengths = np.empty((3, 0, 0)), np.zeros(3, int)
    report, value, _ = solve(nothing, lengths)
    assert report == -1 and not value.any()
    hessian_product(nothing, nothing, lengths)
    assert spanning_trees.sample(nothing, lengths, np.arange(3), 2, np.empty((3, 2, 0, 0)), 0, 3) == -1


def test_single_precision_goes_in_and_comes_out():
    scores = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)
    value, marginals = np.empty(3, np.float32), np.empty(scores.shape, np.float32)
    assert spanning_trees.partition(scores, np.full(3, 8), value, marginals, 0, 3) == -1
    _, exact, expected = solve(scores.astype(float))
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    np.testing.assert_allclose(2 * marginals, expected, atol=2e-7)


def test_the_first_instance_that_cannot_be_solved_is_named_wherever_the_work_begins():
    scores, lengths = np.zeros((9, 4, 4)), np.full(9, 4)
    value, marginals, drawn = np.empty(9), np.empty(scores.shape), np.empty((9, 2, 4, 4))

    def failures(lo):
        yield spanning_trees.log_partition(scores, lengths, value, lo, 9)
        yield spanning_trees.partition(scores, lengths, value, marginals, lo, 9)
        yield spanning_trees.hessian_product(scores, lengths, scores, marginals, lo, 9)
        yield spanning_trees.sample(scores, lengths, np.arange(9), 2, drawn, lo, 9)

    assert set(failures(0)) == set(failures(3)) == {-1}
    scores[8, :3, 3] = -np.inf
    assert set(failures(0)) == set(failures(3)) == {8}
    scores[7, 1, 2] = np.nan
    assert set(failures(0)) == set(failures(5)) == {7}
    scores[2, 1, 2] = np.inf
    assert set(failures(0)) == {2} and set(failures(3)) == {7}

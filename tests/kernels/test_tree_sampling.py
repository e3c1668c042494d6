"""Samples of trees have the frequencies of their probabilities."""

import numpy as np
import pytest
from scipy.stats import chisquare

from pullback.kernels.trees import matrix_tree
from pullback.kernels.trees import sampling as tree_sampling
from reference.trees import distribution

ROOTS = pytest.mark.parametrize("single_root", [False, True])


def draw(scores, single_root, count, seed=0):
    heads = np.full((1, count, len(scores)), 99)
    bad = tree_sampling.sample(scores[None], np.array([len(scores) - 1]), single_root, np.array([seed]), heads, 0, 1)
    assert bad == -1
    return heads[0]


def chi_squared(scores, single_root, heads):
    """The p-value of samples against enumeration; trees expected less than five times are counted together."""
    trees, _, _, probabilities = distribution(scores, False, single_root)
    index = {tree: i for i, tree in enumerate(trees)}
    counts = np.bincount([index[tuple(sample[1:])] for sample in heads], minlength=len(trees))
    assert counts[probabilities == 0].sum() == 0
    expected = probabilities * len(heads)
    rare = expected < 5
    if rare.sum() > 0:
        counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    keep = expected > 1e-3
    assert counts[~keep].sum() <= 1
    if keep.sum() == 1:
        return 1.0
    return chisquare(counts[keep], expected[keep] * counts[keep].sum() / expected[keep].sum()).pvalue


@ROOTS
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("scale", [0.0, 1.0, 3.0, 100.0])
def test_samples_pass_the_chi_squared_test(n, single_root, scale):
    scores = np.random.default_rng(n).standard_normal((n + 1, n + 1)) * scale
    assert chi_squared(scores, single_root, draw(scores, single_root, 20000)) > 1e-3


@ROOTS
def test_samples_under_a_mask_pass_the_chi_squared_test(single_root):
    random = np.random.default_rng(3)
    tested = 0
    while tested < 8:
        scores = np.where(random.random((5, 5)) < 0.5, random.standard_normal((5, 5)), -np.inf)
        if distribution(scores, False, single_root)[2].max() > -np.inf:
            assert chi_squared(scores, single_root, draw(scores, single_root, 5000)) > 1e-4
            tested += 1


@ROOTS
def test_balanced_trees_far_below_the_range_of_numbers_pass_the_chi_squared_test(single_root):
    # Every column has a favorite a thousand above the rest, and the favorites form a cycle: all trees break it.
    scores = np.random.default_rng(0).standard_normal((5, 5))
    scores[[4, 1, 2, 3], [1, 2, 3, 4]] += 1000.0
    assert chi_squared(scores, single_root, draw(scores, single_root, 20000)) > 1e-3


@ROOTS
@pytest.mark.parametrize("scale", [1.0, 5.0, 1000.0])
def test_long_samples_have_the_marginals_as_frequencies(single_root, scale):
    n, count = 30, 4000
    scores = np.random.default_rng(0).standard_normal((n + 1, n + 1)) * scale
    value, marginals = np.empty(1), np.empty((1, n + 1, n + 1))
    matrix_tree.partition(scores[None], np.array([n]), single_root, value, marginals, 0, 1)
    heads = draw(scores, single_root, count)
    frequencies = np.zeros((n + 1, n + 1))
    np.add.at(frequencies, (heads[:, 1:], np.broadcast_to(np.arange(1, n + 1), (count, n))), 1 / count)
    deviation = np.sqrt(np.clip(marginals[0] * (1 - marginals[0]), 0.0, 1.0) / count)
    assert (np.abs(frequencies - marginals[0]) < 5 * deviation + 3 / count).all()  # 3: rare arcs are not normal


@ROOTS
def test_a_seed_decides_the_samples_of_its_instance_whatever_its_neighbors_are(single_root):
    random = np.random.default_rng(0)
    lengths, seeds = np.array([3, 0, 5, 1, 4, 5]), np.array([7, 8, 9, -10, 11, 9])
    scores = random.standard_normal((6, 6, 6)).astype(np.float32)
    scores[5] = scores[2]
    for b, n in enumerate(lengths):
        scores[b, n + 1 :], scores[b, :, n + 1 :] = np.nan, np.nan
    heads = np.full((6, 10, 6), 99)
    assert tree_sampling.sample(scores, lengths, single_root, seeds, heads, 0, 6) == -1
    np.testing.assert_array_equal(heads[2], heads[5])
    assert not (heads[2] == heads[2][0]).all()
    for b, n in enumerate(lengths):
        assert not heads[b, :, n + 1 :].any()
        alone = draw(scores[b, : n + 1, : n + 1].copy(), single_root, 10, seeds[b])
        np.testing.assert_array_equal(heads[b, :, : n + 1], alone)


def test_the_first_instance_that_cannot_be_sampled_is_named():
    scores, lengths, seeds, heads = np.zeros((3, 3, 3)), np.full(3, 2), np.arange(3), np.empty((3, 4, 3), int)
    assert tree_sampling.sample(scores, lengths, False, seeds, heads, 0, 3) == -1
    scores[2, :, 1] = -np.inf
    assert tree_sampling.sample(scores, lengths, False, seeds, heads, 0, 3) == 2
    scores[1, 1, 2] = np.nan
    assert tree_sampling.sample(scores, lengths, False, seeds, heads, 0, 3) == 1

"""Log-partition, marginals and their derivative: against enumeration, and against arithmetic in thousands of digits."""

import numpy as np
import pytest

from pullback.kernels.trees import matrix_tree
from reference import matrix_tree as reference
from reference.trees import distribution, distributions

ROOTS = pytest.mark.parametrize("single_root", [False, True])
SCALES = pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1000.0])


def solve(scores, single_root):
    """Log-partition and marginals of one matrix; None if the kernels say there is no tree."""
    lengths = np.array([len(scores) - 1])
    alone, value, marginals = np.full(1, np.nan), np.full(1, np.nan), np.full((1, *scores.shape), np.nan)
    bad = matrix_tree.partition(scores[None], lengths, single_root, value, marginals, 0, 1)
    assert matrix_tree.log_partition(scores[None], lengths, single_root, alone, 0, 1) == bad
    if bad == 0:
        return None
    np.testing.assert_allclose(alone, value, rtol=1e-13, atol=1e-13)
    return value[0], marginals[0]


def random_scores(random, n, scale, density=1.0):
    """Normal scores with NaN where nothing may look; each arc is allowed with probability `density`."""
    scores = random.standard_normal((n + 1, n + 1)) * scale
    scores[random.random(scores.shape) >= density] = -np.inf
    scores[:, 0] = np.nan
    np.fill_diagonal(scores, np.nan)
    return scores


def log_sum_exp(values):
    return values.max() + np.log(np.exp(values - values.max()).sum())


@ROOTS
@SCALES
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_values_and_marginals_are_those_of_enumeration_whatever_is_forbidden(n, single_root, scale):
    random = np.random.default_rng(n)
    solved = 0
    for density in (1.0, 0.5, 0.5, 0.5, 0.35, 0.35, 0.2, 0.2):
        scores = random_scores(random, n, scale, density)
        _, matrices, values, probabilities = distribution(scores, False, single_root)
        found = solve(scores, single_root)
        if values.max() == -np.inf:
            assert found is None
            continue
        solved += 1
        np.testing.assert_allclose(found[0], log_sum_exp(values), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(found[1], np.einsum("t,thm->hm", probabilities, matrices), atol=1e-15 * scale * 10)
    assert solved > 0


@ROOTS
@SCALES
@pytest.mark.parametrize(("n", "density"), [(8, 1.0), (8, 0.5), (8, 0.2), (20, 1.0), (20, 0.3)])
def test_twelve_digits_survive_any_scale(n, density, single_root, scale):
    random = np.random.default_rng(n)
    for _ in range(1 if n > 8 else 2):
        scores = random_scores(random, n, scale, density)
        chain = [0, *(1 + random.permutation(n))]  # one tree is allowed at least
        scores[chain[:-1], chain[1:]] = random.standard_normal(n) * scale
        value, marginals = reference.partition(scores, single_root, 40 + int(2.5 * scale))
        found = solve(scores, single_root)
        assert abs(float((found[0] - value) / value)) < 1e-12
        np.testing.assert_allclose(found[1], marginals, atol=1e-14 * max(scale, n))


def test_the_only_possible_root_may_be_any_word():
    # Nothing but the root can enter word r: with a single root every tree hangs from r, in whatever order we eliminate.
    random = np.random.default_rng(0)
    for scale in (1.0, 1000.0):
        for r in range(1, 6):
            scores = random_scores(random, 5, scale)
            scores[1:, r] = -np.inf
            _, matrices, values, probabilities = distribution(scores, False, True)
            value, marginals = solve(scores, True)
            np.testing.assert_allclose(value, log_sum_exp(values), rtol=1e-13)
            np.testing.assert_allclose(marginals, np.einsum("t,thm->hm", probabilities, matrices), atol=1e-12)
            assert marginals[0, r] == pytest.approx(1.0)


@ROOTS
def test_a_single_feasible_tree_has_all_the_mass(single_root):
    heads = np.array([0, 3, 1, 0, 2, 4]) if not single_root else np.array([0, 3, 1, 0, 3, 4])
    for scale in (1.0, 1e4):
        scores = np.full((6, 6), -np.inf)
        scores[heads[1:], np.arange(1, 6)] = scale * np.array([1.0, -2.0, 0.5, 3.0, -1.0])
        value, marginals = solve(scores, single_root)
        np.testing.assert_allclose(value, 1.5 * scale)
        expected = np.zeros((6, 6))
        expected[heads[1:], np.arange(1, 6)] = 1.0
        np.testing.assert_allclose(marginals, expected, atol=1e-15)


@ROOTS
def test_equal_scores_give_the_number_of_trees(single_root):
    for n in (1, 7, 40, 200):
        value, marginals = solve(np.full((n + 1, n + 1), 3.0), single_root)
        count = (n - 1) * np.log(n) if single_root else (n - 1) * np.log(n + 1)
        np.testing.assert_allclose(value, 3 * n + count, rtol=1e-13)
        np.testing.assert_allclose(marginals.sum(0)[1:], 1.0, rtol=1e-12)
        np.testing.assert_allclose(marginals[0, 1:], marginals[0, 1], rtol=1e-10)


def differentiate(scores, single_root, g):
    """The Hessian times g, by sweeps and from what the forward pass left; None if there is no tree."""
    shape, lengths = (1, *scores.shape), np.array([len(scores) - 1])
    out, at, marginals = (np.full(shape, np.nan) for _ in range(3))
    weights, slopes, value = np.full(shape, np.nan), np.full(shape, np.nan), np.empty(1)
    bad = matrix_tree.hessian_product(scores[None], lengths, single_root, g[None], out, 0, 1)
    assert matrix_tree.linearize(scores[None], lengths, single_root, value, marginals, weights, slopes, 0, 1) == bad
    if bad == 0:
        return None
    arguments = (scores[None], lengths, single_root, weights, slopes, g[None], at)
    assert matrix_tree.hessian_product_at(*arguments, 0, 1) == -1
    np.testing.assert_allclose(at, out, atol=1e-11)
    return out[0]


@ROOTS
@SCALES
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_hessian_is_the_covariance_of_the_arcs(n, single_root, scale):
    random = np.random.default_rng(n)
    for density in (1.0, 1.0, 0.5, 0.5, 0.35, 0.35):
        scores = random_scores(random, n, scale, density)
        g = random_scores(random, n, 1.0)
        _, matrices, values, probabilities = distribution(scores, False, single_root)
        found = differentiate(scores, single_root, g)
        if values.max() == -np.inf:
            assert found is None
            continue
        along = np.where(matrices > 0, g, 0.0).sum((1, 2))
        centered = probabilities * (along - probabilities @ along)
        np.testing.assert_allclose(found, np.einsum("t,thm->hm", centered, matrices), atol=1e-13 * max(scale, 10))


@ROOTS
@pytest.mark.parametrize("scale", [1.0, 10.0, 300.0])
def test_the_hessian_is_the_slope_of_the_marginals_in_long_sentences(single_root, scale):
    random = np.random.default_rng(0)
    scores, g = random_scores(random, 30, scale), random_scores(random, 30, 1.0)
    ahead, behind = (solve(scores + step * np.nan_to_num(g), single_root)[1] for step in (1e-5, -1e-5))
    np.testing.assert_allclose(differentiate(scores, single_root, g), (ahead - behind) / 2e-5, atol=3e-8)


ALL_SCALES = pytest.mark.parametrize("scale", [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def batch_of_scores(n, count, scale, dtype):
    """Normal scores, half of them with many ties; a short fraction each, so that sums over trees are exact."""
    scores = np.random.default_rng(n).standard_normal((count, n + 1, n + 1)) * scale
    scores[::2] = np.round(scores[::2] / scale * 3) * scale / 3
    return (np.round(scores * 2**10) / 2**10).astype(dtype)


def run_batch(scores, single_root, g):
    """Log-partition alone, with marginals, and two Hessian products along g, of a batch of sentences of full length."""
    lengths = np.full(len(scores), scores.shape[1] - 1)
    alone, value = np.empty((2, len(scores)), scores.dtype)
    marginals, swept, at = np.empty((3, *scores.shape), scores.dtype)
    weights, slopes = np.empty((2, *scores.shape))
    common, span = (scores, lengths, single_root), (0, len(scores))
    assert matrix_tree.log_partition(*common, alone, *span) == -1
    assert matrix_tree.linearize(*common, value, marginals, weights, slopes, *span) == -1
    assert matrix_tree.hessian_product(*common, g, swept, *span) == -1
    assert matrix_tree.hessian_product_at(*common, weights, slopes, g, at, *span) == -1
    return alone, value, marginals, swept, at


@ROOTS
@DTYPES
@ALL_SCALES
@pytest.mark.parametrize(("n", "count"), [(1, 10), (2, 1000), (3, 8000), (4, 4000), (5, 400), (6, 40)])
def test_log_partitions_of_thousands_of_instances_are_those_of_enumeration(n, count, single_root, scale, dtype):
    scores = batch_of_scores(n, count, scale, dtype)
    matrices, values, probabilities = distributions(scores, single_root)
    best = values.max(1)
    exact = best + np.log(np.exp(values - best[:, None]).sum(1))
    alone, value, marginals, _, _ = run_batch(scores, single_root, scores)
    epsilon = 1e-14 if dtype == np.float64 else 1e-7
    error = epsilon * (n * np.abs(scores).max((1, 2)) + 10.0)
    for found in (alone, value):
        assert (np.abs(found - exact) <= error).all()
        assert (found >= best - error).all()
        assert (found <= best + np.log(len(matrices)) + error).all()
    expected = (probabilities @ matrices).reshape(scores.shape)
    np.testing.assert_allclose(marginals, expected, atol=epsilon * 10 * max(scale, 10))


@ROOTS
@DTYPES
@ALL_SCALES
@pytest.mark.parametrize(("n", "count"), [(1, 10), (2, 300), (3, 300), (4, 150), (5, 40), (6, 2)])
def test_no_marginal_moves_faster_than_a_quarter_of_a_score(n, count, single_root, scale, dtype):
    scores = batch_of_scores(n, count, scale, dtype)
    matrices, _, probabilities = distributions(scores, single_root)
    arcs = np.flatnonzero(matrices.any(0))
    directions = np.eye((n + 1) ** 2, dtype=dtype)[arcs].reshape(-1, n + 1, n + 1)
    repeated, g = np.repeat(scores, len(arcs), 0), np.tile(directions, (count, 1, 1))
    _, _, _, swept, at = run_batch(repeated, single_root, g)
    chosen, expected = np.ascontiguousarray(matrices.T[arcs]), probabilities @ matrices
    together = np.stack([(chosen * p) @ matrices for p in probabilities])
    covariances = (together - expected[:, arcs, None] * expected[:, None]).reshape(repeated.shape)
    for found in (swept, at):
        assert np.abs(found).max() <= 0.25 + 1e-9
        np.testing.assert_allclose(found, covariances, atol=1e-12 * max(scale, 10) if dtype == np.float64 else 1e-7)
    np.testing.assert_allclose(at, swept, atol=1e-11 if dtype == np.float64 else 1e-7)


def test_slopes_that_are_errors_of_rounding_are_not_multiplied():
    # Word 3 is sure to be the root word: its pivot leaves the root out and is tiny, and divides a difference of zero.
    scores = [[0, 65, -234, 261, -86, 44], [0, 0, 108, -112, -141, -88], [0, -6, 0, -144, 21, -37]]
    scores += [[0, -14, 84, 0, 123, 8], [0, 68, -124, 142, 0, 58], [0, -24, 209, 9, 9, 0]]
    g = np.zeros((6, 6))
    g[4, 3] = 1.0
    assert np.abs(differentiate(np.array(scores, float), True, g)).max() < 1e-15


@pytest.mark.parametrize(
    "scores",
    [
        [[0, 294, 240, 371], [0, 0, 126, -260], [0, 18, 0, -331], [0, 264, 104, 0]],
        [[0, -457, 603, 881], [0, 0, 174, 530], [0, 193, 0, 565], [0, -351, -155, 0]],
        [
            [0, 16, 350, 473, 400],
            [0, 0, 61, 356, -27],
            [0, -50, 0, 296, 13],
            [0, 56, 110, 0, -695],
            [0, 490, 33, 26, 0],
        ],
    ],
)
def test_a_product_of_pivots_that_leaves_the_range_is_not_lifted_back(scores):
    scores = np.array(scores, float)
    value, marginals = reference.partition(scores, True, 3000)
    found = solve(scores, True)
    assert abs(float((found[0] - value) / value)) < 1e-15
    np.testing.assert_allclose(found[1], marginals, atol=1e-12)


@ROOTS
@DTYPES
def test_a_padded_batch_agrees_with_its_sentences_alone_bit_for_bit(single_root, dtype):
    random = np.random.default_rng(0)
    lengths = np.array([3, 0, 7, 1, 4, 7, 2, 6, 5, 4, 3, 6])
    scales = np.array([1, 1, 20, 1, 3, 500, 300, 1, 1, 1, 1, 1])
    scores = (random.standard_normal((12, 8, 8)) * scales[:, None, None]).astype(dtype)
    g = random.standard_normal(scores.shape).astype(dtype)
    scores[4, 1:5, 3] = -np.inf  # word 3 is the only possible root
    for b, n in enumerate(lengths):
        scores[b, n + 1 :], scores[b, :, n + 1 :] = np.nan, np.nan
        g[b, n + 1 :], g[b, :, n + 1 :] = np.nan, np.nan

    def run(scores, g, lengths, lo, hi):
        value, alone = np.full(len(scores), 99, dtype), np.full(len(scores), 99, dtype)
        marginals, product, product_at = (np.full_like(scores, 99) for _ in range(3))
        weights, slopes = np.full(scores.shape, np.nan), np.full(scores.shape, np.nan)
        before = scores.copy()
        common = (scores, lengths, single_root)
        assert matrix_tree.log_partition(*common, alone, lo, hi) == -1
        assert matrix_tree.partition(*common, value, marginals, lo, hi) == -1
        assert matrix_tree.linearize(*common, value, marginals, weights, slopes, lo, hi) == -1
        assert matrix_tree.hessian_product(*common, g, product, lo, hi) == -1
        assert matrix_tree.hessian_product_at(*common, weights, slopes, g, product_at, lo, hi) == -1
        np.testing.assert_array_equal(scores, before)
        return value, alone, marginals, product, product_at

    together = run(scores, g, lengths, 1, 12)
    assert together[0][1] == 0 and together[1][1] == 0
    for output in together:
        assert (output[0] == 99).all()  # only the range asked for
    for b in range(1, 12):
        size = lengths[b] + 1
        alone = run(scores[b : b + 1, :size, :size].copy(), g[b : b + 1, :size, :size].copy(), lengths[b : b + 1], 0, 1)
        for whole, part in zip(together, alone):
            assert whole.dtype == dtype
            np.testing.assert_array_equal(whole[b][:size, :size] if whole.ndim == 3 else whole[b], part[0])
        for output in together[2:]:
            assert not output[b, size:].any() and not output[b, :, size:].any()
            assert not output[b, :, 0].any() and not np.diagonal(output[b]).any()
        assert (together[2][b] >= 0).all()


@ROOTS
def test_the_first_instance_that_cannot_be_solved_is_named(single_root):
    scores, lengths = np.zeros((7, 4, 4)), np.full(7, 3)
    value, marginals, out = np.empty(7), np.empty(scores.shape), np.empty(scores.shape)

    def failures():
        yield matrix_tree.log_partition(scores, lengths, single_root, value, 0, 7)
        yield matrix_tree.partition(scores, lengths, single_root, value, marginals, 0, 7)
        yield matrix_tree.hessian_product(scores, lengths, single_root, scores, out, 0, 7)

    assert set(failures()) == {-1}
    scores[6, :, 2] = -np.inf  # a word without heads
    assert set(failures()) == {6}
    scores[5] = np.array(
        [[0, -np.inf, 0, 0]] + [[0, 0, -np.inf, -np.inf]] * 3
    )  # word 1 is fine, but two roots are needed
    scores[5, 1:, 1] = 0.0
    assert set(failures()) == ({5} if single_root else {6})
    scores[4, 2, 1] = np.nan
    assert set(failures()) == {4}
    scores[3, 0, 1] = np.inf
    assert set(failures()) == {3}
    scores[2, 1:, 1:3] = [[-np.inf, 0.0], [0.0, -np.inf], [-np.inf, -np.inf]]  # two words that only know each other
    scores[2, 0, 1:3] = -np.inf
    assert set(failures()) == {2}


@ROOTS
def test_sentences_without_words_have_one_empty_tree(single_root):
    scores, lengths = np.full((5, 1, 1), np.nan), np.zeros(5, int)
    value, marginals, out = np.full(5, 99.0), np.full((5, 1, 1), 99.0), np.full((5, 1, 1), 99.0)
    weights, slopes = np.empty((5, 1, 1)), np.empty((5, 1, 1))
    assert matrix_tree.linearize(scores, lengths, single_root, value, marginals, weights, slopes, 0, 5) == -1
    assert not value.any() and not marginals.any()
    assert matrix_tree.hessian_product_at(scores, lengths, single_root, weights, slopes, scores, out, 0, 5) == -1
    assert not out.any()
    assert matrix_tree.hessian_product(scores, lengths, single_root, scores, marginals, 0, 5) == -1
    assert not marginals.any()

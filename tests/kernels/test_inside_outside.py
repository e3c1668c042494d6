"""Sums over projective trees, against enumeration and high-precision arithmetic."""

import numpy as np
import pytest
from scipy.stats import chisquare

from pullback.kernels.projective_trees import inside_outside
from reference import eisner as slow
from reference.trees import distribution, enumerate_trees

ROOTS = pytest.mark.parametrize("single_root", [False, True], ids=["any roots", "one root"])


def padded(scores, size):
    """Scores of one sentence in a larger matrix; everything that is not an arc is NaN."""
    n = len(scores) - 1
    out = np.full((size, size), np.nan)
    out[: n + 1, 1 : n + 1] = scores[:, 1:]
    np.fill_diagonal(out, np.nan)
    return out


def random_sentence(rng, n, scale=1.0, forbidden=0.0):
    """Random scores; the chain 0 → 1 → … → n is always allowed."""
    scores = scale * rng.normal(size=(n + 1, n + 1))
    chain = np.eye(n + 1, k=1, dtype=bool)
    scores[(rng.random(scores.shape) < forbidden) & ~chain] = -np.inf
    return scores


def run(sentences, single_root, directions=None, dtype=np.float64, lo=0, hi=None):
    """Values, marginals and Hessian products of sentences of several lengths in one padded batch."""
    size = max(map(len, sentences)) + 1
    scores = np.array([padded(s, size) for s in sentences]).astype(dtype)
    lengths = np.array([len(s) - 1 for s in sentences])
    value, alone = np.full((2, len(sentences)), 7.0, dtype)
    marginals, product = np.full((2, *scores.shape), 7.0, dtype)
    hi = len(sentences) if hi is None else hi
    before = scores.copy()
    assert inside_outside.log_partition(scores, lengths, single_root, alone, lo, hi) == -1
    assert inside_outside.partition(scores, lengths, single_root, value, marginals, lo, hi) == -1
    np.testing.assert_array_equal(alone, value)
    if directions is not None:
        g = np.array([padded(d, size) for d in directions]).astype(dtype)
        assert inside_outside.hessian_product(scores, lengths, single_root, g, product, lo, hi) == -1
    np.testing.assert_array_equal(scores, before)
    return value, marginals, product


@ROOTS
@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("scale", [0.0, 1.0, 10.0, 100.0, 1e4])
def test_values_marginals_and_hessian_products_are_those_of_enumeration(single_root, forbidden, scale):
    rng = np.random.default_rng(0)
    sentences = [random_sentence(rng, n, scale, forbidden) for n in (3, 0, 1, 5, 2, 4, 5)]
    directions = [rng.normal(size=s.shape) for s in sentences]
    value, marginals, product = run(sentences, single_root, directions)
    for b, (scores, g) in enumerate(zip(sentences, directions)):
        _, z, values, p = distribution(scores, True, single_root)
        top = values.max()
        expected = top + np.log(np.exp(values - top).sum())
        assert abs(value[b] - expected) <= 1e-12 * max(1.0, abs(expected))
        along = (z * g).sum((1, 2))
        for got, want in (
            (marginals[b], np.tensordot(p, z, 1)),
            (product[b], np.tensordot(p * (along - p @ along), z, 1)),
        ):
            n = len(scores)
            np.testing.assert_allclose(got[:n, :n], want, rtol=0, atol=1e-11)
            got[:n, :n] = 0.0
            assert (got == 0.0).all()  # padding


@ROOTS
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1000.0])
def test_the_log_partition_has_twelve_digits_at_every_scale(single_root, scale):
    rng = np.random.default_rng(1)
    for n in (8, 16):
        scores = random_sentence(rng, n, scale)
        value, _, _ = run([scores], single_root)
        want = slow.log_partition(scores, single_root)
        assert abs(float((value[0] - want) / want)) < 1e-12


@ROOTS
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_marginals_agree_with_high_precision_arithmetic(single_root, scale):
    rng = np.random.default_rng(2)
    n = 7
    scores = random_sentence(rng, n, scale)
    _, marginals, _ = run([scores], single_root)
    for head, modifier in [(0, 1), (0, 4), (0, 7), (1, 2), (7, 1), (5, 3), (3, 5), (6, 7)]:
        want = float(slow.marginal(scores, single_root, head, modifier))
        assert abs(marginals[0, head, modifier] - want) < 1e-12


@ROOTS
def test_both_domains_agree_where_both_are_exact(single_root):
    rng = np.random.default_rng(3)
    n = 30
    scores, g = rng.normal(size=(2, 1, n + 1, n + 1))
    value, marginals, product = run(scores, single_root, g)
    chart = np.empty((7, n + 2, n + 1))
    log_weight, weight = np.empty((2, n + 1, n + 1))
    taken = inside_outside._shift(scores[0], n, log_weight, weight)
    logs = np.zeros((n + 1, n + 1))
    total = taken + inside_outside.inside_log(log_weight, n, single_root, chart)
    inside_outside.outside_log(log_weight, n, single_root, chart, logs)
    assert total == pytest.approx(value[0], rel=1e-14)
    np.testing.assert_allclose(logs, marginals[0, : n + 1, : n + 1], rtol=0, atol=1e-13)
    dual, log_dual, duals = *np.empty((2, n + 1, n + 1), complex), np.empty(chart.shape, complex)
    slopes = np.zeros((n + 1, n + 1))
    inside_outside._along(log_weight, weight, g[0], n, log_dual, dual)
    inside_outside.inside_dual_log(log_dual, n, single_root, duals)
    inside_outside.outside_dual_log(log_dual, n, single_root, duals, slopes)
    np.testing.assert_allclose(slopes, product[0, : n + 1, : n + 1], rtol=0, atol=1e-12)


@ROOTS
@pytest.mark.parametrize(("n", "scale"), [(20, 1.0), (40, 5.0), (40, 100.0), (400, 0.1)])
def test_the_hessian_product_is_the_slope_of_the_marginals(single_root, n, scale):
    """Also for long sentences, in both domains; (400, 0.1) would overflow without logarithms."""
    rng = np.random.default_rng(4)
    scores, g = rng.normal(size=(2, 1, n + 1, n + 1))
    scores *= scale
    _, marginals, product = run(scores, single_root, g)
    np.testing.assert_allclose(marginals[0].sum(0)[1 : n + 1], 1.0, rtol=0, atol=1e-9)
    if single_root:
        assert marginals[0, 0].sum() == pytest.approx(1.0, abs=1e-9)
    step = 1e-4
    forward, backward = (run(scores + h * g, single_root)[1] for h in (step, -step))
    np.testing.assert_allclose(product, (forward - backward) / (2 * step), rtol=0, atol=3e-6 * np.abs(product).max())


@ROOTS
def test_float32_scores_give_float32_answers_from_float64_sums(single_root):
    rng = np.random.default_rng(5)
    sentences = [s.astype(np.float32).astype(float) for s in (random_sentence(rng, n, 10.0) for n in (4, 25))]
    directions = [rng.normal(size=s.shape).astype(np.float32).astype(float) for s in sentences]
    exact = run(sentences, single_root, directions)
    single = run(sentences, single_root, directions, dtype=np.float32)
    for got, want in zip(single, exact):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-6, atol=1e-7)


def test_only_the_given_range_is_written():
    rng = np.random.default_rng(6)
    sentences = [random_sentence(rng, 3) for _ in range(4)]
    parts = run(sentences, True, sentences, lo=1, hi=3)
    whole = run(sentences, True, sentences)
    for part, all_ in zip(parts, whole):
        assert (part[[0, 3]] == 7.0).all()
        np.testing.assert_array_equal(part[1:3], all_[1:3])


@ROOTS
def test_an_instance_without_trees_or_with_nan_scores_is_named(single_root):
    rng = np.random.default_rng(7)
    lengths = np.array([3, 3, 3])
    headless, cyclic, unclear, infinite = rng.normal(size=(4, 3, 4, 4))
    headless[1, :, 2] = -np.inf
    cyclic[1, 0] = -np.inf  # every word has a head, but nothing hangs from the root
    unclear[1, 2, 1] = np.nan
    infinite[1, 2, 1] = np.inf
    for scores in (headless, cyclic, unclear, infinite):
        value, out, heads = np.empty(3), np.empty_like(scores), np.empty((3, 1, 4), np.int64)
        g = np.ones_like(scores)
        assert inside_outside.log_partition(scores, lengths, single_root, value, 0, 3) == 1
        assert inside_outside.partition(scores, lengths, single_root, value, out, 0, 3) == 1
        assert inside_outside.hessian_product(scores, lengths, single_root, g, out, 0, 3) == 1
        assert inside_outside.sample(scores, lengths, single_root, lengths, heads, 0, 3) == 1
        assert inside_outside.log_partition(scores, lengths, single_root, value, 2, 3) == -1


@ROOTS
def test_one_allowed_tree_is_certain(single_root):
    scores = np.where(np.eye(6, k=1) > 0, -1e4, -np.inf)
    value, marginals, product = run([scores], single_root, [np.ones((6, 6))])
    assert value[0] == -5e4
    np.testing.assert_array_equal(marginals[0, :6, :6], np.eye(6, k=1))
    assert (product == 0.0).all()


def draw(scores, lengths, single_root, count, seed):
    seeds = seed + np.arange(len(scores))
    heads = np.full((len(scores), count, scores.shape[1]), 7)
    assert inside_outside.sample(scores, lengths, single_root, seeds, heads, 0, len(scores)) == -1
    return heads


@ROOTS
@pytest.mark.parametrize("steep", [False, True], ids=["linear", "logarithmic"])
def test_samples_have_the_probabilities_of_the_trees(single_root, steep):
    rng = np.random.default_rng(8)
    n, count = 4, 20000
    scores = rng.normal(size=(n + 1, n + 1))
    if steep:  # two words cannot be each other's head, so e⁻⁸⁰⁰ is lost on the way and logarithms are needed
        scores[2, 1] = scores[1, 2] = 800.0
    heads = draw(padded(scores, n + 2)[None], np.array([n]), single_root, count, seed=-3)[0]
    assert (heads[:, [0, n + 1]] == 0).all()
    trees, _, _, p = distribution(scores, True, single_root)
    found, times = np.unique(heads[:, 1 : n + 1], axis=0, return_counts=True)
    seen = dict(zip(map(tuple, found.tolist()), times))
    assert set(seen) <= set(trees)
    observed = np.array([seen.get(tree, 0) for tree in trees])
    common = p * count >= 5.0
    observed = np.append(observed[common], observed[~common].sum() + 1e-9)
    expected = np.append(p[common], p[~common].sum() + 1e-9 / count) * count
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_samples_are_decided_by_the_seed_of_their_instance():
    scores = np.random.default_rng(9).normal(size=(6, 6))
    many = draw(np.array([scores, scores]), np.array([5, 5]), False, 8, seed=1)
    again = draw(scores[None], np.array([5]), False, 8, seed=2)
    np.testing.assert_array_equal(many[1], again[0])
    assert (many[0] != many[1]).any()
    assert len(np.unique(many[0], axis=0)) > 1


def test_forbidden_arcs_are_never_sampled():
    rng = np.random.default_rng(10)
    scores = random_sentence(rng, 8, forbidden=0.6)
    heads = draw(scores[None], np.array([8]), False, 500, seed=0)[0]
    assert np.isfinite(scores[heads[:, 1:], np.arange(1, 9)]).all()


def test_all_scores_equal_count_the_trees():
    for single_root in (False, True):
        value, _, _ = run([np.zeros((n + 1, n + 1)) for n in range(1, 6)], single_root)
        counts = [len(enumerate_trees(n, True, single_root)) for n in range(1, 6)]
        np.testing.assert_allclose(np.exp(value), counts, rtol=1e-13)


def test_functions_of_one_text_are_compiled_under_different_names():
    """Otherwise Numba takes one for the other when some come from its cache and some do not."""
    made = [f for f in vars(inside_outside).values() if hasattr(f, "py_func") and f.py_func.__closure__]
    assert len(made) == 10
    assert len({f.py_func.__qualname__ for f in made}) == len(made)

"""The chart of binary trees, against enumeration and high-precision arithmetic."""

import itertools
from math import comb

import numpy as np
import pytest
from scipy.stats import chisquare

from pullback.kernels.constituency import cky, inside_outside, k_best, mixtures
from pullback.operators.constituency import SLOTS
from reference import constituency as slow

LABELS = pytest.mark.parametrize("t", [1, 2], ids=["no labels", "two labels"])


def padded(array, size):
    """Numbers of one sentence in a larger array; everything that is not a span is NaN."""
    n, _, t = array.shape
    out = np.full((size, size, t), np.nan)
    upper = np.triu_indices(n)
    out[upper] = array[upper]
    return out


def random_sentence(rng, n, t=1, scale=1.0, forbidden=0.0):
    """Random scores; the tree that takes one word after the other, with label 0, is always allowed."""
    scores = scale * rng.normal(size=(n, n, t))
    drop = rng.random(scores.shape) < forbidden
    drop[:1, :, 0] = False
    drop[np.arange(n), np.arange(n), 0] = False
    scores[drop] = -np.inf
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


def batch(rng, lengths, t, draw, forbidden=0.0):
    sentences = []
    for n in lengths:
        scores = draw(rng, (n, n, t))
        scores[random_sentence(rng, n, t, 1.0, forbidden) == -np.inf] = -np.inf
        sentences.append(scores)
    return np.array([padded(s, max(lengths) + 1) for s in sentences]), sentences


def run(sentences, directions=None, dtype=np.float64, lo=0, hi=None):
    """Values, marginals and Hessian products of sentences of several lengths in one padded batch."""
    size = max(map(len, sentences)) + 1
    scores = np.array([padded(s, size) for s in sentences]).astype(dtype)
    lengths = np.array([len(s) for s in sentences])
    value, alone = np.full((2, len(sentences)), 7.0, dtype)
    marginals, product = np.full((2, *scores.shape), 7.0, dtype)
    hi = len(sentences) if hi is None else hi
    before = scores.copy()
    assert inside_outside.log_partition(scores, lengths, alone, lo, hi) == -1
    assert inside_outside.partition(scores, lengths, value, marginals, lo, hi) == -1
    np.testing.assert_array_equal(alone, value)
    if directions is not None:
        g = np.array([padded(d, size) for d in directions]).astype(dtype)
        assert inside_outside.hessian_product(scores, lengths, g, product, lo, hi) == -1
    np.testing.assert_array_equal(scores, before)
    return value, marginals, product


# ---- sums


@LABELS
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 100.0, 1e4])
def test_values_marginals_and_hessian_products_are_those_of_enumeration(t, forbidden, scale):
    rng = np.random.default_rng(0)
    longest = 6 if t == 1 else 4
    sentences = [random_sentence(rng, n, t, scale, forbidden) for n in (3, 0, 1, longest, 2, 4, longest)]
    directions = [rng.normal(size=s.shape) for s in sentences]
    value, marginals, product = run(sentences, directions)
    for b, (scores, g) in enumerate(zip(sentences, directions)):
        z, values, p = slow.distribution(scores)
        top = values.max()
        expected = top + np.log(np.exp(values - top).sum())
        assert abs(value[b] - expected) <= 1e-12 * max(1.0, scale, abs(expected))
        along = (z * g).sum((1, 2, 3))
        n = len(scores)
        for got, want in (
            (marginals[b], np.tensordot(p, z, 1)),
            (product[b], np.tensordot(p * (along - p @ along), z, 1)),
        ):
            np.testing.assert_allclose(got[:n, :n], want, rtol=0, atol=1e-11)
            got[np.triu_indices(n)] = 0.0
            assert (got == 0.0).all()  # padding, and below the diagonal


@LABELS
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1000.0])
def test_the_log_partition_has_twelve_digits_at_every_scale(t, scale):
    rng = np.random.default_rng(1)
    for n in (8, 16):
        scores = random_sentence(rng, n, t, scale)
        value, _, _ = run([scores])
        want = slow.log_partition(scores)
        assert abs(float((value[0] - want) / want)) < 1e-12


@LABELS
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_marginals_agree_with_high_precision_arithmetic(t, scale):
    rng = np.random.default_rng(2)
    scores = random_sentence(rng, 8, t, scale)
    _, marginals, _ = run([scores])
    for i, j in [(0, 0), (0, 1), (0, 6), (0, 7), (1, 2), (2, 5), (3, 7), (6, 7)]:
        want = float(slow.marginal(scores, i, j, t - 1))
        assert abs(marginals[0, i, j, t - 1] - want) < 1e-12


def test_both_domains_agree_where_both_are_exact():
    rng = np.random.default_rng(3)
    n = 30
    scores, g = rng.normal(size=(2, n, n))
    value, marginals, product = run([scores[..., None]], [g[..., None]])
    between = inside_outside._largest_between(scores, n)
    taken = inside_outside._in_every_tree(scores, n, between)
    log_weight, logs, outer, tree = np.empty((n, n)), np.zeros((n, n)), np.empty((n, n)), np.empty((n + 1, n))
    inside_outside._log_weights(scores, n, between, log_weight)
    total = taken + inside_outside.inside_log(log_weight, n, tree)
    inside_outside.outside_log(log_weight, n, tree, outer, logs)
    assert total == pytest.approx(value[0], rel=1e-14)
    np.testing.assert_allclose(logs, marginals[0, :n, :n, 0], rtol=0, atol=1e-13)
    dual, moving, outer = np.zeros((3, n, n), complex)
    tree = np.empty((n + 1, n), complex)
    inside_outside._along_log(log_weight, g, n, dual)
    inside_outside.inside_dual_log(dual, n, tree)
    inside_outside.outside_dual_log(dual, n, tree, outer, moving)
    np.testing.assert_allclose(moving.real, marginals[0, :n, :n, 0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(moving.imag, product[0, :n, :n, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "t", "scale"), [(20, 3, 1.0), (40, 1, 5.0), (40, 2, 100.0), (520, 1, 0.1)])
def test_the_hessian_product_is_the_slope_of_the_marginals(n, t, scale):
    """Also for long sentences, in both domains; (520, 0.1) would overflow without logarithms."""
    rng = np.random.default_rng(4)
    scores, g = rng.normal(size=(2, n, n, t))
    scores *= scale
    _, marginals, product = run([scores], [g])
    assert marginals.sum() == pytest.approx(2 * n - 1, rel=1e-9)
    np.testing.assert_allclose(marginals[0, range(n), range(n)].sum(-1), 1.0, rtol=0, atol=1e-12)
    step = 1e-4
    forward, backward = (run([scores + h * g])[1] for h in (step, -step))
    np.testing.assert_allclose(product, (forward - backward) / (2 * step), rtol=0, atol=3e-6 * np.abs(product).max())


@LABELS
def test_float32_scores_give_float32_answers_from_float64_sums(t):
    rng = np.random.default_rng(5)
    sentences = [random_sentence(rng, n, t, 10.0).astype(np.float32).astype(float) for n in (4, 25)]
    directions = [rng.normal(size=s.shape).astype(np.float32).astype(float) for s in sentences]
    exact = run(sentences, directions)
    single = run(sentences, directions, dtype=np.float32)
    for got, want in zip(single, exact):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-6, atol=1e-7)


def test_only_the_given_range_is_written():
    rng = np.random.default_rng(6)
    sentences = [random_sentence(rng, 3) for _ in range(4)]
    parts = run(sentences, sentences, lo=1, hi=3)
    whole = run(sentences, sentences)
    for part, all_ in zip(parts, whole):
        assert (part[[0, 3]] == 7.0).all()
        np.testing.assert_array_equal(part[1:3], all_[1:3])


@LABELS
def test_sentences_computed_together_do_not_touch_each_other(t):
    """Of any lengths, in any order; every third one needs logarithms."""
    rng = np.random.default_rng(11)
    lengths = [17, 3, 0, 25, 9, 1, 2, 12, 30, 5, 30, 17, 8, 0, 21, 30, 4, 6, 14]
    sentences = [random_sentence(rng, n, t, 1000.0 if b % 3 == 2 else 1.0, 0.2) for b, n in enumerate(lengths)]
    value, marginals, _ = run(sentences)
    for b, scores in enumerate(sentences):
        n = len(scores)
        alone = run([scores])
        assert value[b] == alone[0][0]
        np.testing.assert_array_equal(marginals[b, :n, :n], alone[1][0, :n, :n])
        part = run(sentences, lo=max(b - 2, 0), hi=b + 1)
        assert value[b] == part[0][b]
        np.testing.assert_array_equal(marginals[b], part[1][b])


def test_the_first_instance_without_an_answer_is_named_whatever_the_lengths():
    lengths = np.array([5, 4, 3, 2, 5, 4])
    for failing in ([1, 3], [3, 4], [5, 0], [2]):
        scores = np.random.default_rng(12).normal(size=(6, 5, 5, 1))
        scores[failing, 0, 0] = np.nan
        value, marginals = np.empty(6), np.empty_like(scores)
        assert inside_outside.log_partition(scores, lengths, value, 0, 6) == min(failing)
        assert inside_outside.partition(scores, lengths, value, marginals, 0, 6) == min(failing)


@LABELS
def test_an_instance_without_trees_or_with_nan_scores_is_named(t):
    lengths, seeds = np.array([4, 4, 4]), np.array([1, 2, 3])
    wordless, endless, unsplit, unclear, infinite = np.random.default_rng(7).normal(size=(5, 3, 4, 4, t))
    wordless[1, 2, 2] = -np.inf
    endless[1, 0, 3] = -np.inf
    unsplit[1, [0, 0, 1, 1], [1, 2, 2, 3]] = -np.inf
    unclear[1, 1, 2, t - 1] = np.nan
    infinite[1, 1, 2, t - 1] = np.inf
    for scores in (wordless, endless, unsplit, unclear, infinite):
        value, out, several = np.empty(3), np.empty_like(scores), np.empty((3, 2, 4, 4, t))
        calls = [
            (cky.argmax, out),
            (inside_outside.log_partition, value),
            (inside_outside.partition, value, out),
            (inside_outside.hessian_product, np.ones_like(scores), out),
            (inside_outside.sample, seeds, 2, several),
            (k_best.topk, 2, several, np.empty(3, np.int64)),
        ]
        for kernel, *arguments in calls:
            assert kernel(scores, lengths, *arguments, 0, 3) == 1
            assert kernel(scores, lengths, *arguments, 2, 3) == -1


def test_one_allowed_tree_is_certain():
    (tree,) = slow.bracketings(0, 4)[3:4]
    scores = np.full((5, 5, 1), -np.inf)
    for i, j in tree:
        scores[i, j] = -1e4
    value, marginals, product = run([scores], [np.ones((5, 5, 1))])
    assert value[0] == -9e4
    np.testing.assert_array_equal(marginals[0, :5, :5], np.isfinite(scores))
    assert (product == 0.0).all()


def test_all_scores_equal_count_the_trees():
    value, _, _ = run([np.zeros((n, n, 1)) for n in range(1, 13)])
    np.testing.assert_allclose(np.exp(value), [comb(2 * n - 2, n - 1) // n for n in range(1, 13)], rtol=1e-13)
    value, _, _ = run([np.zeros((n, n, 3)) for n in range(1, 8)])
    counts = [comb(2 * n - 2, n - 1) // n * 3 ** (2 * n - 1) for n in range(1, 8)]
    np.testing.assert_allclose(np.exp(value), counts, rtol=1e-13)


# ---- samples


def draw(scores, lengths, count, seed):
    seeds = seed + np.arange(len(scores))
    vertices = np.full((len(scores), count, *scores.shape[1:]), 7.0)
    assert inside_outside.sample(scores, lengths, seeds, count, vertices, 0, len(scores)) == -1
    return vertices


@LABELS
@pytest.mark.parametrize("steep", [False, True], ids=["linear", "logarithmic"])
def test_samples_have_the_probabilities_of_the_trees(t, steep):
    rng = np.random.default_rng(8)
    n, count = 5 if t == 1 else 3, 20000
    if steep:
        n = 5
    scores = rng.normal(size=(n, n, t))
    if steep:  # two spans that cross cannot be in one tree, so e⁻⁸⁰⁰ is lost on the way and logarithms are needed
        scores[0, 1, 0] = scores[1, 2, 0] = 800.0
    vertices = draw(padded(scores, n + 1)[None], np.array([n]), count, seed=-3)[0]
    assert (vertices[:, n] == 0).all() and (vertices[:, :, n] == 0).all()
    trees, _, p = slow.distribution(scores)
    found, times = np.unique(vertices[:, :n, :n].reshape(count, -1), axis=0, return_counts=True)
    seen = dict(zip(map(tuple, found.tolist()), times))
    every = [tuple(tree.ravel().tolist()) for tree in trees]
    assert set(seen) <= set(every)
    observed = np.array([seen.get(tree, 0) for tree in every])
    common = p * count >= 5.0
    observed = np.append(observed[common], observed[~common].sum() + 1e-9)
    expected = np.append(p[common], p[~common].sum() + 1e-9 / count) * count
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_samples_are_decided_by_the_seed_of_their_instance():
    scores = np.random.default_rng(9).normal(size=(6, 6, 2))
    many = draw(np.array([scores, scores]), np.array([6, 6]), 8, seed=1)
    again = draw(scores[None], np.array([6]), 8, seed=2)
    np.testing.assert_array_equal(many[1], again[0])
    assert (many[0] != many[1]).any()
    assert len(np.unique(many[0], axis=0)) > 1


def test_forbidden_spans_and_labels_are_never_sampled():
    scores = random_sentence(np.random.default_rng(10), 8, t=3, forbidden=0.6)
    vertices = draw(scores[None], np.array([8]), 500, seed=0)[0]
    assert np.isfinite(scores[vertices.any(0)]).all()


# ---- the best trees


@LABELS
@KINDS
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_argmax_is_a_tree_with_the_best_score(t, draw, forbidden, dtype):
    lengths = np.array([4, 0, 1, 3, 2] + [6] * (t == 1))
    scores, _ = batch(np.random.default_rng(0), lengths, t, draw, forbidden)
    scores = scores.astype(dtype)
    vertex = np.full(scores.shape, 7.0, dtype)
    assert cky.argmax(scores, lengths, vertex, 0, len(lengths)) == -1
    for b, n in enumerate(lengths):
        trees, values, _ = slow.distribution(scores[b, :n, :n].astype(float))
        place = np.flatnonzero((trees == vertex[b, :n, :n]).all((1, 2, 3)))
        assert len(place) == 1 and values[place[0]] == pytest.approx(values.max(), rel=1e-14)
        assert vertex[b].sum() == max(2 * n - 1, 0)


@LABELS
@KINDS
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize("k", [1, 2, 7, 400])
def test_topk_are_the_best_distinct_trees_in_order(t, draw, forbidden, k):
    lengths = np.array([4, 0, 1, 3, 2] + [6] * (t == 1))
    scores, sentences = batch(np.random.default_rng(3), lengths, t, draw, forbidden)
    vertices, size = np.full((len(lengths), k, *scores.shape[1:]), 7.0), np.full(len(lengths), 7)
    assert k_best.topk(scores, lengths, k, vertices, size, 0, len(lengths)) == -1
    for b, (n, sentence) in enumerate(zip(lengths, sentences)):
        trees, values, _ = slow.distribution(sentence)
        finite = np.sort(values[np.isfinite(values)])[::-1]
        assert size[b] == min(k, len(finite))
        every = {tuple(tree.ravel().tolist()): value for tree, value in zip(trees, values)}
        found = [tuple(tree.ravel().tolist()) for tree in vertices[b, : size[b], :n, :n]]
        assert len(set(found)) == size[b]
        np.testing.assert_allclose([every[z] for z in found], finite[: size[b]], rtol=1e-13, atol=1e-13)
        assert (vertices[b, size[b] :] == 0).all()
        assert (vertices[b].sum((1, 2, 3))[: size[b]] == max(2 * n - 1, 0)).all()


def test_topk_of_long_sentences_begins_with_the_argmax_and_goes_down():
    scores, lengths = np.random.default_rng(4).normal(size=(2, 30, 30, 2)), np.array([30, 17])
    best, few, many = np.empty_like(scores), np.empty((2, 20, 30, 30, 2)), np.empty((2, 40, 30, 30, 2))
    size = np.empty(2, np.int64)
    assert cky.argmax(scores, lengths, best, 0, 2) == -1
    assert k_best.topk(scores, lengths, 20, few, size, 0, 2) == -1
    assert k_best.topk(scores, lengths, 40, many, size, 0, 2) == -1
    np.testing.assert_array_equal(few[:, 0], best)
    np.testing.assert_array_equal(many[:, :20], few)
    values = (many * scores[:, None]).sum((2, 3, 4))
    assert (np.diff(values) <= 1e-12).all() and (size == 40).all()


# ---- mixtures


@pytest.mark.parametrize("n", range(1, 9))
def test_spans_that_share_a_slot_cross(n):
    """So a tree has at most one part in each slot, and no part in two."""
    *_, first = mixtures._workspace(np.empty((1, n, n, 1)), ())
    slots = {(i, j): first[j - i + 1] + i // (j - i + 1) for i in range(n) for j in range(i, n)}
    assert set(slots.values()) == set(range(first[n + 1]))
    for (a, b), (c, d) in itertools.combinations(sorted(slots), 2):
        assert slots[a, b] != slots[c, d] or a < c <= b < d


def test_there_is_room_for_all_slots():
    for n in range(1, 2200):
        assert eval(SLOTS) >= sum(n // width for width in range(1, n + 1))


def test_functions_of_one_text_are_compiled_under_different_names():
    """Otherwise Numba takes one for the other when some come from its cache and some do not."""
    made = [f for f in vars(inside_outside).values() if hasattr(f, "py_func") and f.py_func.__closure__]
    assert len(made) == 9
    assert len({f.py_func.__qualname__ for f in made}) == len(made)

"""Best subset, nearest point, sums and samples, against the list of all subsets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

from pullback.kernels.subset import argmax, hessian_product, partition, project, project_backward, sample, sample_bits
from reference import subset as reference

SCALES = (1e-3, 1.0, 30.0, 1e4)


def every_instance(n, seed=0):
    """All counts low ≤ high for n items, with generic, tied, equal and partly forbidden scores at several scales."""
    rng = np.random.default_rng(seed)
    rows = []
    for low in range(n + 1):
        for high in range(low, n + 2):
            for scale in SCALES:
                generic = rng.normal(size=n) * scale
                tied = np.round(rng.normal(size=n)) * scale
                equal = np.full(n, rng.normal() * scale)
                forbidden = np.where(np.arange(n) < min(low, n), generic, -np.inf)  # the least that is feasible
                some = np.where(rng.random(n) < 0.3, -np.inf, generic)
                for scores in (generic, tied, equal, rng.permutation(forbidden), some):
                    if (scores > -np.inf).sum() >= low:
                        rows.append((scores, low, high))
    scores, low, high = zip(*rows)
    # Multiples of 2⁻²⁰ make sums exact, so that the reference is right at every scale.
    return np.round(np.array(scores) * 2**20) / 2**20, np.array(low), np.array(high)


def filled(*shape, dtype=np.float64):
    return np.full(shape, np.nan, dtype)


def gap(scores, low, high, point):
    """⟨s − μ, best − μ⟩: zero if and only if the point is nearest, never negative otherwise."""
    gain = scores - point
    best = filled(*scores.shape)
    assert argmax(gain, low, high, best, 0, len(scores)) == -1
    return (np.where(gain > -np.inf, gain, 0.0) * (best - point)).sum(1)


@pytest.mark.parametrize("n", range(1, 8))
def test_argmax_attains_the_best_score(n):
    scores, low, high = every_instance(n)
    best = filled(*scores.shape)
    assert argmax(scores, low, high, best, 0, len(scores)) == -1
    for b in range(len(scores)):
        every, totals = reference.allowed(scores[b], low[b], high[b])
        (found,) = np.flatnonzero((every == best[b]).all(1))
        assert totals[found] == totals.max()


def test_argmax_takes_further_items_only_for_a_positive_score():
    scores = np.array([[0.0, 3.0, -1.0, 2.0, -np.inf]] * 4)
    best = filled(4, 5)
    argmax(scores, np.array([0, 3, 4, 1]), np.array([5, 3, 9, 1]), best, 0, 4)
    assert_array_equal(best, [[0, 1, 0, 1, 0], [1, 1, 0, 1, 0], [1, 1, 1, 1, 0], [0, 1, 0, 0, 0]])


def test_argmax_of_equal_items_takes_the_first():
    best = filled(1, 6)
    argmax(np.ones((1, 6)), np.array([0]), np.array([4]), best, 0, 1)
    assert_array_equal(best, [[1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize("kind", ["random", "sorted", "reversed", "organ pipe", "few values"])
def test_argmax_selects_what_sorting_selects(kind):
    rng = np.random.default_rng(1)
    n = 500
    row = np.sort(rng.normal(size=n))
    row = {
        "random": rng.permutation(row),
        "sorted": row,
        "reversed": row[::-1],
        "organ pipe": np.r_[row[::2], row[1::2][::-1]],
        "few values": rng.integers(-2, 3, n).astype(float),
    }[kind]
    counts = np.arange(n + 1)
    scores = np.tile(row, (n + 1, 1))
    best = filled(n + 1, n)
    assert argmax(scores, counts, counts, best, 0, n + 1) == -1
    assert_array_equal(best.sum(1), counts)
    assert_allclose((best * scores).sum(1), np.r_[0, np.cumsum(np.sort(row)[::-1])], atol=1e-10)


@pytest.mark.parametrize("n", range(1, 8))
def test_projection_is_the_nearest_point(n):
    scores, low, high = every_instance(n)
    point = filled(*scores.shape)
    assert project(scores, low, high, point, 0, len(scores)) == -1
    for b in range(len(scores)):
        assert_allclose(point[b], reference.project(scores[b], low[b], high[b]), atol=1e-14)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_projection_of_many_items_is_feasible_and_optimal(scale, dtype):
    rng = np.random.default_rng(2)
    low, high = np.array([50, 0, 0, 980, 3, 500]), np.array([50, 50, 1000, 1000, 3, 520])
    scores = (rng.normal(size=(6, 1000)) * scale).astype(dtype)
    scores[:5, ::100] = -np.inf
    scores[5] = np.round(scores[5])
    point = filled(6, 1000, dtype=dtype)
    assert project(scores, low, high, point, 0, 6) == -1
    point = point.astype(np.float64)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    total = point.sum(1)
    assert point.min() >= 0 and point.max() <= 1
    assert (total >= low - tolerance * (low + 1)).all() and (total <= high + tolerance * (high + 1)).all()
    assert (gap(scores.astype(np.float64), low, high, point) <= tolerance * 1000 * max(1, scale)).all()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([-np.inf, -1e30, -1e4, -1.0, -0.5, 0.0, 1e-9, 0.25, 0.5, 1.0, 1e4, 1e17, 1e30]), max_size=9
    ),
    st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=9),
    st.data(),
)
def test_projection_survives_any_finite_scores(special, generic, data):
    scores = np.array([special + generic])
    feasible = int((scores > -np.inf).sum())
    low = data.draw(st.integers(0, feasible))
    high = data.draw(st.integers(low, scores.size + 1))
    point = filled(*scores.shape)
    assert project(scores, np.array([low]), np.array([high]), point, 0, 1) == -1
    assert_allclose(point[0], reference.project(scores[0], low, high), atol=1e-13)


def test_coordinates_at_their_bounds_are_exactly_there():
    scores = np.array([[1e4, 3.7, 0.9, 0.8, -2.0, -1e4]])
    point = filled(1, 6)
    project(scores, np.array([3]), np.array([3]), point, 0, 1)
    assert_array_equal(point[0, [0, 1]], 1.0)
    assert_array_equal(point[0, [4, 5]], 0.0)
    assert_allclose(point[0, [2, 3]], [0.55, 0.45], atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_backward_of_the_projection_is_its_derivative(dtype):
    rng = np.random.default_rng(3)
    n, step = 40, 1e-6
    low = np.array([5, 0, 0, 30, 12, 0])
    high = np.array([5, 40, 5, 40, 14, 39])
    scores = rng.normal(size=(6, n)).astype(dtype).astype(np.float64)
    g = rng.normal(size=(6, n)).astype(dtype)
    point, out = filled(6, n, dtype=dtype), filled(6, n, dtype=dtype)
    project(scores, low, high, point, 0, 6)
    assert project_backward(scores.astype(dtype), low, high, point, g, out, 0, 6) == -1
    after, before = filled(6, n), filled(6, n)
    project(scores + step * g, low, high, after, 0, 6)
    project(scores - step * g, low, high, before, 0, 6)
    assert_allclose(out, (after - before) / (2 * step), atol=1e-8 if dtype == np.float64 else 1e-6)
    assert abs(out[0].sum()) < 1e-5 < abs(out[1].sum())  # a count is met, is not met


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_backward_knows_a_met_count_from_a_slack_one_among_many_items(dtype):
    rng = np.random.default_rng(4)
    n = 20_000
    scores = (0.3 * rng.normal(size=(2, n))).astype(dtype)
    point, out = filled(2, n, dtype=dtype), filled(2, n, dtype=dtype)
    low, high = np.array([0, 0]), np.array([1000, n])
    project(scores, low, high, point, 0, 2)
    assert (point[0] * (1 - point[0]) > 0).sum() > 1000
    project_backward(scores, low, high, point, np.ones_like(point), out, 0, 2)
    assert_allclose(out[0], 0.0, atol=1e-6)
    assert_array_equal(out[1], (point[1] > 0) & (point[1] < 1))


@pytest.mark.parametrize("n", range(1, 8))
def test_log_partition_marginals_and_their_derivative_are_those_of_the_list(n):
    scores, low, high = every_instance(n)
    batch = len(scores)
    g = np.random.default_rng(5).normal(size=scores.shape)
    value, marginals, product = filled(batch), filled(batch, n), filled(batch, n)
    assert partition(scores, low, high, value, marginals, 0, batch) == -1
    assert hessian_product(scores, low, high, g, product, 0, batch) == -1
    for b in range(batch):
        expected, mean, covariance = reference.log_partition(scores[b], low[b], high[b])
        assert_allclose(value[b], expected, rtol=1e-14, atol=1e-14)
        assert_allclose(marginals[b], mean, rtol=1e-12, atol=1e-14)
        assert_allclose(product[b], covariance @ g[b], rtol=1e-12, atol=1e-14)
    assert marginals.max() <= 1.0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e3, 1e4])
@pytest.mark.parametrize(("low", "high"), [(7, 7), (0, 7), (33, 33), (20, 30), (35, 40), (0, 40)])
def test_marginals_are_accurate_to_twelve_digits(scale, low, high):
    scores = np.random.default_rng(6).normal(size=(1, 40)) * scale
    value, marginals = filled(1), filled(1, 40)
    partition(scores, np.array([low]), np.array([high]), value, marginals, 0, 1)
    expected, precise = reference.precise_marginals(scores[0], low, high)
    assert_allclose(value[0], expected, rtol=1e-14, atol=1e-13)
    ordinary = precise > 1e-100
    assert_allclose(marginals[0, ordinary], precise[ordinary], rtol=1e-12)
    assert (marginals[0, ~ordinary] <= 1e-99).all()


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e4, 1e30])
def test_equal_items_have_equal_marginals(offset):
    n, low, high = 1000, np.array([1, 50, 500, 999, 1000]), np.array([1, 50, 500, 999, 1000])
    value, marginals = filled(5), filled(5, n)
    assert partition(np.full((5, n), offset), low, high, value, marginals, 0, 5) == -1
    assert_allclose(marginals, np.broadcast_to(low[:, None] / n, (5, n)), rtol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_hessian_product_is_the_derivative_of_the_marginals_for_many_items(scale):
    rng = np.random.default_rng(7)
    low, high = np.array([15, 0, 180, 40]), np.array([15, 15, 200, 60])
    scores, g = rng.normal(size=(4, 200)) * scale, rng.normal(size=(4, 200))
    value, after, before, product = filled(4), filled(4, 200), filled(4, 200), filled(4, 200)
    assert hessian_product(scores, low, high, g, product, 0, 4) == -1
    partition(scores + 1e-5 * g, low, high, value, after, 0, 4)
    partition(scores - 1e-5 * g, low, high, value, before, 0, 4)
    assert_allclose(product, (after - before) / 2e-5, atol=1e-8)


def test_hessian_product_ignores_a_constant_where_the_size_is_fixed():
    scores = np.random.default_rng(8).normal(size=(1, 300))
    product = filled(1, 300)
    hessian_product(scores, np.array([30]), np.array([30]), np.full((1, 300), 5.0), product, 0, 1)
    assert_allclose(product, 0.0, atol=1e-12)


@pytest.mark.parametrize(("low", "high"), [(2, 2), (0, 2), (3, 4), (1, 5), (4, 4)])
def test_samples_have_the_frequencies_of_the_distribution(low, high):
    rng = np.random.default_rng(9)
    scores = rng.normal(size=(1, 6))
    scores[0, 2] = -np.inf
    draws = 20_000
    z = filled(1, draws, 6)
    assert sample(scores, np.array([low]), np.array([high]), rng.random((1, draws, 6)), z, 0, 1) == -1
    every, totals = reference.allowed(scores[0], low, high)
    p = np.exp(totals - reference.log_partition(scores[0], low, high)[0])
    seen = (z[0][:, None] == every[None]).all(2).sum(0)
    assert seen.sum() == draws
    assert chisquare(seen, p * draws).pvalue > 1e-3


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_sample_is_feasible_whatever_the_uniforms(n, uniform):
    scores, low, high = every_instance(n)
    z = filled(len(scores), 1, n)
    assert sample(scores, low, high, np.full(z.shape, uniform), z, 0, len(scores)) == -1
    size = z.sum((1, 2))
    assert set(np.unique(z)) <= {0.0, 1.0}
    assert ((low <= size) & (size <= high)).all()
    assert (z[:, 0][scores == -np.inf] == 0).all()


def test_many_items_are_sampled_with_their_marginals():
    rng = np.random.default_rng(10)
    scores, low, high = rng.normal(size=(2, 100)), np.array([20, 60]), np.array([20, 70])
    value, marginals, z = filled(2), filled(2, 100), filled(2, 5000, 100)
    partition(scores, low, high, value, marginals, 0, 2)
    sample(scores, low, high, rng.random(z.shape), z, 0, 2)
    error = (z.mean(1) - marginals) / np.sqrt(marginals * (1 - marginals) / 5000)
    assert np.abs(error).max() < 4.5


def test_bits_are_ones_with_their_chances_and_as_their_seeds_say():
    chances = np.array([[0.0, 0.1, 0.5, 0.9, 1.0], [1.0, 0.0, 0.3, 0.3, 0.3]])
    z, again = filled(2, 20_000, 5), filled(2, 20_000, 5)
    assert sample_bits(chances, np.array([3, 4]), 20_000, z, 0, 2) == -1
    assert set(np.unique(z)) <= {0.0, 1.0}
    assert (np.abs(z.mean(1) - chances) <= 4.5 * np.sqrt(chances * (1 - chances) / 20_000)).all()
    assert np.abs(np.corrcoef(z[1, :, 2:].T) - np.eye(3)).max() < 0.05
    sample_bits(chances, np.array([5, 4]), 20_000, again, 0, 2)
    assert (again[1] == z[1]).all() and (again[0] != z[0]).any()


def run_all(scores, low, high, lo, hi):
    """Every operation on instances lo … hi − 1: what each reports, and what it wrote."""
    batch, n = scores.shape
    point, best, marginals, product = (filled(batch, n, dtype=scores.dtype) for _ in range(4))
    value, z = filled(batch, dtype=scores.dtype), filled(batch, 2, n, dtype=scores.dtype)
    reports = {
        "argmax": argmax(scores, low, high, best, lo, hi),
        "project": project(scores, low, high, point, lo, hi),
        "log_partition": partition(scores, low, high, value, marginals, lo, hi),
        "hessian_product": hessian_product(scores, low, high, scores.clip(-1, 1), product, lo, hi),
        "sample": sample(scores, low, high, np.full(z.shape, 0.4), z, lo, hi),
    }
    return reports, {"best": best, "point": point, "value": value, "marginals": marginals, "product": product, "z": z}


@pytest.mark.parametrize(
    "bad",
    [[np.nan, 0.0, 0.0, 0.0], [np.inf, 0.0, 0.0, 0.0], [-np.inf, -np.inf, 1.0, 2.0], [-np.inf] * 4],
    ids=["nan", "infinite", "too few items", "no items"],
)
def test_the_first_instance_without_a_solution_is_reported(bad):
    scores = np.zeros((5, 4))
    scores[2], scores[4] = bad, bad
    low, high = np.full(5, 3), np.full(5, 3)
    assert set(run_all(scores, low, high, 0, 5)[0].values()) == {2}
    assert set(run_all(scores, low, high, 3, 5)[0].values()) == {4}
    assert set(run_all(scores, low, high, 0, 2)[0].values()) == {-1}


def test_no_items_and_no_count_give_the_empty_subset():
    reports, outputs = run_all(np.full((2, 3), -np.inf), np.zeros(2, np.int64), np.array([0, 3]), 0, 2)
    assert set(reports.values()) == {-1}
    for output in outputs.values():
        assert_array_equal(output, 0.0)


def test_only_the_instances_asked_for_are_written_and_no_input_is():
    rng = np.random.default_rng(11)
    scores, low, high = rng.normal(size=(5, 8)), np.array([2, 0, 3, 5, 1]), np.array([2, 3, 3, 8, 6])
    copies = scores.copy(), low.copy(), high.copy()
    _, whole = run_all(scores, low, high, 0, 5)
    _, part = run_all(scores, low, high, 1, 4)
    for name in whole:
        assert np.isfinite(whole[name]).all()
        assert_array_equal(part[name][1:4], whole[name][1:4])
        assert np.isnan(part[name][0]).all() and np.isnan(part[name][4]).all()
    for now, then in zip((scores, low, high), copies):
        assert_array_equal(now, then)


def test_single_precision_differs_by_rounding_only():
    rng = np.random.default_rng(12)
    scores, low, high = (
        rng.normal(size=(4, 300)).astype(np.float32),
        np.array([20, 0, 0, 250]),
        np.array([20, 20, 300, 260]),
    )
    _, single = run_all(scores, low, high, 0, 4)
    _, double = run_all(scores.astype(np.float64), low, high, 0, 4)
    for name in single:
        assert single[name].dtype == np.float32
        assert_allclose(single[name], double[name], rtol=2e-7, atol=1e-30)


LEAST = np.finfo(float).min


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([1.0, 0.5, 0.2, LEAST, 0.1], 2, [1, 17 / 30, 8 / 30, 0, 5 / 30]),
        ([1.0, 0.5, LEAST, LEAST, 0.1], 4, [1, 1, 0.5, 0.5, 1]),
        ([LEAST, LEAST, LEAST], 1, [1 / 3, 1 / 3, 1 / 3]),
        ([-LEAST, 0.5, LEAST, LEAST, 0.1], 3, [1, 1, 0, 0, 1]),
        ([-LEAST, -LEAST, -LEAST, LEAST], 2, [2 / 3, 2 / 3, 2 / 3, 0]),
    ],
)
def test_a_mask_of_the_least_finite_number_is_as_good_as_any(scores, k, expected):
    point = np.full((1, len(scores)), np.nan)
    assert project(np.array([scores]), np.array([k]), np.array([k]), point, 0, 1) == -1
    assert_allclose(point[0], expected, atol=1e-12)

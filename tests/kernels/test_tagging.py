"""Taggings: the best sequences, the sums over all of them and their derivatives, against trying all."""

import numpy as np
import pytest

from pullback.kernels import tagging
from pullback.kernels.tools import add_product, row_product
from pullback.kernels.tools import inner as inner_function
from reference import tagging as reference

SIZES = pytest.mark.parametrize(("n", "t"), [(1, 3), (2, 1), (5, 3), (4, 5), (7, 2)])
SCALES = pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])


def random_inputs(n, t, scale, batch=4, forbidden=0.0):
    rng = np.random.default_rng(n * 10 + t)
    scores, table = scale * rng.normal(size=(batch, n, t)), scale * rng.normal(size=(batch, t + 2, t))
    table[1] = table[0]  # neighbors may share a table
    for given in (scores, table):
        given[rng.random(given.shape) < forbidden] = -np.inf
    return scores, table


def run(kernel, scores, table, lengths, *shapes, more=()):
    """What a kernel writes, into arrays full of NaN."""
    outputs = [np.full((len(scores), *shape), np.nan, scores.dtype) for shape in shapes]
    report = kernel(scores, table, lengths, *more, *outputs, 0, len(scores))
    return report, *outputs


def partition(scores, table, lengths=None):
    n, t = scores.shape[1:]
    lengths = np.full(len(scores), n) if lengths is None else lengths
    report, value, marginals, uses = run(tagging.partition, scores, table, lengths, (), (n, t), (t + 2, t))
    same, alone = run(tagging.log_partition, scores, table, lengths, ())
    assert report == same
    if report == -1:
        np.testing.assert_allclose(alone, value, rtol=1e-13, atol=1e-13)
    return report, value, marginals, uses


@SIZES
@SCALES
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_best_sequence_is_the_one_that_trying_all_finds(n, t, scale, dtype):
    scores, table = (given.astype(dtype) for given in random_inputs(n, t, scale))
    report, best = run(tagging.argmax, scores, table, np.full(4, n), (n, t))
    assert report == -1
    for b in range(4):
        tags, _, value, _ = reference.distribution(scores[b], table[b], n)
        np.testing.assert_array_equal(best[b], tags[value.argmax()])


@SIZES
def test_the_k_best_come_in_order_and_are_all_there(n, t):
    scores, table = random_inputs(n, t, 1.0, forbidden=0.1)
    k = 4
    vertices, size = np.full((4, k, n, t), np.nan), np.empty(4, int)
    for b in range(4):
        tags, _, value, _ = reference.distribution(scores[b], table[b], n)
        order = np.argsort(-value)
        possible = int((value > -np.inf).sum())
        report = tagging.topk(scores, table, np.full(4, n), k, vertices, size, b, b + 1)
        assert report == (-1 if possible else b)
        if possible:
            assert size[b] == min(k, possible)
            np.testing.assert_array_equal(vertices[b, : size[b]], tags[order[: size[b]]])
            assert not vertices[b, size[b] :].any()


@SIZES
@SCALES
def test_values_and_marginals_are_those_of_many_digits(n, t, scale):
    scores, table = random_inputs(n, t, scale)
    report, value, marginals, uses = partition(scores, table)
    assert report == -1
    for b in range(4):
        assert value[b] == pytest.approx(reference.log_partition(scores[b], table[b]), rel=1e-13, abs=1e-13)
        expected = reference.marginals(scores[b], table[b])
        np.testing.assert_allclose(marginals[b], expected[0], rtol=0, atol=1e-13 * max(1.0, scale))
        np.testing.assert_allclose(uses[b], expected[1], rtol=0, atol=1e-13 * n * max(1.0, scale))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_count_for_marginals_and_for_the_sum_of_uses(dtype):
    rng = np.random.default_rng(0)
    weights, marginals, uses = (rng.normal(size=shape).astype(dtype) for shape in ((7,), (7, 4, 3), (7, 5, 3)))
    weighted, total = np.full_like(marginals, np.nan), np.full_like(uses[0], np.nan)
    assert tagging.weigh(weights, marginals, uses, weighted, total, 0, 7) == -1
    np.testing.assert_array_equal(weighted, weights[:, None, None] * marginals)
    expected = np.einsum("b,bij->ij", weights, uses, dtype=float)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(total, expected, rtol=2 * eps, atol=1e-15)  # sums of numbers of order 1 may cancel


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_forbidden_tags_and_transitions_are_avoided(scale):
    scores, table = random_inputs(5, 3, scale, batch=40, forbidden=0.25)
    solved = 0
    for b in range(40):
        tags, used, value, p = reference.distribution(scores[b], table[b], 5)
        report, found, marginals, uses = partition(scores[b : b + 1], table[b : b + 1])
        assert report == (-1 if value.max() > -np.inf else 0)
        if report == -1:
            solved += 1
            expected = value.max() + np.log(np.exp(value - value.max()).sum())
            assert found[0] == pytest.approx(expected, rel=1e-12)
            np.testing.assert_allclose(marginals[0], np.einsum("s,sij->ij", p, tags), rtol=0, atol=1e-12)
            np.testing.assert_allclose(uses[0], np.einsum("s,sij->ij", p, used), rtol=0, atol=1e-12)
            assert not marginals[0][scores[b] == -np.inf].any() and not uses[0][table[b] == -np.inf].any()
    assert 10 < solved < 40


@SIZES
@SCALES
def test_the_hessian_is_that_of_many_digits(n, t, scale):
    scores, table = random_inputs(n, t, scale)
    rng = np.random.default_rng(0)
    direction, along = rng.normal(size=scores.shape), rng.normal(size=table.shape)
    for moving in (along, np.zeros_like(along)):
        report, product, uses = run(
            tagging.hessian_product, scores, table, np.full(4, n), (n, t), (t + 2, t), more=(direction, moving)
        )
        assert report == -1
        for b in range(4):
            expected = reference.hessian_product(scores[b], table[b], direction[b], moving[b])
            np.testing.assert_allclose(product[b], expected[0], rtol=0, atol=1e-11 * n)
            np.testing.assert_allclose(uses[b], expected[1], rtol=0, atol=1e-11 * n * n)


@pytest.mark.parametrize(("n", "t"), [(60, 10), (200, 20)])
@pytest.mark.parametrize("scale", [1.0, 10.0, 1000.0])
def test_long_sequences_lie_between_the_best_score_and_that_plus_the_log_of_their_count(n, t, scale):
    scores, table = random_inputs(n, t, scale)
    _, best = run(tagging.argmax, scores, table, np.full(4, n), (n, t))
    report, value, marginals, uses = partition(scores, table)
    assert report == -1
    for b in range(4):
        sequence = best[b].argmax(1)
        top = (scores[b] * best[b]).sum() + (table[b] * reference.uses(sequence, t)).sum()
        slack = 1e-12 * abs(top)
        assert top - slack <= value[b] <= top + n * np.log(t) + slack
        np.testing.assert_allclose(marginals[b].sum(1), 1, rtol=0, atol=1e-11)
        np.testing.assert_allclose(uses[b, :t].sum(), n - 1, rtol=1e-11)
        np.testing.assert_array_equal(uses[b, t:], marginals[b][[0, -1]])


def test_max_marginals_are_the_best_of_the_sequences_through_each_tag():
    scores, table = random_inputs(4, 3, 1.0, batch=8, forbidden=0.1)
    solved = 0
    for b in range(8):
        tags, _, value, _ = reference.distribution(scores[b], table[b], 4)
        report, best = run(tagging.max_marginals, scores[b : b + 1], table[b : b + 1], np.array([4]), (4, 3))
        assert report == (-1 if value.max() > -np.inf else 0)
        if report == -1:
            solved += 1
            through = np.where(tags > 0, value[:, None, None], -np.inf).max(0)
            np.testing.assert_allclose(best[0], through, rtol=1e-13)
    assert solved > 3


@pytest.mark.parametrize("forbidden", [0.0, 0.2])
def test_what_a_table_is_worth_to_a_mixture_is_what_linear_programming_finds(forbidden):
    _, table = random_inputs(4, 3, 1.0, batch=12, forbidden=forbidden)
    rng = np.random.default_rng(5)
    possible = 0
    for b in range(12):
        tags, _, value, _ = reference.distribution(np.zeros((4, 3)), table[b], 4)
        allowed = tags[value > -np.inf]
        if len(allowed) == 0:
            continue
        possible += 1
        point = np.einsum("s,sij->ij", rng.dirichlet(np.ones(len(allowed))), allowed)
        report, worth, uses = run(tagging.couple, point[None], table[b : b + 1], np.array([4]), (), (5, 3))
        assert report == -1
        assert worth[0] == pytest.approx(reference.couple(point, table[b], 4), rel=1e-8, abs=1e-8)
        np.testing.assert_allclose(uses[0, :3].sum(), 3, rtol=1e-9)
        np.testing.assert_array_equal(uses[0, 3:], point[[0, -1]])
    assert possible > 6


def test_samples_have_the_frequencies_of_the_marginals():
    scores, table = random_inputs(4, 3, 1.0)
    drawn = np.full((4, 4000, 4, 3), np.nan)
    assert tagging.sample(scores, table, np.full(4, 4), np.arange(4), 4000, drawn, 0, 4) == -1
    _, _, marginals, _ = partition(scores, table)
    np.testing.assert_allclose(drawn.mean(1), marginals, rtol=0, atol=5 * 0.5 / np.sqrt(4000))
    assert (drawn.sum(-1) == 1).all()


def test_padding_is_never_read_and_is_zero():
    lengths = np.array([3, 0, 5, 1])
    whole, table = random_inputs(5, 3, 1.0)
    scores = np.full_like(whole, np.nan)
    for b, n in enumerate(lengths):
        scores[b, :n] = whole[b, :n]
    report, value, marginals, uses = partition(scores, table, lengths)
    _, best = run(tagging.argmax, scores, table, lengths, (5, 3))
    ones = np.ones_like(scores), np.ones_like(table)
    _, product, moved = run(tagging.hessian_product, scores, table, lengths, (5, 3), (5, 3), more=ones)
    drawn = np.full((4, 2, 5, 3), np.nan)
    assert tagging.sample(scores, table, lengths, np.arange(4), 2, drawn, 0, 4) == -1 and report == -1
    for b, n in enumerate(lengths):
        for output in (marginals[b], best[b], product[b], *drawn[b]):
            assert not output[n:].any() and np.isfinite(output).all()
        np.testing.assert_allclose(product[b], 0, atol=1e-14)  # every sequence gains the same
        if n > 0:
            alone = partition(whole[b : b + 1, :n].copy(), table[b : b + 1])
            np.testing.assert_allclose([value[b], *uses[b].ravel()], [alone[1][0], *alone[3][0].ravel()], atol=1e-14)
    assert value[1] == 0 and not uses[1].any() and not moved[1].any()


def test_nan_and_infinity_in_use_are_refused():
    for place in ("scores", "transitions", "start", "end"):
        for bad in (np.nan, np.inf):
            scores, table = random_inputs(3, 2, 1.0)
            if place == "scores":
                scores[2, 1, 0] = bad
            else:
                table[2, {"transitions": 0, "start": 2, "end": 3}[place], 1] = bad
            assert partition(scores, table)[0] == 2
            assert run(tagging.argmax, scores, table, np.full(4, 3), (3, 2))[0] == 2
            assert run(tagging.max_marginals, scores, table, np.full(4, 3), (3, 2))[0] == 2


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 9])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6, 10, 16, 21, 37])
def test_products_of_small_matrices_are_those_of_numpy(rows, columns):
    rng = np.random.default_rng(rows)
    for count in (0, 1, 5):
        x, y, out = rng.normal(size=(rows, count)), rng.normal(size=(count, columns)), rng.normal(size=(rows, columns))
        for left in (x, np.asfortranarray(x)):
            found = out.copy()
            _product(left, y, found)
            np.testing.assert_allclose(found, out + x @ y, rtol=1e-14, atol=1e-14)
        _row_product(x[0], y, found[0])
        np.testing.assert_allclose(found[0], x[0] @ y, rtol=1e-14, atol=1e-14)


@inner_function
def _product(x, y, out):
    add_product(x, y, out)


@inner_function
def _row_product(x, y, out):
    row_product(x, y, out)

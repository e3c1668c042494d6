"""Sums over sequences of tags, against enumeration and high-precision arithmetic."""

import numpy as np
import pytest
from scipy.stats import chisquare

from pullback.kernels import chain
from reference import chain_sums as slow


def random_chain(rng, n, t, scale=1.0, forbidden=0.0):
    """Random scores; the sequence of zeros is always allowed."""
    scores = scale * rng.normal(size=(n, t, t))
    mask = rng.random(scores.shape) < forbidden
    mask[:, 0, 0] = False
    scores[mask] = -np.inf
    return scores


def regauged(rng, scores, scale):
    """The same distribution by other scores: what a tag earns at its own position it pays at the next.

    Within one position scores then differ by multiples of `scale`, although sequences do not.
    """
    earned = scale * rng.normal(size=scores.shape[:2])
    earned[-1] = 0.0
    paid = np.concatenate([np.zeros((1, scores.shape[1])), earned[:-1]])
    return scores + earned[:, None, :] - paid[:, :, None]


def padded(chains, dtype=np.float64):
    """Chains of several lengths in one batch, two positions longer; whatever is not read is NaN."""
    n, t = max(map(len, chains)) + 2, chains[0].shape[1]
    scores = np.full((len(chains), n, t, t), np.nan, dtype)
    for b, one in enumerate(chains):
        scores[b, : len(one)] = one
        scores[b, 0, 1:] = np.nan
    return scores, np.array([len(one) for one in chains])


def run(chains, directions=None, dtype=np.float64, lo=0, hi=None):
    """Values, marginals and Hessian products of chains in one padded batch."""
    scores, lengths = padded(chains, dtype)
    value, alone = np.full((2, len(chains)), 7.0, dtype)
    marginals, product = np.full((2, *scores.shape), 7.0, dtype)
    hi = len(chains) if hi is None else hi
    before = scores.copy()
    assert chain.log_partition(scores, lengths, alone, lo, hi) == -1
    assert chain.partition(scores, lengths, value, marginals, lo, hi) == -1
    np.testing.assert_array_equal(alone, value)
    if directions is not None:
        g, _ = padded(directions, dtype)
        assert chain.hessian_product(marginals, lengths, g, product, lo, hi) == -1
    np.testing.assert_array_equal(scores, before)
    return value, marginals, product


def draw(chains, count, seeds):
    scores, lengths = padded(chains)
    drawn = np.full((len(chains), count, *scores.shape[1:]), 7.0)
    assert chain.sample(scores, lengths, np.array(seeds), count, drawn, 0, len(chains)) == -1
    return drawn


def best(chains, k):
    scores, lengths = padded(chains)
    vertices, size = np.full((len(chains), k, *scores.shape[1:]), 7.0), np.full(len(chains), 7)
    assert chain.topk(scores, lengths, k, vertices, size, 0, len(chains)) == -1
    return vertices, size


@pytest.mark.parametrize("t", [1, 2, 3])
@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 10.0, 100.0, 1e4])
def test_values_marginals_and_hessian_products_are_those_of_enumeration(scale, forbidden, t):
    rng = np.random.default_rng(0)
    chains = [random_chain(rng, n, t, scale, forbidden) for n in (3, 0, 1, 5, 2, 4)]
    directions = [rng.normal(size=one.shape) for one in chains]
    value, marginals, product = run(chains, directions)
    for b, (scores, g) in enumerate(zip(chains, directions)):
        z, values, p = slow.chain_distribution(scores)
        expected = values.max() + np.log(np.exp(values - values.max()).sum())
        assert abs(value[b] - expected) <= 1e-13 * max(1.0, abs(expected))
        along = (z * g).sum((1, 2, 3))
        for got, want in (
            (marginals[b], np.tensordot(p, z, 1)),
            (product[b], np.tensordot(p * (along - p @ along), z, 1)),
        ):
            n = len(scores)
            np.testing.assert_allclose(got[:n], want, rtol=0, atol=1e-13 * max(1.0, scale))
            assert (got[n:] == 0.0).all() and (got[:1, 1:] == 0.0).all()


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 100.0, 300.0, 1000.0])
def test_answers_have_twelve_digits_at_every_scale(scale, offset):
    rng = np.random.default_rng(1)
    chains = [offset + random_chain(rng, n, 5, scale) for n in (6, 15)]
    directions = [rng.normal(size=one.shape) for one in chains]
    value, marginals, product = run(chains, directions)
    for b, (scores, g) in enumerate(zip(chains, directions)):
        n = len(scores)
        want = slow.chain_log_partition(scores)
        assert abs(float((value[b] - want) / want)) < 1e-12
        np.testing.assert_allclose(marginals[b, :n], slow.chain_marginals(scores), rtol=0, atol=1e-12)
        np.testing.assert_allclose(product[b, :n], slow.chain_hessian_product(scores, g), rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1000.0, 1e4])
def test_what_a_tag_earns_and_then_pays_changes_nothing(scale):
    rng = np.random.default_rng(2)
    chains = [random_chain(rng, n, 6) for n in (1, 2, 30)]
    directions = [rng.normal(size=one.shape) for one in chains]
    plain = run(chains, directions)
    other = run([regauged(rng, one, scale) for one in chains], directions)
    for got, want in zip(other, plain):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-13 * max(10.0, scale))


def test_a_sequence_that_underflows_twice_is_found():
    """The way into tag 1 and the way out of it cost 800 each, but every position in tag 0 costs 100."""
    n = 40
    scores = np.full((n, 2, 2), -np.inf)
    scores[:, 0, 0] = -100.0
    scores[1:, 1, 1] = 0.0
    scores[1:, 0, 1] = scores[1:, 1, 0] = -800.0
    value, marginals, _ = run([scores])
    want = slow.chain_log_partition(scores)
    assert abs(float((value[0] - want) / want)) < 1e-14
    np.testing.assert_allclose(marginals[0, :n], slow.chain_marginals(scores), rtol=0, atol=1e-13)


def test_the_lowest_finite_score_forbids_nothing():
    lowest = np.finfo(float).min
    scores = np.zeros((3, 2, 2))
    scores[1, :, 1] = -np.inf
    scores[2, 0] = lowest  # the only way on: tag 1, whose score is zero, is not reached
    value, marginals, _ = run([scores])
    assert value[0] == lowest
    np.testing.assert_allclose(marginals[0, :3, 0], [[0.5, 0.5], [0.5, 0.0], [0.5, 0.5]], rtol=1e-15)


@pytest.mark.parametrize("low", [-1e3, -1e9, -1e30])
def test_a_large_negative_score_forbids_like_minus_infinity(low):
    rng = np.random.default_rng(3)
    scores, g = random_chain(rng, 20, 5, 1.0, 0.5), rng.normal(size=(20, 5, 5))
    finite = np.maximum(scores, low)
    for got, want in zip(run([finite], [g]), run([scores], [g])):
        np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-20)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1000.0])
def test_the_log_partition_is_at_least_the_best_and_at_most_that_plus_n_log_t(scale):
    rng = np.random.default_rng(5)
    n, t = 12, 4
    chains = [random_chain(rng, n, t, scale) for _ in range(500)]
    value, marginals, _ = run(chains)
    vertices, _ = best(chains, 1)
    scores, _ = padded(chains)
    top = np.where(vertices[:, 0] > 0.0, scores, 0.0).sum((1, 2, 3))
    room = 1e-13 * np.abs(top)
    assert (value >= top - room).all() and (value <= top + n * np.log(t) + room).all()
    np.testing.assert_allclose(marginals[:, :n].sum((2, 3)), 1.0, rtol=0, atol=1e-13 * max(10.0, scale))


@pytest.mark.parametrize("gauge", [0.0, 1000.0], ids=["plain", "regauged"])
@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0, 1000.0])
def test_no_entry_of_the_hessian_exceeds_a_quarter(scale, gauge):
    rng = np.random.default_rng(6)
    chains, units = [], []
    for _ in range(1000):
        unit = np.zeros((8, 3, 3))
        unit[tuple(rng.integers((8, 3, 3)))] = 1.0
        units.append(unit)
        chains.append(regauged(rng, random_chain(rng, 8, 3, scale, 0.2), gauge))
    _, marginals, product = run(chains, units)
    assert np.abs(product).max() <= 0.25 + 1e-12
    along = np.nansum(padded(units)[0] * marginals, (1, 2, 3))
    variance = np.nansum(padded(units)[0] * product, (1, 2, 3))
    np.testing.assert_allclose(variance, along * (1.0 - along), rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("gauge", [0.0, 1000.0], ids=["plain", "regauged"])
def test_the_hessian_product_is_the_slope_of_the_marginals_and_symmetric(scale, gauge):
    rng = np.random.default_rng(7)
    n, t = 60, 7
    scores = regauged(rng, random_chain(rng, n, t, scale), gauge)
    g, h = rng.normal(size=(2, n, t, t))
    product, other = (run([scores], [one])[2][0, :n] for one in (g, h))
    step = 1e-4
    forward, backward = (run([scores + sign * step * g])[1][0, :n] for sign in (1, -1))
    np.testing.assert_allclose(product, (forward - backward) / (2 * step), rtol=0, atol=3e-6)
    np.testing.assert_allclose((product * h).sum(), (other * g).sum(), rtol=1e-9)


@pytest.mark.parametrize("magnitude", [0.0, 1e4, 1e30])
def test_one_allowed_sequence_is_certain(magnitude):
    rng = np.random.default_rng(8)
    n, t = 30, 4
    tags = rng.integers(t, size=n)
    vertex = np.zeros((n, t, t))
    vertex[np.arange(n), np.concatenate([[0], tags[:-1]]), tags] = 1.0
    scores = np.where(vertex > 0.0, magnitude * rng.normal(size=vertex.shape), -np.inf)
    value, marginals, product = run([scores], [rng.normal(size=scores.shape)])
    assert value[0] == pytest.approx(scores[vertex > 0.0].sum(), rel=1e-14)
    np.testing.assert_array_equal(marginals[0, :n], vertex)
    assert (product == 0.0).all()
    np.testing.assert_array_equal(draw([scores], 3, [0])[0, :, :n], [vertex] * 3)
    vertices, size = best([scores], 3)
    assert size[0] == 1
    np.testing.assert_array_equal(vertices[0, 0, :n], vertex)
    assert (vertices[0, 1:] == 0.0).all()


def test_the_direction_of_an_impossible_pair_does_not_matter():
    rng = np.random.default_rng(9)
    scores = random_chain(rng, 6, 3, 1.0, 0.4)
    g = rng.normal(size=scores.shape)
    wild = np.where(scores > -np.inf, g, rng.choice([np.nan, np.inf, -np.inf], size=g.shape))
    np.testing.assert_array_equal(run([scores], [wild])[2], run([scores], [g])[2])


def test_float32_scores_give_float32_answers_from_float64_sums():
    rng = np.random.default_rng(10)
    chains = [
        random_chain(rng, n, 6, scale).astype(np.float32).astype(float) for n, scale in ((4, 1), (60, 3), (9, 1e3))
    ]
    directions = [rng.normal(size=one.shape).astype(np.float32).astype(float) for one in chains]
    for got, want in zip(run(chains, directions, np.float32), run(chains, directions)):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-6, atol=1e-7)


def test_only_the_given_range_is_written():
    rng = np.random.default_rng(11)
    chains = [random_chain(rng, 3, 3) for _ in range(4)]
    for part, whole in zip(run(chains, chains, lo=1, hi=3), run(chains, chains)):
        assert (part[[0, 3]] == 7.0).all()
        np.testing.assert_array_equal(part[1:3], whole[1:3])


def every_answer(scores, lengths, lo, hi):
    """What each of the kernels that read scores returns."""
    count = len(scores)
    value, out, lists = np.empty(count), np.empty_like(scores), np.empty((count, 2, *scores.shape[1:]))
    return {
        chain.log_partition(scores, lengths, value, lo, hi),
        chain.partition(scores, lengths, value, out, lo, hi),
        chain.sample(scores, lengths, np.arange(count), 2, lists, lo, hi),
        chain.topk(scores, lengths, 2, lists, np.empty(count, np.int64), lo, hi),
    }


@pytest.mark.parametrize("gauge", [0.0, 1e4], ids=["plain", "regauged"])
def test_an_instance_without_an_answer_is_named(gauge):
    rng = np.random.default_rng(12)
    fine = np.array([regauged(rng, random_chain(rng, 4, 3), gauge) for _ in range(3)])
    lengths = np.array([4, 3, 4])
    assert every_answer(fine, lengths, 0, 3) == {-1}
    spoiled = []
    for place, score in (((1, 2, 1, 2), np.nan), ((1, 0, 0, 2), np.nan), ((1, 1, 2, 0), np.inf)):
        spoiled.append(fine.copy())
        spoiled[-1][place] = score
    spoiled.append(fine.copy())
    spoiled[-1][1, 1] = -np.inf
    spoiled.append(fine.copy())
    spoiled[-1][1, 1, :, 1:] = spoiled[-1][1, 2, 0] = -np.inf  # every position has a pair, but they do not meet
    spoiled.append(spoiled[-1].copy())
    spoiled[-1][1, 2, 0, 1] = np.nan  # a pair in use, though no sequence takes it
    for scores in spoiled:
        assert every_answer(scores, lengths, 0, 3) == {1}
        assert every_answer(scores, lengths, 2, 3) == {-1}
    for length in (-1, 5):
        assert every_answer(fine, np.array([4, length, 4]), 0, 3) == {1}


@pytest.mark.parametrize("gauge", [0.0, 1000.0], ids=["plain", "regauged"])
def test_samples_have_the_frequencies_of_the_distribution(gauge):
    rng = np.random.default_rng(13)
    scores = regauged(rng, random_chain(rng, 4, 3, 1.0, 0.2), gauge)
    vertices, _, p = slow.chain_distribution(scores)
    drawn = draw([scores], 40_000, [3])[0, :, :4].reshape(40_000, -1)
    place = {vertex.tobytes(): j for j, vertex in enumerate(vertices)}
    counts = np.bincount([place[one.tobytes()] for one in drawn], minlength=len(p))
    assert (counts[p == 0.0] == 0).all()
    assert chisquare(counts[p > 0.0], 40_000 * p[p > 0.0]).pvalue > 1e-3


def test_a_seed_decides_the_samples_of_its_instance_alone():
    rng = np.random.default_rng(14)
    chains = [random_chain(rng, n, 4) for n in (7, 0, 1, 7)]
    chains[3] = chains[0]
    drawn = draw(chains, 20, [5, 6, 7, 5])
    np.testing.assert_array_equal(drawn[0], drawn[3])
    assert not (drawn[0] == drawn[0, 0]).all()
    assert not (draw(chains[:1], 20, [8])[0] == drawn[0]).all()
    for one, b, seed in zip(chains, range(4), (5, 6, 7, 5)):
        np.testing.assert_array_equal(draw([one], 20, [seed])[0, :, : len(one)], drawn[b, :, : len(one)])
        assert (drawn[b, :, len(one) :] == 0.0).all()
        assert (drawn[b].sum((2, 3))[:, : len(one)] == 1.0).all()


@pytest.mark.parametrize("forbidden", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["random", "tied", "equal", "large"])
@pytest.mark.parametrize("k", [1, 5, 300])
def test_the_k_best_are_the_first_of_all_sequences(kind, forbidden, k):
    rng = np.random.default_rng(15)
    chains = [random_chain(rng, n, 3, 1e12 if kind == "large" else 1.0, forbidden) for n in (5, 0, 1, 4, 2)]
    if kind in ("tied", "equal"):
        chains = [np.where(one > -np.inf, np.round(one) if kind == "tied" else 0.5, one) for one in chains]
    vertices, size = best(chains, k)
    for b, scores in enumerate(chains):
        n = len(scores)
        values = np.sort(slow.chain_values(scores))[::-1]
        values = values[values > -np.inf][:k]
        assert size[b] == len(values)
        found = vertices[b, : size[b], :n]
        assert (vertices[b, size[b] :] == 0.0).all() and (vertices[b, :, n:] == 0.0).all()
        np.testing.assert_allclose([scores[one > 0.0].sum() for one in found], values, rtol=1e-12)
        everything = {vertex.tobytes() for vertex in slow.vertices(n, n, 3)}
        chosen = {one.tobytes() for one in found}
        assert len(chosen) == size[b] and chosen <= everything

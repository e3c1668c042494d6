"""Sparsemax, 1.5-entmax and α-entmax against sorting, high precision and finite differences."""

import numpy as np
import pytest
import torch
from entmax import entmax_bisect, sparsemax_bisect
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from pullback.kernels.simplex import any_order as any_alpha
from pullback.kernels.simplex import rows as simplex
from reference import simplex as reference

EXACT = ["sparsemax", "entmax15"]
# Side by side, whole and by blocks, with lengths on either side of every boundary.
LENGTHS = [1, 2, 31, simplex.SHORT, simplex.SHORT + 1, 200, simplex.LONG, simplex.LONG + 1, 5000]
ALPHAS = [1 + 2.3e-16, 1 + 1e-9, 1.001, 1.2, 1.5, 1.9, 2.0, 2.5, 4.0, 10.0]


def forward(name, x):
    y = np.full_like(x, np.nan)
    assert getattr(simplex, name)(x, y, 0, len(x)) == -1
    return y


def backward(name, y, g):
    out = np.full_like(y, np.nan)
    assert getattr(simplex, name + "_backward")(y, g, out, 0, len(y)) == -1
    return out


def entmax(x, alpha):
    y = np.full_like(x, np.nan)
    assert any_alpha.entmax(x, np.broadcast_to(np.asarray(alpha, np.float64), len(x)).copy(), y, 0, len(x)) == -1
    return y


def entmax_backward(y, alpha, g):
    gx, galpha = np.full_like(y, np.nan), np.full(len(y), np.nan)
    alpha = np.broadcast_to(np.asarray(alpha, np.float64), len(y)).copy()
    assert any_alpha.entmax_backward(y, alpha, g, gx, galpha, 0, len(y)) == -1
    return gx, galpha


def rows(n, kind, scale=1.0, dtype=np.float64, seed=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((300 if n <= simplex.SHORT else 5, n))
    if kind == "ties":
        x = np.round(x)
    if kind == "forbidden":
        x[:, 1:][random.random((len(x), n - 1)) < 0.5] = -np.inf
    return (scale * x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-6, 0.01, 1.0, 1e4])
@pytest.mark.parametrize("kind", ["plain", "ties", "forbidden"])
@pytest.mark.parametrize("name", EXACT)
def test_the_answer_is_that_of_sorting(name, kind, scale, dtype):
    for n in LENGTHS:
        x = rows(n, kind, scale, dtype)
        y = forward(name, x)
        expected = getattr(reference, name)(x)
        assert_allclose(y, expected, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-14, err_msg=f"n = {n}")
        assert_allclose(y.sum(-1, dtype=np.float64), 1, atol=2e-6 if dtype == np.float32 else 1e-13)
        assert (y[x == -np.inf] == 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("score", [0.0, 1e4, -1e4])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", EXACT)
def test_equal_scores_share_the_mass_equally(name, n, score, dtype):
    y = forward(name, np.full((3, n), score, dtype))
    assert (y == y[0, 0]).all()
    assert_allclose(y, 1 / n, rtol=1e-5 if dtype == np.float32 else 1e-13)


@pytest.mark.parametrize("name", EXACT)
def test_small_differences_survive_beside_large_scores(name):
    x = np.array([[1e4, 1e4 + 0.25, -1e4, 1e4 - 0.125]], np.float32)
    assert_allclose(forward(name, x), forward(name, x - np.float32(1e4)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("n", [3, 100, 3000])
@pytest.mark.parametrize("name", [*EXACT, "entmax"])
def test_a_single_finite_score_takes_everything(name, n):
    x = np.full((2, n), -np.inf)
    x[0, 0], x[1, n - 1] = -5.0, 7.0
    y = entmax(x, 1.7) if name == "entmax" else forward(name, x)
    assert_array_equal(y, np.isfinite(x).astype(float))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, "empty"])
@pytest.mark.parametrize("n", [1, 5, 70, 3000])
@pytest.mark.parametrize("name", [*EXACT, "entmax"])
def test_the_first_row_without_an_answer_is_reported(name, n, bad, dtype):
    for place in {0, n // 2, n - 1}:
        x = np.zeros((300, n), dtype)
        if bad == "empty":
            x[[270, 290]] = -np.inf
        else:
            x[[270, 290], place] = bad
            x[270, (place + 1) % n] = x[270, (place + 1) % n] if n == 1 else -np.inf
        y = np.empty_like(x)
        if name == "entmax":
            assert any_alpha.entmax(x, np.full(300, 1.3), y, 250, 300) == 270
        else:
            assert getattr(simplex, name)(x, y, 0, 300) == 270
            assert getattr(simplex, name)(x, y, 271, 300) == 290
            assert getattr(simplex, name)(x, y, 0, 270) == -1


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("n", [10, 100])
def test_an_overflow_of_the_plain_sum_is_no_failure(name, n):
    largest = np.finfo(np.float32).max
    x = np.zeros((1, n), np.float32)
    x[0, :4] = 0.75 * largest
    x[0, 4:8] = -0.75 * largest
    assert_allclose(forward(name, x)[0, :4], 0.25)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("n", [7, 300, 3000])
def test_only_the_asked_rows_are_written_and_nothing_is_read_elsewhere(name, n):
    x = np.random.default_rng(1).standard_normal((600, n))[: 600 if n == 7 else 9]
    lo, hi = 2, len(x) - 2
    y, expected = np.full_like(x, 5.0), forward(name, x)
    x[:lo], x[hi:] = np.nan, np.nan
    before = x.copy()
    assert getattr(simplex, name)(x, y, lo, hi) == -1
    assert_array_equal(x, before)
    assert_array_equal(y[lo:hi], expected[lo:hi])
    assert (y[:lo] == 5).all() and (y[hi:] == 5).all()
    out = np.full_like(y, 5.0)
    assert getattr(simplex, name + "_backward")(y, x, out, lo, hi) == -1
    assert_array_equal(out[lo:hi], backward(name, expected[lo:hi], x[lo:hi]))
    assert (out[:lo] == 5).all() and (out[hi:] == 5).all()


@pytest.mark.parametrize("n", [1, 6, 64, 300, 4000])
@pytest.mark.parametrize("name", EXACT)
def test_the_gradient_is_the_derivative(name, n):
    random = np.random.default_rng(n)
    x, g, d = (random.standard_normal((4, n)) for _ in range(3))
    step = 1e-6
    numeric = (forward(name, x + step * d) - forward(name, x - step * d)) / (2 * step)
    gradient = backward(name, forward(name, x), g)
    assert_allclose((gradient * d).sum(-1), (g * numeric).sum(-1), atol=1e-7)
    single = backward(name, forward(name, x).astype(np.float32), g.astype(np.float32))
    assert_allclose(single, gradient, atol=1e-5)


@pytest.mark.parametrize("name", EXACT)
def test_the_jacobian_is_symmetric_and_constant_shifts_change_nothing(name):
    y = forward(name, np.random.default_rng(2).standard_normal((1, 9)))
    jacobian = backward(name, np.repeat(y, 9, 0), np.eye(9))
    assert_allclose(jacobian, jacobian.T, atol=1e-15)
    assert_allclose(jacobian.sum(-1), 0, atol=1e-15)


# ---- any α


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_is_right_to_the_last_digits_for_every_alpha(alpha):
    random = np.random.default_rng(3)
    for scale in (1e-6, 0.1, 1.0, 1e4):
        x = scale * random.standard_normal((2, 6))
        x[1, 2], x[1, 3] = -np.inf, x[1, 4]
        expected = np.stack([reference.entmax(row, alpha) for row in x])
        y = entmax(x, alpha)
        assert_allclose(y, expected, rtol=0, atol=1e-14)
        assert_array_equal(y > 0, expected > 1e-300)


@pytest.mark.parametrize("alpha", [30.0, 1e3, 1e8])
def test_entmax_tends_to_the_argmax_as_alpha_grows(alpha):
    x = np.array([[0.0, 1.0, 0.2], [1.0, 1.0, -3.0], [2.0, 2.0, 2.0]])
    expected = [[0, 1, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert_allclose(entmax(x, alpha), expected, atol=1e-14)


def test_entmax_at_one_is_softmax():
    x = np.random.default_rng(4).standard_normal((3, 50)) * [[0.1], [3], [300]]
    expected = torch.softmax(torch.from_numpy(x), -1).numpy()
    assert_allclose(entmax(x, 1.0), expected, atol=1e-15)
    assert_allclose(entmax(x, 1 + 1e-13), expected, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [5, 70, 3000])
def test_entmax_agrees_with_the_exact_kernels(n, dtype):
    for kind in ("plain", "ties", "forbidden"):
        x = rows(n, kind, 1.0, dtype)
        for name, alpha in (("sparsemax", 2.0), ("entmax15", 1.5)):
            atol = 1e-6 if dtype == np.float32 else 1e-14
            y, g = forward(name, x), rows(n, "plain", 1.0, dtype, seed=9)
            found = entmax(x, alpha)
            assert_allclose(found, y, rtol=0, atol=atol)
            assert not ((found > 0) & (y == 0) & (found < 1e-14)).any()  # rounding must not widen the support
            assert_allclose(entmax_backward(y, alpha, g)[0], backward(name, y, g), rtol=0, atol=20 * atol)


@given(
    hnp.arrays(np.float64, st.tuples(st.just(1), st.integers(1, 9)), elements=st.floats(-1e4, 1e4)),
    st.one_of(st.floats(1, 12), st.floats(1, 1 + 1e-6), st.floats(1, 1e300)),
)
@settings(max_examples=300, deadline=None)
def test_entmax_is_a_distribution_in_the_order_of_the_scores(x, alpha):
    y = entmax(x, alpha)
    assert (y >= 0).all() and abs(y.sum() - 1) < 1e-14
    assert (np.diff(y[0, np.argsort(x[0], kind="stable")]) >= 0).all()
    gx, galpha = entmax_backward(y, alpha, np.cos(np.arange(x.size))[None])
    assert np.isfinite(gx).all() and np.isfinite(galpha).all()


@pytest.mark.parametrize("alpha", [0.5, -np.inf, np.inf, np.nan])
def test_an_alpha_without_an_answer_is_reported(alpha):
    x, alphas = np.zeros((3, 4)), np.array([1.0, 2.0, alpha])
    assert any_alpha.entmax(x, alphas, np.empty_like(x), 0, 3) == 2


@pytest.mark.parametrize("alpha", [1.0, 1 + 1e-9, 1.03, 1.5, 1.8, 2.0, 2.5, 4.0])
def test_the_gradients_of_entmax_are_the_derivatives(alpha):
    random = np.random.default_rng(5)
    x, g, d = (random.standard_normal((20, 7)) for _ in range(3))
    x[:, 3] = -np.inf
    gx, galpha = entmax_backward(entmax(x, alpha), alpha, g)
    step = 1e-6
    numeric = (entmax(x + step * d, alpha) - entmax(x - step * d, alpha)) / (2 * step)
    assert_allclose((gx * d).sum(-1), (g * numeric).sum(-1), atol=1e-6, rtol=1e-6)
    above, below = alpha + step, max(alpha - step, 1.0)
    numeric = (entmax(x, above) - entmax(x, below)) / (above - below)
    assert_allclose(galpha, (g * numeric).sum(-1), atol=1e-5 if alpha == 1 else 1e-7, rtol=1e-6)


@pytest.mark.parametrize("alpha", [1.05, 1.5, 1.8, 2.0, 3.0])
def test_values_and_gradients_are_those_of_the_entmax_package(alpha):
    random = np.random.default_rng(6)
    x, g = random.standard_normal((8, 12)), random.standard_normal((8, 12))
    theirs, order = torch.from_numpy(x).requires_grad_(), torch.full((8, 1), alpha, dtype=torch.float64)
    order.requires_grad_()
    entmax_bisect(theirs, order, n_iter=100).backward(torch.from_numpy(g))
    y = entmax(x, alpha)
    gx, galpha = entmax_backward(y, alpha, g)
    assert_allclose(y, entmax_bisect(theirs, order, n_iter=100).detach(), atol=1e-11)
    assert_allclose(gx, theirs.grad, atol=1e-9)
    assert_allclose(galpha, order.grad[:, 0], atol=1e-9)
    if alpha == 2.0:
        assert_allclose(forward("sparsemax", x), sparsemax_bisect(theirs).detach(), atol=1e-12)


def test_one_dominant_weight_does_not_spoil_the_gradient():
    # For α = 4 the weight y⁻² of a barely kept entry is 1e24; the rows of the Jacobian still sum to zero.
    y = np.array([[0.6, 0.4 - 1e-12, 1e-12]])
    gx, _ = entmax_backward(y, 4.0, np.array([[1.0, 2.0, 5.0]]))
    assert_allclose(gx[0, :2], [-4 / 0.36, -3 / 0.16], rtol=1e-9)
    assert_allclose(gx.sum(), 0, atol=1e-12)

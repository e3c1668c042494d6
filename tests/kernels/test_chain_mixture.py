"""SparseMAP over chains by the active set: optimality by its certificate, derivatives by differences and by faces."""

import numpy as np
import pytest

from pullback.kernels import chain
from reference import chain as reference
from reference.active_set import as_vertices


def project(scores, lengths, tolerance=1e-12, max_iterations=10_000, start=None, capacity=200):
    """(point, parts, probabilities, size, gap, iterations), with zeros where nothing is written."""
    batch, n = scores.shape[:2]
    start = np.empty((batch, 0, n), np.int32) if start is None else start
    point, parts = np.full(scores.shape, 7.0, scores.dtype), np.zeros((batch, capacity, n), np.int32)
    probabilities = np.zeros((batch, capacity), scores.dtype)
    size, iterations = np.zeros((2, batch), int)
    gap = np.zeros(batch)
    outputs = point, parts, probabilities, size, gap, iterations
    assert chain.mixture(scores, lengths, (), start, tolerance, max_iterations, *outputs, 0, batch) == -1
    return outputs


def pull_back(scores, lengths, parts, size, gradient):
    product = np.full(scores.shape, 7.0, gradient.dtype)
    assert chain.mixture_backward(scores, lengths, (), parts, size, gradient, product, 0, len(scores)) == -1
    return product


def dense(parts, size, shape):
    """The vertices that mix, as (batch, capacity, n, t, t) zeros and ones."""
    return as_vertices(parts, size, np.prod(shape)).reshape(*parts.shape[:2], *shape)


def magnitude(scores):
    """The largest absolute score among the parts that exist."""
    used = np.concatenate([scores[0, 0].ravel(), scores[1:].ravel()])
    return max(1.0, np.abs(used[np.isfinite(used)]).max())


def frank_wolfe_gap(scores, point):
    """⟨s − μ, argmax(s − μ) − μ⟩, with nothing taken from the kernel but the argmax, which has its own tests."""
    rest, best = scores - point, np.empty_like(scores)
    assert chain.argmax(rest[None], np.array([len(scores)]), best[None], 0, 1) == -1
    used = point > 0.0
    return rest[best > 0.0].sum() - (rest[used] * point[used]).sum()


def batch(rng, n, t, size, kind):
    """Scores of one kind for `size` chains."""
    normal = rng.normal(size=(size, n, t, t))
    constant = np.broadcast_to(reference.vertex([0] * n, n, t), normal.shape)
    return {
        "flat": lambda: 0.05 * normal,
        "very flat": lambda: 1e-3 * normal,
        "normal": lambda: normal,
        "peaked": lambda: 10.0 * normal,
        "large": lambda: 1e4 * normal,
        "integers": lambda: rng.integers(-2, 3, size=normal.shape) / 2.0,
        "equal": lambda: np.full(normal.shape, 0.3),
        "nearly tied": lambda: rng.integers(0, 2, size=normal.shape) + 1e-9 * normal,
        "masked": lambda: np.where((rng.random(normal.shape) < 0.5) & (constant == 0.0), -np.inf, normal),
        "vertex less a gradient": lambda: constant - 0.3 * normal,
    }[kind]()


KINDS = pytest.mark.parametrize(
    "kind",
    [
        "flat", "very flat", "normal", "peaked", "large", "integers", "equal", "nearly tied", "masked",
        "vertex less a gradient",
    ],
)  # fmt: skip


@KINDS
@pytest.mark.parametrize(("n", "t"), [(1, 5), (2, 2), (6, 1), (5, 3), (12, 4)])
def test_the_point_is_optimal_and_is_the_mixture_it_claims_to_be(kind, n, t):
    scores = batch(np.random.default_rng(n), n, t, 3, kind)
    point, parts, probabilities, size, gap, _ = project(scores, np.full(3, n))
    vertices = dense(parts, size, scores.shape[1:])
    for b in range(3):
        unit = magnitude(scores[b])
        assert gap[b] <= 1e-12 * unit
        assert frank_wolfe_gap(scores[b], point[b]) <= 1e-10 * unit
        p, z = probabilities[b, : size[b]], vertices[b, : size[b]]
        assert (p > 0.0).all() and p.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(point[b], np.tensordot(p, z, 1), rtol=0, atol=1e-14)
        for vertex in z:
            np.testing.assert_array_equal(vertex, reference.vertex(vertex.sum(1).argmax(1), n, t))
        flat = z.reshape(size[b], -1)
        assert np.linalg.matrix_rank(flat[1:] - flat[0]) == size[b] - 1  # affinely independent
        assert (probabilities[b, size[b] :] == 0.0).all() and (vertices[b, size[b] :] == 0.0).all()


@KINDS
def test_no_sequence_scores_better_than_the_point(kind):
    """The certificate, with every vertex enumerated: ⟨s − μ, z − μ⟩ ≤ 0 for all z."""
    scores = batch(np.random.default_rng(2), 4, 3, 4, kind)
    point, *_ = project(scores, np.full(4, 4))
    every = reference.vertices(4, 4, 3)
    for b in range(4):
        rest, used = scores[b] - point[b], point[b] > 0.0
        gap = reference.values(rest, every).max() - (rest[used] * point[b, used]).sum()
        assert gap <= 1e-11 * magnitude(scores[b])


@pytest.mark.parametrize("scale", [0.05, 0.1, 0.3, 1.0, 3.0, 10.0])
def test_the_backward_pass_is_the_slope_of_the_point(scale):
    rng = np.random.default_rng(5)
    for n, t in ((2, 3), (5, 3), (10, 4)):
        scores, lengths = scale * rng.normal(size=(8, n, t, t)), np.full(8, n)
        gradient, direction = rng.normal(size=(2, *scores.shape))
        _, parts, _, size, _, _ = project(scores, lengths)
        product = pull_back(scores, lengths, parts, size, gradient)
        step = 1e-7
        ahead, behind = (project(scores + h * direction, lengths, 1e-13)[0] for h in (step, -step))
        slope = (gradient * (ahead - behind)).sum((1, 2, 3)) / (2 * step)
        np.testing.assert_allclose((product * direction).sum((1, 2, 3)), slope, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["flat", "normal", "peaked", "integers", "equal", "masked", "large"])
def test_the_backward_pass_projects_onto_the_span_of_all_optimal_sequences(kind):
    n, t = 4, 3
    scores = batch(np.random.default_rng(6), n, t, 6, kind)
    gradient = np.random.default_rng(7).normal(size=scores.shape)
    lengths, every = np.full(6, n), reference.vertices(n, n, t)
    point, parts, _, size, _, _ = project(scores, lengths)
    product = pull_back(scores, lengths, parts, size, gradient)
    for b in range(6):
        value = reference.values(scores[b] - point[b], every)
        face = every[value >= value.max() - 1e-8 * magnitude(scores[b])].reshape(-1, n * t * t)
        _, singular, rows = np.linalg.svd(face - face[0])
        basis = rows[: (singular > 1e-9).sum()]
        np.testing.assert_allclose(product[b].ravel(), basis.T @ (basis @ gradient[b].ravel()), rtol=0, atol=1e-9)


def test_the_backward_pass_adds_the_sequences_that_the_face_still_lacks():
    """All sequences are optimal; two of them mix the point of the first and the last position, none spans the face."""
    n, t = 3, 2
    scores = reference.vertices(n, n, t).mean(0)[None]  # the point is the scores
    gradient = np.random.default_rng(8).normal(size=scores.shape)
    every = reference.vertices(n, n, t).reshape(t**n, -1)
    _, singular, rows = np.linalg.svd(every - every.mean(0))
    basis = rows[: (singular > 1e-9).sum()]
    _, parts, _, size, _, _ = project(scores, np.array([n]))
    assert size[0] <= len(basis)
    product = pull_back(scores, np.array([n]), parts, size, gradient)
    np.testing.assert_allclose(product.ravel(), basis.T @ (basis @ gradient.ravel()), rtol=0, atol=1e-12)


def test_given_sequences_are_a_start_and_leave_again_if_they_do_not_belong():
    rng = np.random.default_rng(9)
    scores, lengths = 0.3 * rng.normal(size=(2, 8, 4, 4)), np.full(2, 8)
    cold = project(scores, lengths)
    elsewhere = project(rng.normal(size=scores.shape), lengths)
    for found in (cold, elsewhere):
        for b in range(2):
            found[1][b, found[3][b] :] = -1
    absent = np.full((2, 1, 8), -1, np.int32)
    solved = np.concatenate([absent, cold[1]], 1)
    for start, rounds in ((solved, 0), (np.repeat(solved, 2, 1), 0), (absent, cold[5]), (elsewhere[1], None)):
        warm = project(scores, lengths, start=start)
        np.testing.assert_allclose(warm[0], cold[0], rtol=0, atol=1e-9)
        assert rounds is None or (warm[5] == rounds).all()
    scores[0].flat[solved[0, 1, 1]] = -np.inf  # of the sequences given now, some are forbidden
    np.testing.assert_allclose(
        project(scores, lengths, start=solved)[0], project(scores, lengths)[0], rtol=0, atol=1e-9
    )


def test_padding_is_never_read_and_comes_back_as_zero():
    rng = np.random.default_rng(10)
    lengths = np.array([3, 0, 6, 1])
    scores, gradient = np.full((2, 4, 6, 3, 3), np.nan)
    for array in (scores, gradient):
        for b, n in enumerate(lengths):
            array[b, :n] = 0.3 * rng.normal(size=(n, 3, 3))
        array[:, 0, 1:] = np.nan
    point, parts, _, size, _, _ = project(scores, lengths)
    product = pull_back(scores, lengths, parts, size, gradient)
    for b, n in enumerate(lengths):
        alone, slope = np.ascontiguousarray(scores[b : b + 1, :n]), np.ascontiguousarray(gradient[b : b + 1, :n])
        one, vertices, _, number, _, _ = project(alone, lengths[b : b + 1])
        back = pull_back(alone, lengths[b : b + 1], vertices, number, slope)
        for got, want in ((point[b], one[0]), (product[b], back[0])):
            np.testing.assert_array_equal(got[:n], want)
            assert (got[n:] == 0.0).all()
        assert (parts[b, : size[b], n:] == -1).all()
    assert size[1] == 1 and (point[1] == 0.0).all()


def test_instances_of_negative_length_are_left_as_they_were():
    scores = np.random.default_rng(11).normal(size=(3, 4, 3, 3))
    lengths = np.array([4, -1, 4])
    point, parts, _, size, _, _ = project(scores, lengths)
    product = pull_back(scores, lengths, parts, size, scores)
    assert (point[1] == 7.0).all() and (product[1] == 7.0).all() and size[1] == 0
    assert (size[[0, 2]] > 0).all()


def test_a_search_that_is_cut_short_says_so():
    scores = 0.1 * np.random.default_rng(12).normal(size=(2, 12, 4, 4))
    point, _, _, _, gap, iterations = project(scores, np.full(2, 12), max_iterations=5)
    assert (iterations == 5).all() and (gap > 1e-3).all()
    for b in range(2):
        assert gap[b] == pytest.approx(frank_wolfe_gap(scores[b], point[b]), rel=1e-9)


def test_an_instance_without_sequences_or_with_wrong_scores_or_length_is_named():
    forbidden, nan, infinite, right = np.random.default_rng(13).normal(size=(4, 3, 4, 3, 3))
    forbidden[1, 2] = -np.inf
    nan[1, 3, 2, 0] = np.nan
    infinite[1, 0, 0, 1] = np.inf
    full = np.full(3, 4)
    for scores, lengths in ((forbidden, full), (nan, full), (infinite, full), (right, np.array([4, 5, 4]))):
        out = np.empty_like(scores), np.zeros((3, 9, 4), np.int32), np.zeros((3, 9))
        ends = np.zeros(3, int), np.zeros(3), np.zeros(3, int)
        assert chain.mixture(scores, lengths, (), np.empty((3, 0, 4), np.int32), 1e-9, 99, *out, *ends, 0, 3) == 1


def test_sequences_beyond_the_capacity_are_counted_but_not_written():
    scores, lengths = 0.1 * np.random.default_rng(14).normal(size=(2, 8, 3, 3)), np.full(2, 8)
    point, parts, probabilities, size, _, _ = project(scores, lengths)
    again, few, least, number, _, _ = project(scores, lengths, capacity=5)
    for got, want in ((again, point), (number, size), (few, parts[:, :5]), (least, probabilities[:, :5])):
        np.testing.assert_array_equal(got, want)
    assert chain.mixture_backward(scores, lengths, (), few, number, scores, np.empty_like(scores), 0, 2) == 0
    assert chain.mixture_backward(scores, lengths, (), parts, 0 * size, scores, np.empty_like(scores), 0, 2) == 0


def test_float32_scores_are_projected_in_double_precision():
    scores = np.random.default_rng(15).normal(size=(3, 6, 3, 3)).astype(np.float32)
    lengths = np.full(3, 6)
    point, parts, _, size, _, _ = project(scores, lengths)
    exact, *_ = project(scores.astype(float), lengths)
    np.testing.assert_array_equal(point, exact.astype(np.float32))
    gradient = np.random.default_rng(16).normal(size=scores.shape).astype(np.float32)
    product = pull_back(scores, lengths, parts, size, gradient)
    double = pull_back(scores.astype(float), lengths, parts, size, gradient.astype(float))
    np.testing.assert_allclose(product, double, rtol=0, atol=1e-6)

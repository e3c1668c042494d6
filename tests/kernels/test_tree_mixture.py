"""SparseMAP over trees by the active set: optimality by its certificate, derivatives by differences."""

import numpy as np
import pytest
from scipy.optimize import nnls

from pullback.kernels import projective_trees, trees
from pullback.kernels.tree_cuts import projection as tree_projection
from reference.trees import arcs, enumerate_trees

TREES = pytest.mark.parametrize(
    ("projective", "single_root"),
    [(False, False), (False, True), (True, False), (True, True)],
    ids=["any roots", "one root", "projective, any roots", "projective, one root"],
)


def folder(projective):
    return projective_trees if projective else trees


def no_trees(scores):
    return np.empty((len(scores), 0, scores.shape[1]), np.int32)


def parts_of(heads):
    """Heads (…, N) as parts: head · N + word, −1 for the root and throughout a row of −1."""
    words = np.arange(heads.shape[-1])
    return np.where((heads < 0) | (words == 0), -1, heads * len(words) + words).astype(np.int32)


def heads_of(parts):
    """Parts (…, N) as heads, 0 for the root."""
    return np.maximum(parts, 0) // parts.shape[-1]


def project(
    scores,
    lengths,
    projective,
    single_root,
    tolerance=1e-12,
    max_iterations=10_000,
    lo=0,
    hi=None,
    dtype=np.float64,
    start=None,
):
    size = scores.shape[1]
    start = no_trees(scores) if start is None else start
    capacity = size * (size - 1) + 1
    point = np.full(scores.shape, 7.0, dtype)
    parts = np.full((len(scores), capacity, size), 7, np.int32)
    probabilities = np.full((len(scores), capacity), 7.0, dtype)
    count, iterations = np.full((2, len(scores)), 7)
    gap = np.full(len(scores), 7.0)
    end = folder(projective).mixture(
        scores, lengths, (single_root,), start, tolerance, max_iterations,
        point, parts, probabilities, count, gap, iterations, lo, len(scores) if hi is None else hi,
    )  # fmt: skip
    assert end == -1
    return point, parts, probabilities, count, gap, iterations


def pull_back(scores, lengths, projective, single_root, parts, count, gradient):
    product = np.full(scores.shape, 7.0, gradient.dtype)
    backward = folder(projective).mixture_backward
    end = backward(scores, lengths, (single_root,), parts, count, gradient, product, 0, len(scores))
    assert end == -1
    return product


def batch(rng, n, size, kind):
    """Scores of one kind for `size` sentences of n words."""
    normal = rng.normal(size=(size, n + 1, n + 1))
    chain = np.broadcast_to(np.eye(n + 1, k=1), normal.shape)
    return {
        "flat": lambda: 0.05 * normal,
        "normal": lambda: normal,
        "peaked": lambda: 10.0 * normal,
        "large": lambda: 1e4 * normal,
        "integers": lambda: rng.integers(-2, 3, size=normal.shape) / 2.0,
        "equal": lambda: np.full(normal.shape, 0.3),
        "nearly equal": lambda: 1e-7 * normal,
        "nearly tied": lambda: rng.integers(0, 2, size=normal.shape) + 1e-9 * normal,
        "masked": lambda: np.where((rng.random(normal.shape) < 0.6) & (chain == 0.0), -np.inf, normal),
        "vertex less a gradient": lambda: chain - 0.3 * normal,
    }[kind]()


KINDS = [
    "flat", "normal", "peaked", "large", "integers", "equal", "nearly equal", "nearly tied", "masked",
    "vertex less a gradient",
]  # fmt: skip


def magnitude(scores):
    used = scores[:, 1:][~np.eye(len(scores), dtype=bool)[:, 1:]]
    return max(1.0, np.abs(used[np.isfinite(used)]).max())


def frank_wolfe_gap(scores, point, projective, single_root):
    """⟨s − μ, argmax(s − μ) − μ⟩, with nothing taken from the kernel but the argmax, which has its own tests."""
    n = len(scores) - 1
    rest = scores - point
    heads = np.zeros((1, n + 1), np.int64)
    assert folder(projective).argmax(rest[None], np.array([n]), single_root, heads, 0, 1) == -1
    used = point > 0.0
    return rest[heads[0, 1:], np.arange(1, n + 1)].sum() - (rest[used] * point[used]).sum()


@TREES
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 5, 14, 25])
def test_the_point_is_optimal_and_is_the_mixture_it_claims_to_be(projective, single_root, kind, n):
    scores = batch(np.random.default_rng(n), n, 3, kind)
    tolerance = 1e-12 if projective else 1e-10  # where hundreds of trees mix, rounding is above 1e-12
    point, parts, probabilities, count, gap, _ = project(scores, np.full(3, n), projective, single_root, tolerance)
    for b in range(3):
        unit = magnitude(scores[b])
        assert gap[b] <= tolerance * unit
        assert frank_wolfe_gap(scores[b], point[b], projective, single_root) <= 1e-9 * unit
        heads, p = heads_of(parts[b, : count[b]]), probabilities[b, : count[b]]
        np.testing.assert_array_equal(parts_of(heads), parts[b, : count[b]])
        assert (p > 0.0).all() and p.sum() == pytest.approx(1.0, abs=1e-12)
        np.testing.assert_allclose(point[b], sum(q * arcs(tree[1:]) for q, tree in zip(p, heads)), rtol=0, atol=1e-14)
        matrices = np.array([arcs(tree[1:]).ravel() for tree in heads])
        assert np.linalg.matrix_rank(matrices[1:] - matrices[0]) == count[b] - 1  # affinely independent
        if single_root:
            assert ((heads[:, 1:] == 0).sum(1) == 1).all()
        assert (probabilities[b, count[b] :] == 7.0).all() and (parts[b, count[b] :] == 7).all()  # not written


@TREES
@pytest.mark.parametrize("kind", ["flat", "normal", "masked", "integers"])
def test_the_point_is_that_of_a_quadratic_program_over_all_trees(projective, single_root, kind):
    n = 4
    scores = batch(np.random.default_rng(3), n, 4, kind)
    point, *_ = project(scores, np.full(4, n), projective, single_root)
    vertices = np.array([arcs(tree).ravel() for tree in enumerate_trees(n, projective, single_root)])
    for b in range(4):
        flat = scores[b].ravel()
        allowed = vertices[:, np.isinf(flat)].sum(1) == 0
        target = np.where(np.isfinite(flat) & vertices.any(0), flat, 0.0)
        heavy = 1e4  # the weight of Σ p = 1
        system = np.vstack([vertices[allowed].T, np.full(allowed.sum(), heavy)])
        p, _ = nnls(system, np.append(target, heavy), maxiter=10_000)
        np.testing.assert_allclose(point[b].ravel(), vertices[allowed].T @ p, rtol=0, atol=1e-6)


@pytest.mark.parametrize("single_root", [False, True], ids=["any roots", "one root"])
@pytest.mark.parametrize("kind", KINDS)
def test_trees_and_cuts_lead_to_the_same_point(single_root, kind):
    for n in (6, 25):
        scores, lengths = batch(np.random.default_rng(n), n, 3, kind), np.full(3, n)
        by_cuts, sets, left = np.empty_like(scores), np.empty((3, n + 1, 1), np.int64), np.empty(3, bool)
        assert tree_projection.project(scores, lengths, single_root, 0, by_cuts, sets, left, 0, 3) == -1
        by_trees, *_ = project(scores, lengths, False, single_root, 1e-10)
        np.testing.assert_allclose(by_trees, by_cuts, rtol=0, atol=1e-8 * max(map(magnitude, scores)))


@TREES
@pytest.mark.parametrize("scale", [0.05, 0.1, 0.3, 1.0, 3.0])
def test_the_backward_pass_is_the_slope_of_the_point(projective, single_root, scale):
    rng = np.random.default_rng(5)
    for n, size in ((3, 12), (6, 12), (12, 8), (25, 2)):
        scores = scale * rng.normal(size=(size, n + 1, n + 1))
        lengths = np.full(size, n)
        gradient, direction = rng.normal(size=(2, *scores.shape))
        _, parts, _, count, _, _ = project(scores, lengths, projective, single_root)
        product = pull_back(scores, lengths, projective, single_root, parts, count, gradient)
        step, tolerance = 1e-7, 1e-13 if projective else 1e-12
        ahead, behind = (
            project(scores + h * direction, lengths, projective, single_root, tolerance)[0] for h in (step, -step)
        )
        slope = (gradient * (ahead - behind)).sum((1, 2)) / (2 * step)
        np.testing.assert_allclose((product * direction).sum((1, 2)), slope, rtol=0, atol=1e-4)


@TREES
def test_given_trees_are_a_start_and_leave_again_if_they_do_not_belong(projective, single_root):
    rng = np.random.default_rng(4)
    scores, lengths = 0.3 * rng.normal(size=(2, 13, 13)), np.full(2, 12)
    cold = project(scores, lengths, projective, single_root, 1e-10)
    _, elsewhere, *_ = project(rng.normal(size=scores.shape), lengths, projective, single_root)
    elsewhere = elsewhere[:, :9].copy()  # kernels are compiled for contiguous arrays
    absent = np.full((2, 1, 13), -1, np.int32)
    solved = np.concatenate([absent, cold[1][:, : cold[3].max()]], 1)
    for b in range(2):
        solved[b, 1 + cold[3][b] :] = -1
    for start, rounds in ((solved, 0), (np.repeat(solved, 2, 1), 0), (absent, cold[5]), (elsewhere, None)):
        warm = project(scores, lengths, projective, single_root, 1e-10, start=start)
        np.testing.assert_allclose(warm[0], cold[0], rtol=0, atol=1e-9)
        assert rounds is None or (warm[5] == rounds).all()
    scores[0].flat[solved[0, 1, 1]] = -np.inf  # of the trees given now, some are forbidden
    warm = project(scores, lengths, projective, single_root, 1e-10, start=solved)
    cold = project(scores, lengths, projective, single_root, 1e-10)
    np.testing.assert_allclose(warm[0], cold[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("projective", [False, True], ids=["any", "projective"])
def test_the_backward_pass_adds_the_trees_that_the_face_still_lacks(projective):
    """Words 2, 4 and 6 choose between their neighbors, each by itself: the face is a cube, the point its center.

    Two opposite corners are enough to mix the point, but not to span the cube.
    """
    scores = np.full((1, 8, 8), -9.0)
    scores[0, 0, 1::2] = 9.0
    evens = np.array([2, 4, 6])
    scores[0, evens - 1, evens] = scores[0, evens + 1, evens] = 0.5
    lengths = np.array([7])
    corners = np.array([[[0, 0, 1, 0, 3, 0, 5, 0], [0, 0, 3, 0, 5, 0, 7, 0]]])
    point, parts, _, count, _, _ = project(scores, lengths, projective, False)
    np.testing.assert_allclose(point[0], 0.5 * (arcs(corners[0, 0, 1:]) + arcs(corners[0, 1, 1:])), atol=1e-12)
    gradient = np.random.default_rng(6).normal(size=scores.shape)
    expected = np.zeros((8, 8))
    half = 0.5 * (gradient[0, evens - 1, evens] - gradient[0, evens + 1, evens])
    expected[evens - 1, evens], expected[evens + 1, evens] = half, -half
    for vertices, number in ((parts_of(corners), np.array([2])), (parts, count)):
        product = pull_back(scores, lengths, projective, False, vertices, number, gradient)
        np.testing.assert_allclose(product[0], expected, rtol=0, atol=1e-12)


@TREES
def test_padding_is_never_read_and_comes_back_as_zero(projective, single_root):
    rng = np.random.default_rng(7)
    lengths = np.array([3, 0, 6, 1])
    scores, gradient = np.full((2, 4, 8, 8), np.nan)
    whole = rng.normal(size=(2, 4, 8, 8))
    off_diagonal = ~np.eye(8, dtype=bool)
    for b, n in enumerate(lengths):
        used = np.zeros((8, 8), bool)
        used[: n + 1, 1 : n + 1] = True
        used &= off_diagonal
        scores[b, used], gradient[b, used] = whole[0, b, used], whole[1, b, used]
    point, parts, _, count, _, _ = project(scores, lengths, projective, single_root)
    product = pull_back(scores, lengths, projective, single_root, parts, count, gradient)
    for b, n in enumerate(lengths):
        alone = np.ascontiguousarray(scores[b : b + 1, : n + 1, : n + 1])
        one, vertices, _, number, _, _ = project(alone, lengths[b : b + 1], projective, single_root)
        back = pull_back(
            alone,
            lengths[b : b + 1],
            projective,
            single_root,
            vertices,
            number,
            np.ascontiguousarray(gradient[b : b + 1, : n + 1, : n + 1]),
        )
        for got, want in ((point[b], one[0]), (product[b], back[0])):
            np.testing.assert_array_equal(got[: n + 1, : n + 1], want)
            assert (got[n + 1 :] == 0.0).all() and (got[:, n + 1 :] == 0.0).all() and (got[:, 0] == 0.0).all()
    assert count[1] == 1 and (point[1] == 0.0).all()


def test_float32_scores_are_projected_in_double_precision():
    scores = np.random.default_rng(8).normal(size=(3, 11, 11)).astype(np.float32)
    lengths = np.full(3, 10)
    point, parts, _, count, _, _ = project(scores, lengths, True, False, dtype=np.float32)
    exact, *_ = project(scores.astype(float), lengths, True, False)
    np.testing.assert_array_equal(point, exact.astype(np.float32))
    gradient = np.random.default_rng(9).normal(size=scores.shape).astype(np.float32)
    product = pull_back(scores, lengths, True, False, parts, count, gradient)
    double = pull_back(scores.astype(float), lengths, True, False, parts, count, gradient.astype(float))
    np.testing.assert_allclose(product, double, rtol=0, atol=1e-6)


def test_only_the_given_range_is_written():
    scores = np.random.default_rng(10).normal(size=(4, 5, 5))
    whole = project(scores, np.full(4, 4), True, True)
    for part, all_ in zip(project(scores, np.full(4, 4), True, True, lo=1, hi=3), whole):
        assert (part[[0, 3]] == 7).all()
        np.testing.assert_array_equal(part[1:3], all_[1:3])


def test_a_search_that_is_cut_short_says_so():
    scores = 0.1 * np.random.default_rng(11).normal(size=(2, 13, 13))
    point, _, _, _, gap, iterations = project(scores, np.full(2, 12), True, False, max_iterations=5)
    assert (iterations == 5).all() and (gap > 1e-3).all()
    for b in range(2):
        assert gap[b] == pytest.approx(frank_wolfe_gap(scores[b], point[b], True, False), rel=1e-9)


@TREES
def test_an_instance_without_trees_or_with_nan_scores_is_named(projective, single_root):
    lengths = np.full(3, 3)
    headless, cyclic, unclear = np.random.default_rng(12).normal(size=(3, 3, 4, 4))
    headless[1, :, 2] = -np.inf
    cyclic[1, 0] = -np.inf
    unclear[1, 2, 1] = np.nan
    for scores in (headless, cyclic, unclear):
        out = np.empty((3, 4, 4)), np.empty((3, 9, 4), np.int32), np.empty((3, 9))
        ends = np.empty(3, np.int64), np.empty(3), np.empty(3, np.int64)
        kernel = folder(projective).mixture
        assert kernel(scores, lengths, (single_root,), no_trees(scores), 1e-9, 99, *out, *ends, 0, 3) == 1


def test_trees_beyond_the_capacity_are_counted_but_not_written():
    scores = 0.1 * np.random.default_rng(13).normal(size=(2, 9, 9))
    lengths = np.full(2, 8)
    point, parts, probabilities, count, _, _ = project(scores, lengths, True, False)
    few, least = np.empty((2, 5, 9), np.int32), np.empty((2, 5))
    again, number, gap, iterations = np.empty_like(point), np.empty(2, np.int64), np.empty(2), np.empty(2, np.int64)
    report = number, gap, iterations
    start = no_trees(scores)
    end = projective_trees.mixture(scores, lengths, (False,), start, 1e-12, 10_000, again, few, least, *report, 0, 2)
    assert end == -1
    for got, want in ((again, point), (number, count), (few, parts[:, :5]), (least, probabilities[:, :5])):
        np.testing.assert_array_equal(got, want)
    backward = projective_trees.mixture_backward
    assert backward(scores, lengths, (False,), few, number, scores, np.empty_like(scores), 0, 2) == 0

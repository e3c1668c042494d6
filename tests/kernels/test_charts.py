"""SparseMAP on charts, against the listed vertices, and by its certificate where there are too many to list."""

import numpy as np
import pytest

from pullback.kernels.charts import passes, projection, span
from pullback.kernels.charts.chart import sub_chart
from pullback.kernels.charts.structures import PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS, chart_of
from pullback.kernels.constituency import cky
from pullback.kernels.projective_trees import best as eisner
from pullback.operators import _flat
from reference.active_set import face_projector
from reference.active_set import project as nearest_of
from reference.charts import best_through, enumerate_vertices

STRUCTURES = [PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS]
NAMES = ["any roots", "one root", "spans"]
each = pytest.mark.parametrize("structure", STRUCTURES, ids=NAMES)


def size_of(structure, n):
    return n if structure == SPANS else n + 1


def normal(rng, shape, scale):
    return scale * rng.normal(size=shape)


def tied(rng, shape, scale):
    return scale * rng.integers(-1, 2, size=shape) / 4


def project(structure, scores, n):
    """(points, what is left of the scores, gaps) of a batch over n words each."""
    point, rest, gap = np.full(scores.shape, 7.0), np.full(scores.shape, 7.0), np.full(len(scores), 7.0)
    before = scores.copy()
    assert projection.project(scores, np.full(len(scores), n), structure, 1e-9, point, rest, gap, 0, len(scores)) == -1
    np.testing.assert_array_equal(scores, before)
    return point, rest, gap


def differentiate(structure, rest, n, gradient):
    product = np.full(rest.shape, 7.0)
    assert projection.project_backward(rest, np.full(len(rest), n), structure, gradient, product, 0, len(rest)) == -1
    return product


def best_vertices(structure, scores, n):
    """The argmax of the structure's own kernel, as zeros and ones, single words left out."""
    lengths = np.full(len(scores), n)
    if structure == SPANS:
        vertices = np.empty((*scores.shape, 1))
        assert cky.argmax(scores[..., None], lengths, vertices, 0, len(scores)) == -1
        return vertices[..., 0] * (1 - np.eye(n))
    heads = np.zeros(scores.shape[:2], np.int64)
    single_root = structure == SINGLE_ROOT_TREES
    assert eisner.argmax(scores, lengths, single_root, heads, 0, len(scores)) == -1
    arcs = np.zeros(scores.shape)
    for vertex, chosen in zip(arcs, heads):
        vertex[chosen[1:], np.arange(1, n + 1)] = 1.0
    return arcs


def gaps(structure, scores, point, n):
    """⟨s − μ, z − μ⟩ for the best vertex z, and the largest score of a part in use."""
    away = best_vertices(structure, np.where(np.isneginf(scores), -np.inf, scores - point), n) - point
    terms = np.where(away != 0, np.where(np.isneginf(scores), 0, scores - point) * away, 0)
    return terms.sum((1, 2)), np.maximum(1, np.abs(np.where(point > 0, scores, 0)).max((1, 2)))


# ---- what a chart is


def test_operators_and_kernels_number_charts_alike():
    assert STRUCTURES == [_flat.PROJECTIVE_TREES, _flat.SINGLE_ROOT_TREES, _flat.SPANS]


@pytest.mark.parametrize(
    ("structure", "counts"),
    list(zip(STRUCTURES, [[1, 3, 12, 55, 273], [1, 2, 7, 30, 143], [1, 1, 2, 5, 14, 42]])),
    ids=NAMES,
)
def test_a_chart_has_as_many_vertices_as_mathematics_says_and_none_twice(structure, counts):
    for n, count in enumerate(counts, 1):
        size = size_of(structure, n)
        vertices = enumerate_vertices(chart_of(structure, n, size), size * size)
        assert len(vertices) == len(np.unique(vertices, axis=0)) == count
        assert np.isin(vertices, (0.0, 1.0)).all()


@each
def test_a_sub_chart_has_the_vertices_made_of_the_hyperedges_that_are_kept(structure):
    rng = np.random.default_rng(0)
    n, size = 4, size_of(structure, 4)
    chart = chart_of(structure, n, size)
    for _ in range(20):
        keep = rng.random(len(chart.left)) < 0.8
        scores = rng.normal(size=size * size)
        sub = sub_chart(chart, keep.copy())
        if len(sub.part) == 1:
            continue
        every = {tuple(vertex) for vertex in enumerate_vertices(chart, size * size)}
        assert {tuple(vertex) for vertex in enumerate_vertices(sub, size * size)} <= every
        assert keep[sub.edge.astype(int)].all()
        assert (best_through(sub, scores) > -np.inf).all()  # no hyperedge is in vain


@each
def test_passes_count_what_listing_the_vertices_counts(structure):
    rng = np.random.default_rng(1)
    n, size = 4, size_of(structure, 4)
    chart = chart_of(structure, n, size)
    vertices = enumerate_vertices(chart, size * size)
    items, is_part = len(chart.part), chart.part >= 0
    scores, direction = rng.normal(size=(2, size * size))
    score, turned = np.zeros((2, items))
    score[is_part], turned[is_part] = scores[chart.part[is_part]], direction[chart.part[is_part]]
    value, flow, product = np.empty((3, items))
    share, below = np.empty((2, len(chart.left)))

    log_sum = passes.inside(chart, score, value, share)
    weights = np.exp(vertices @ scores)
    np.testing.assert_allclose(log_sum, np.log(weights.sum()), rtol=1e-13)
    passes.outside(chart, share, flow)
    mean = weights @ vertices / weights.sum()
    np.testing.assert_allclose(flow[is_part], mean[chart.part[is_part]], atol=1e-13)
    passes.covary(chart, share, flow, turned, value, below, product)
    covariance = (weights * vertices.T) @ vertices / weights.sum() - np.outer(mean, mean)
    np.testing.assert_allclose(product[is_part], (covariance @ direction)[chart.part[is_part]], atol=1e-13)
    slack = np.empty(len(chart.left))
    best = passes.slacks(chart, score, value, flow, slack)
    np.testing.assert_allclose(best, (vertices @ scores).max(), rtol=1e-13)
    np.testing.assert_allclose(best - slack, best_through(chart, scores), atol=1e-12)


@each
def test_the_span_of_a_chart_is_that_of_the_differences_of_its_vertices(structure):
    rng = np.random.default_rng(2)
    n, size = 5, size_of(structure, 5)
    chart = chart_of(structure, n, size)
    face = sub_chart(chart, rng.random(len(chart.left)) < 0.85)
    vertices = enumerate_vertices(face, size * size)
    direction = rng.normal(size=size * size)
    across = np.where(face.part >= 0, direction[face.part], 0.0)
    span.leave_span(face, across, 1e-13, span.room_for(face))
    projector = face_projector(np.zeros(size * size), vertices, vertices[0])
    found = np.zeros(size * size)
    found[face.part[face.part >= 0]] = (direction[face.part] - across)[face.part >= 0]
    np.testing.assert_allclose(found, projector @ direction, atol=1e-11)


# ---- the nearest point


@each
@pytest.mark.parametrize("draw", [normal, tied], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("forbidden", [0.0, 0.4], ids=["no mask", "mask"])
def test_the_point_is_the_nearest_of_the_hull_and_its_derivative_projects_onto_its_face(structure, draw, forbidden):
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 5):
        if structure == SPANS and n == 1:
            continue  # a word has no part but itself
        size = size_of(structure, n)
        vertices = enumerate_vertices(chart_of(structure, n, size), size * size)
        for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1000.0):
            scores = draw(rng, (size, size), scale)
            allowed = vertices[rng.integers(len(vertices))].reshape(size, size) == 1  # so that one is left
            scores[(rng.random((size, size)) < forbidden) & ~allowed] = -np.inf
            point, rest, gap = project(structure, scores[None], n)
            assert gap[0] <= 1e-9 * max(1.0, 4 * scale)
            used = np.where(vertices.any(0), scores.ravel(), 0.0)  # what is no part has no score
            expected = nearest_of(used, vertices)
            np.testing.assert_allclose(
                point.ravel(), expected, atol=1e-9 * max(1.0, np.abs(used[used > -np.inf]).max())
            )

            gradient = rng.normal(size=(1, size, size))
            product = differentiate(structure, rest, n, gradient)
            kept = vertices[~vertices[:, np.isneginf(used)].any(1)]
            theta = np.where(np.isneginf(rest), 0.0, rest).ravel()
            best = kept[kept @ theta >= (kept @ theta).max() - 1e-8]
            projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
            np.testing.assert_allclose(product.ravel(), projector @ gradient.ravel(), atol=1e-9)


def mask_some(rng, structure, scores):
    """Forbids three parts in ten, and leaves a vertex."""
    scores[(rng.random(scores.shape) < 0.3) & ~np.eye(len(scores), dtype=bool)] = -np.inf
    scores[0] = np.where(np.isneginf(scores[0]), 0.0, scores[0])  # the root may govern every word
    scores[:, -1] = np.where(np.isneginf(scores[:, -1]), 0.0, scores[:, -1])  # every word may begin the last span


@each
@pytest.mark.parametrize("forbidden", [False, True], ids=["no mask", "mask"])
def test_tiny_scores_have_the_point_and_the_face_that_enumeration_says(structure, forbidden):
    rng = np.random.default_rng(8)
    n, size = 5, size_of(structure, 5)
    vertices = enumerate_vertices(chart_of(structure, n, size), size * size)
    for scale in (1e-12, 1e-9, 1e-7, 1e-5, 1e-4, 4e-4):
        scores = rng.normal(size=(size, size))
        if forbidden:
            mask_some(rng, structure, scores)
        kept = vertices[~vertices[:, np.isneginf(scores.ravel())].any(1)]
        used = np.where(kept.any(0), scores.ravel(), 0.0)
        point, rest, gap = project(structure, scale * scores[None], n)
        assert gap[0] <= 1e-9
        # the point is that of equal scores, and moves along a line as they grow
        still, beyond = nearest_of(0 * used, kept), nearest_of(1e-3 * used, kept)
        np.testing.assert_allclose(point.ravel(), still + (beyond - still) * scale / 1e-3, atol=2e-10)
        best = kept[kept @ (1e-3 * used - beyond) >= (kept @ (1e-3 * used - beyond)).max() - 1e-8]
        gradient = rng.normal(size=(1, size, size))
        projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
        product = differentiate(structure, rest, n, gradient)
        np.testing.assert_allclose(product.ravel(), projector @ gradient.ravel(), atol=1e-9)


TINY = pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-7, 1e-5, 3e-4], ids=lambda scale: f"scale {scale:g}")


@each
@TINY
def test_tiny_scores_have_a_certificate(structure, scale):
    rng = np.random.default_rng(9)
    n, size = 24, size_of(structure, 24)
    scores = rng.normal(size=(3, size, size))
    scores[1] *= rng.random((size, size)) < 0.01  # nearly all are equal
    mask_some(rng, structure, scores[2])
    point, _, gap = project(structure, scale * scores, n)
    found, _ = gaps(structure, scale * scores, point, n)
    assert (gap <= 1e-9).all() and (found <= 1e-9).all()


@each
@TINY
def test_the_derivative_at_tiny_scores_is_that_of_central_differences(structure, scale):
    rng = np.random.default_rng(10)
    n, size = 20, size_of(structure, 20)
    scores, gradient, other = rng.normal(size=(3, 1, size, size))
    _, rest, _ = project(structure, scale * scores, n)
    product = differentiate(structure, rest, n, gradient)
    step = 1e-4  # times the scale, which sets the distance to a kink; and then all is linear up to scores of 1e-3
    ahead, back = (project(structure, 6e-4 * (scores + sign * step * gradient), n)[0] for sign in (1, -1))
    np.testing.assert_allclose(product, (ahead - back) / (2 * 6e-4 * step), atol=5e-3)
    np.testing.assert_allclose((product * other).sum(), (differentiate(structure, rest, n, other) * gradient).sum())
    np.testing.assert_allclose(differentiate(structure, rest, n, product), product, atol=1e-9)


@each
def test_equal_scores_have_the_derivative_of_the_whole_hull(structure):
    """All vertices tie, so it takes from a gradient only what they have in common."""
    rng = np.random.default_rng(11)
    n, size = 30, size_of(structure, 30)
    _, rest, gap = project(structure, np.full((1, size, size), 0.7), n)
    assert gap[0] <= 1e-9
    gradient = rng.normal(size=(1, size, size))
    product = differentiate(structure, rest, n, gradient)[0]
    rows, columns = np.indices((size, size))
    if structure == SPANS:
        is_part = (rows < columns) & ~((rows == 0) & (columns == n - 1))  # the span of all words is in every tree
        common = is_part[None]
    else:
        is_part = (rows != columns) & (columns > 0)
        common = np.stack([is_part & (columns == modifier) for modifier in range(1, size)])
        if structure == SINGLE_ROOT_TREES:
            common = np.concatenate([common, is_part[None] & (rows == 0)])
    common = common.reshape(len(common), -1).astype(float)
    expected = np.where(is_part, gradient[0], 0.0).ravel()
    expected -= np.linalg.lstsq(common.T, expected, rcond=None)[0] @ common
    np.testing.assert_allclose(product.ravel(), expected, atol=1e-9)


@each
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.01, 0.1, 1.0, 10.0, 1000.0], ids=lambda scale: f"scale {scale:g}")
def test_longer_sentences_have_a_certificate(structure, scale):
    rng = np.random.default_rng(4)
    n, size = 20, size_of(structure, 20)
    scores = scale * rng.normal(size=(3, size, size))
    scores[1] += 100.0 * rng.normal()
    scores[2][(rng.random((size, size)) < 0.3) & ~np.eye(size, dtype=bool)] = -np.inf
    scores[2][0] = 0.0  # the root may govern every word; the first word may begin every span
    scores[2][:, -1] = 0.0
    point, _, gap = project(structure, scores, n)
    found, unit = gaps(structure, scores, point, n)
    assert (gap < np.inf).all()
    assert (found <= 1e-9 * unit).all()


@each
def test_what_all_vertices_have_in_common_does_not_move_the_point(structure):
    rng = np.random.default_rng(7)
    n, size = 9, size_of(structure, 9)
    scores = 0.1 * rng.normal(size=(1, size, size))
    offset = 1e3 * rng.normal(size=(1, 1, 1 if structure == SPANS else size))  # trees have one arc into each word
    given, moved = project(structure, scores, n), project(structure, scores + offset, n)
    np.testing.assert_allclose(moved[0], given[0], atol=1e-9)


@each
def test_the_derivative_is_that_of_central_differences(structure):
    rng = np.random.default_rng(5)
    n, size = 8, size_of(structure, 8)
    scores, direction = 0.1 * rng.normal(size=(1, size, size)), rng.normal(size=(1, size, size))
    _, rest, _ = project(structure, scores, n)
    ahead, back = (project(structure, scores + step * direction, n)[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(differentiate(structure, rest, n, direction), (ahead - back) / 2e-6, atol=1e-5)


def test_instances_without_a_length_are_left_alone():
    scores = np.zeros((3, 4, 4))
    point, rest, gap = np.full((3, 4, 4), 7.0), np.full((3, 4, 4), 7.0), np.full(3, 7.0)
    assert projection.project(scores, np.array([-1, 3, 0]), SPANS, 1e-9, point, rest, gap, 0, 3) == -1
    assert (point[[0, 2]] == 7.0).all() and (gap[[0, 2]] == 7.0).all()
    assert gap[1] <= 1e-9


def test_padding_is_zero_whatever_its_scores():
    scores = np.full((1, 9, 9), np.nan)
    scores[0, :6, :6] = 0.01 * np.random.default_rng(6).normal(size=(6, 6))
    point, rest, _ = project(PROJECTIVE_TREES, scores, 5)
    alone = project(PROJECTIVE_TREES, np.ascontiguousarray(scores[:, :6, :6]), 5)[0]
    np.testing.assert_array_equal(point[:, :6, :6], alone)
    assert not point[0, 6:].any() and not point[0, :, 6:].any() and not point[0, :, 0].any()
    assert np.isneginf(rest[0, 6:]).all()

"""SparseMAP on charts, against the listed vertices, and by its certificate where there are too many to list."""

from typing import NamedTuple

import numpy as np
import pytest

from pullback.kernels.charts import passes, projection, span
from pullback.kernels.charts.chart import NO_PART, sub_chart
from pullback.kernels.charts.structures import PROJECTIVE_TREES, SINGLE_ROOT_TREES, SPANS, chart_of
from pullback.kernels.constituency import cky
from pullback.kernels.projective_trees import best as eisner
from pullback.operators import _flat
from reference.active_set import face_projector
from reference.active_set import project as nearest_of
from reference.charts import best_through, enumerate_vertices


class Kind(NamedTuple):
    """A structure and its number of labels."""

    structure: int
    labels: int

    def shape(self, n):
        size = n if self.structure == SPANS else n + 1
        return (size, size, self.labels)

    def chart(self, n):
        size, _, labels = self.shape(n)
        return chart_of(self.structure, n, size, labels)

    def vertices(self, n):
        return enumerate_vertices(self.chart(n), int(np.prod(self.shape(n))))

    def is_single_word(self, n):
        """Where the labels of single words are."""
        return np.broadcast_to(
            (self.structure == SPANS) & np.eye(self.shape(n)[0], dtype=bool)[..., None], self.shape(n)
        )


NAMES = {PROJECTIVE_TREES: "any roots", SINGLE_ROOT_TREES: "one root", SPANS: "spans"}
KINDS = [Kind(structure, labels) for labels in (1, 3) for structure in NAMES]


def name_of(kind):
    return NAMES[kind.structure] + (f", {kind.labels} labels" if kind.labels > 1 else "")


each = pytest.mark.parametrize("kind", KINDS, ids=name_of)


def normal(rng, shape, scale):
    return scale * rng.normal(size=shape)


def tied(rng, shape, scale):
    return scale * rng.integers(-1, 2, size=shape) / 4


def project(kind, scores, n):
    """(points, what is left of the scores, gaps) of a batch over n words each."""
    point, rest, gap = np.full(scores.shape, 7.0), np.full(scores.shape, 7.0), np.full(len(scores), 7.0)
    before, lengths = scores.copy(), np.full(len(scores), n)
    assert projection.project(scores, lengths, kind.structure, 1e-9, point, rest, gap, 0, len(scores)) == -1
    np.testing.assert_array_equal(scores, before)
    return point, rest, gap


def differentiate(kind, rest, n, gradient):
    product, lengths = np.full(rest.shape, 7.0), np.full(len(rest), n)
    assert projection.project_backward(rest, lengths, kind.structure, gradient, product, 0, len(rest)) == -1
    return product


def best_vertices(kind, scores, n):
    """The argmax of the structure's own kernel, as zeros and ones, single words left out where they have no labels."""
    lengths = np.full(len(scores), n)
    if kind.structure == SPANS:
        vertices = np.empty(scores.shape)
        assert cky.argmax(scores, lengths, vertices, 0, len(scores)) == -1
        return np.where((kind.labels == 1) & kind.is_single_word(n), 0.0, vertices)
    heads = np.zeros(scores.shape[:2], np.int64)
    single_root = kind.structure == SINGLE_ROOT_TREES
    assert eisner.argmax(scores.max(-1), lengths, single_root, heads, 0, len(scores)) == -1
    arcs, words = np.zeros(scores.shape), np.arange(1, n + 1)
    for vertex, chosen, given in zip(arcs, heads, scores):
        vertex[chosen[1:], words, given[chosen[1:], words].argmax(-1)] = 1.0
    return arcs


def gaps(kind, scores, point, n):
    """⟨s − μ, z − μ⟩ for the best vertex z, and the largest score of a part in use."""
    away = best_vertices(kind, np.where(np.isneginf(scores), -np.inf, scores - point), n) - point
    terms = np.where(away != 0, np.where(np.isneginf(scores), 0, scores - point) * away, 0)
    return terms.sum((1, 2, 3)), np.maximum(1, np.abs(np.where(point > 0, scores, 0)).max((1, 2, 3)))


# ---- what a chart is


def test_operators_and_kernels_number_charts_alike():
    assert list(NAMES) == [_flat.PROJECTIVE_TREES, _flat.SINGLE_ROOT_TREES, _flat.SPANS]


COUNTS = {PROJECTIVE_TREES: [1, 3, 12, 55, 273], SINGLE_ROOT_TREES: [1, 2, 7, 30, 143], SPANS: [1, 1, 2, 5, 14, 42]}


@each
def test_a_chart_has_as_many_vertices_as_mathematics_says_and_none_twice(kind):
    for n, count in enumerate(COUNTS[kind.structure], 1):
        labelled = 2 * n - 1 if kind.structure == SPANS else n  # what has a label in a tree
        count *= kind.labels**labelled
        if count > 20_000:
            break
        vertices = kind.vertices(n)
        assert len(vertices) == len(np.unique(vertices, axis=0)) == count
        assert np.isin(vertices, (0.0, 1.0)).all()
        if kind.structure == SPANS and kind.labels > 1:
            assert (vertices.sum(1) == labelled).all()


@each
def test_items_come_after_those_they_are_made_of_and_every_vertex_has_one_part_of_a_group(kind):
    for n in (1, 2, 3, 17):
        chart = kind.chart(n)
        for item in range(1, len(chart.part)):
            lo, hi = int(chart.first[item]), int(chart.first[item + 1])
            assert lo < hi and (chart.left[lo:hi] < item).all() and (chart.right[lo:hi] < item).all()
        assert ((chart.part >= 0) == (chart.group > NO_PART)).all()
        assert (chart.right[chart.left == 0] == 0).all()
        parts = chart.part[chart.part >= 0]
        assert len(np.unique(parts)) == len(parts)
    chart, vertices = kind.chart(3), kind.vertices(3)
    for group in range(chart.group.max() + 1):
        assert (vertices[:, chart.part[chart.group == group]].sum(1) == (chart.group == group).any()).all()


@each
def test_a_sub_chart_has_the_vertices_made_of_the_hyperedges_that_are_kept(kind):
    rng = np.random.default_rng(0)
    n = 4 if kind.labels == 1 else 3
    chart = kind.chart(n)
    parts = int(np.prod(kind.shape(n)))
    for _ in range(20):
        keep = rng.random(len(chart.left)) < 0.8
        scores = rng.normal(size=parts)
        sub = sub_chart(chart, keep.copy())
        if len(sub.part) == 1:
            continue
        every = {tuple(vertex) for vertex in enumerate_vertices(chart, parts)}
        assert {tuple(vertex) for vertex in enumerate_vertices(sub, parts)} <= every
        assert keep[sub.edge.astype(int)].all()
        assert (best_through(sub, scores) > -np.inf).all()  # no hyperedge is in vain


@each
def test_passes_count_what_listing_the_vertices_counts(kind):
    rng = np.random.default_rng(1)
    n = 4 if kind.labels == 1 else 3
    chart, vertices = kind.chart(n), kind.vertices(n)
    items, is_part = len(chart.part), chart.part >= 0
    scores, direction = rng.normal(size=(2, vertices.shape[1]))
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
    assert (product[~is_part] == 0).all()
    gain, ease = np.empty(len(share)), rng.random(len(share))
    total = passes.gains(chart, share, ease, turned, value, gain)
    item = np.repeat(np.arange(items), np.diff(chart.first).astype(int))
    np.testing.assert_allclose(gain, (below - (value - turned)[item]), atol=1e-13)
    np.testing.assert_allclose(total, ease @ gain**2, rtol=1e-13)
    slack = np.empty(len(chart.left))
    best = passes.slacks(chart, score, value, flow, slack)
    np.testing.assert_allclose(best, (vertices @ scores).max(), rtol=1e-13)
    np.testing.assert_allclose(best - slack, best_through(chart, scores), atol=1e-12)


@each
def test_the_span_of_a_chart_is_that_of_the_differences_of_its_vertices(kind):
    rng = np.random.default_rng(2)
    n = 5 if kind.labels == 1 else 3
    chart, parts = kind.chart(n), int(np.prod(kind.shape(n)))
    face = sub_chart(chart, rng.random(len(chart.left)) < 0.85)
    vertices = enumerate_vertices(face, parts)
    direction = rng.normal(size=parts)
    across = np.where(face.part >= 0, direction[face.part], 0.0)
    span.leave_span(face, across, 1e-13, span.room_for(face))
    projector = face_projector(np.zeros(parts), vertices, vertices[0])
    found = np.zeros(parts)
    found[face.part[face.part >= 0]] = (direction[face.part] - across)[face.part >= 0]
    np.testing.assert_allclose(found, projector @ direction, atol=1e-11)


# ---- the nearest point


@each
@pytest.mark.parametrize("draw", [normal, tied], ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("forbidden", [0.0, 0.4], ids=["no mask", "mask"])
def test_the_point_is_the_nearest_of_the_hull_and_its_derivative_projects_onto_its_face(kind, draw, forbidden):
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 5) if kind.labels == 1 else (1, 2, 3):
        if kind == (SPANS, 1) and n == 1:
            continue  # a word has no part but itself
        shape, vertices = kind.shape(n), kind.vertices(n)
        for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1000.0):
            scores = draw(rng, shape, scale)
            allowed = vertices[rng.integers(len(vertices))].reshape(shape) == 1  # so that one is left
            scores[(rng.random(shape) < forbidden) & ~allowed] = -np.inf
            point, rest, gap = project(kind, scores[None], n)
            assert gap[0] <= 1e-9 * max(1.0, 4 * scale)
            used = np.where(vertices.any(0), scores.ravel(), 0.0)  # what is no part has no score
            expected = nearest_of(used, vertices)
            np.testing.assert_allclose(
                point.ravel(), expected, atol=1e-9 * max(1.0, np.abs(used[used > -np.inf]).max())
            )

            gradient = rng.normal(size=(1, *shape))
            product = differentiate(kind, rest, n, gradient)
            kept = vertices[~vertices[:, np.isneginf(used)].any(1)]
            theta = np.where(np.isneginf(rest), 0.0, rest).ravel()
            best = kept[kept @ theta >= (kept @ theta).max() - 1e-8]
            projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
            np.testing.assert_allclose(product.ravel(), projector @ gradient.ravel(), atol=1e-9)


def mask_some(rng, scores):
    """Forbids three parts in ten, and leaves a vertex."""
    forbidden = rng.random(scores.shape) < 0.3
    forbidden[np.arange(len(scores)), np.arange(len(scores)), 0] = False  # a single word keeps a label
    forbidden[0] = False  # the root may govern every word
    forbidden[:, -1, 0] = False  # every word may begin the last span
    scores[forbidden] = -np.inf


@each
@pytest.mark.parametrize("forbidden", [False, True], ids=["no mask", "mask"])
def test_tiny_scores_have_the_point_and_the_face_that_enumeration_says(kind, forbidden):
    rng = np.random.default_rng(8)
    n = 5 if kind.labels == 1 else 3
    shape, vertices = kind.shape(n), kind.vertices(n)
    for scale in (1e-12, 1e-9, 1e-7, 1e-5, 1e-4, 4e-4):
        scores = rng.normal(size=shape)
        if forbidden:
            mask_some(rng, scores)
        kept = vertices[~vertices[:, np.isneginf(scores.ravel())].any(1)]
        used = np.where(kept.any(0), scores.ravel(), 0.0)
        point, rest, gap = project(kind, scale * scores[None], n)
        assert gap[0] <= 1e-9
        # the point is that of equal scores, and moves along a line as they grow
        still, beyond = nearest_of(0 * used, kept), nearest_of(1e-3 * used, kept)
        np.testing.assert_allclose(point.ravel(), still + (beyond - still) * scale / 1e-3, atol=2e-10)
        best = kept[kept @ (1e-3 * used - beyond) >= (kept @ (1e-3 * used - beyond)).max() - 1e-8]
        gradient = rng.normal(size=(1, *shape))
        projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
        product = differentiate(kind, rest, n, gradient)
        np.testing.assert_allclose(product.ravel(), projector @ gradient.ravel(), atol=1e-9)


TINY = pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-7, 1e-5, 3e-4], ids=lambda scale: f"scale {scale:g}")


@each
@TINY
def test_tiny_scores_have_a_certificate(kind, scale):
    rng = np.random.default_rng(9)
    n = 24 if kind.labels == 1 else 12
    scores = rng.normal(size=(3, *kind.shape(n)))
    scores[1] *= rng.random(kind.shape(n)) < 0.01  # nearly all are equal
    mask_some(rng, scores[2])
    point, _, gap = project(kind, scale * scores, n)
    found, _ = gaps(kind, scale * scores, point, n)
    assert (gap <= 1e-9).all() and (found <= 1e-9).all()


@each
@TINY
def test_the_derivative_at_tiny_scores_is_that_of_central_differences(kind, scale):
    rng = np.random.default_rng(10)
    n = 20 if kind.labels == 1 else 10
    scores, gradient, other = rng.normal(size=(3, 1, *kind.shape(n)))
    _, rest, _ = project(kind, scale * scores, n)
    product = differentiate(kind, rest, n, gradient)
    step = 1e-4  # times the scale, which sets the distance to a kink; and then all is linear up to scores of 1e-3
    ahead, back = (project(kind, 6e-4 * (scores + sign * step * gradient), n)[0] for sign in (1, -1))
    np.testing.assert_allclose(product, (ahead - back) / (2 * 6e-4 * step), atol=5e-3)
    np.testing.assert_allclose((product * other).sum(), (differentiate(kind, rest, n, other) * gradient).sum())
    np.testing.assert_allclose(differentiate(kind, rest, n, product), product, atol=1e-9)


@each
def test_equal_scores_have_the_derivative_of_the_whole_hull(kind):
    """All vertices tie, so it takes from a gradient only what they have in common."""
    rng = np.random.default_rng(11)
    n = 30 if kind.labels == 1 else 15
    shape = kind.shape(n)
    _, rest, gap = project(kind, np.full((1, *shape), 0.7), n)
    assert gap[0] <= 1e-9
    gradient = rng.normal(size=(1, *shape))
    product = differentiate(kind, rest, n, gradient)[0]
    rows, columns, _ = np.indices(shape)
    if kind.structure == SPANS:
        whole = (rows == 0) & (columns == n - 1)  # is in every tree, and so are single words
        common = [(rows < columns) & ~whole]
        if kind.labels > 1:
            common += [whole, *((rows == i) & (columns == i) for i in range(n))]
    else:
        is_part = (rows != columns) & (columns > 0)
        common = [is_part & (columns == modifier) for modifier in range(1, n + 1)]
        if kind.structure == SINGLE_ROOT_TREES:
            common += [is_part & (rows == 0)]
    is_part = np.any(common, axis=0)
    common = np.reshape(common, (len(common), -1)).astype(float)
    expected = np.where(is_part, gradient[0], 0.0).ravel()
    expected -= np.linalg.lstsq(common.T, expected, rcond=None)[0] @ common
    np.testing.assert_allclose(product.ravel(), expected, atol=1e-9)


@each
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.01, 0.1, 1.0, 10.0, 1000.0], ids=lambda scale: f"scale {scale:g}")
def test_longer_sentences_have_a_certificate(kind, scale):
    rng = np.random.default_rng(4)
    n = 20 if kind.labels == 1 else 12
    scores = scale * rng.normal(size=(3, *kind.shape(n)))
    scores[1] += 100.0 * rng.normal()
    mask_some(rng, scores[2])
    point, _, gap = project(kind, scores, n)
    found, unit = gaps(kind, scores, point, n)
    assert (gap < np.inf).all()
    assert (found <= 1e-9 * unit).all()


@each
def test_what_all_vertices_have_in_common_does_not_move_the_point(kind):
    rng = np.random.default_rng(7)
    n, (size, _, _) = 9, kind.shape(9)
    scores = 0.1 * rng.normal(size=(1, *kind.shape(n)))
    offset = 1e3 * rng.normal(
        size=(1, 1, 1 if kind.structure == SPANS else size, 1)
    )  # trees have one arc into each word
    given, moved = project(kind, scores, n), project(kind, scores + offset, n)
    np.testing.assert_allclose(moved[0], given[0], atol=1e-9)


@each
def test_the_derivative_is_that_of_central_differences(kind):
    rng = np.random.default_rng(5)
    n = 8
    scores, direction = 0.1 * rng.normal(size=(1, *kind.shape(n))), rng.normal(size=(1, *kind.shape(n)))
    _, rest, _ = project(kind, scores, n)
    ahead, back = (project(kind, scores + step * direction, n)[0] for step in (4e-6, -4e-6))  # each has a gap
    np.testing.assert_allclose(differentiate(kind, rest, n, direction), (ahead - back) / 8e-6, atol=1e-5)


@pytest.mark.parametrize("labels", [2, 5])
def test_labels_of_single_words_are_a_sparsemax_of_their_own(labels):
    rng, kind, n = np.random.default_rng(12), Kind(SPANS, labels), 7
    for scale in (0.0, 1e-5, 0.1, 1.0):
        scores, gradient = scale * rng.normal(size=(1, *kind.shape(n))), rng.normal(size=(1, *kind.shape(n)))
        point, rest, _ = project(kind, scores, n)
        product = differentiate(kind, rest, n, gradient)
        for i in range(n):
            expected = nearest_of(scores[0, i, i], np.eye(labels))
            np.testing.assert_allclose(point[0, i, i], expected, atol=1e-9)
            projector = np.diag(expected > 0).astype(float)
            projector -= np.outer(expected > 0, expected > 0) / (expected > 0).sum()
            np.testing.assert_allclose(product[0, i, i], projector @ gradient[0, i, i], atol=1e-9)


def test_instances_without_a_length_are_left_alone():
    scores = np.zeros((3, 4, 4, 1))
    point, rest, gap = np.full((3, 4, 4, 1), 7.0), np.full((3, 4, 4, 1), 7.0), np.full(3, 7.0)
    assert projection.project(scores, np.array([-1, 3, 0]), SPANS, 1e-9, point, rest, gap, 0, 3) == -1
    assert (point[[0, 2]] == 7.0).all() and (gap[[0, 2]] == 7.0).all()
    assert gap[1] <= 1e-9


@pytest.mark.parametrize("labels", [1, 3])
def test_padding_is_zero_whatever_its_scores(labels):
    kind, scores = Kind(PROJECTIVE_TREES, labels), np.full((1, 9, 9, labels), np.nan)
    scores[0, :6, :6] = 0.01 * np.random.default_rng(6).normal(size=(6, 6, labels))
    point, rest, _ = project(kind, scores, 5)
    alone = project(kind, np.ascontiguousarray(scores[:, :6, :6]), 5)[0]
    np.testing.assert_array_equal(point[:, :6, :6], alone)
    assert not point[0, 6:].any() and not point[0, :, 6:].any() and not point[0, :, 0].any()
    assert np.isneginf(rest[0, 6:]).all()

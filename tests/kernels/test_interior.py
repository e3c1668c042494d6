"""SparseMAP over paths by the interior, against listed vertices, and its linear systems against NumPy."""

import numpy as np
import pytest

from pullback.kernels.paths import inwards, skyline
from pullback.kernels.paths.lattices import GLOBAL, LOCAL, MONOTONIC, alignments
from reference.active_set import project as nearest_of

KINDS = pytest.mark.parametrize(
    ("kind", "cells"),
    [(GLOBAL, True), (MONOTONIC, True), (LOCAL, False), (GLOBAL, False)],
    ids=["dtw", "monotonic", "local", "global"],
)


def list_paths(graph, sink, parts):
    """Every path from node 0 to the sink, as zeros and ones over the parts."""
    first, head, part = graph
    found, ahead = [], [(0, ())]
    while ahead:
        u, taken = ahead.pop()
        if u == sink:
            found.append(taken)
            continue
        ahead.extend((head[e], (*taken, part[e])) for e in range(first[u], first[u + 1]) if head[e] <= sink)
    vertices = np.zeros((len(found), parts))
    for vertex, taken in zip(vertices, found):
        vertex[[part for part in taken if part >= 0]] = 1.0
    return np.unique(vertices, axis=0)


def lattice(n, m, kind, cells, by_columns=False):
    return alignments(n, m, kind, cells, by_columns), np.array([n * m + (kind == LOCAL)])


def project(scores, graphs, sinks):
    point, rest, gap = np.full((3, *scores.shape), 7.0)
    gap = np.full(len(scores), np.inf)
    before = scores.copy()
    assert inwards.approach(scores, graphs, sinks, scores.shape[1], 1e-9, point, rest, gap, 0, len(scores)) == -1
    np.testing.assert_array_equal(scores, before)
    return point, rest, gap


@pytest.mark.parametrize("size", [1, 3, 4, 7, 30])
def test_a_system_is_solved_as_numpy_solves_it(size):
    rng = np.random.default_rng(size)
    low = np.array([rng.integers(max(0, i - 6), i + 1) for i in range(size)])
    matrix = skyline.empty(low.copy())
    dense = np.where(np.arange(size) >= low[:, None], np.tril(rng.normal(size=(size, size))), 0.0)
    dense = dense + dense.T + 20 * np.eye(size)
    for i in range(size):
        for j in range(matrix.low[i], i + 1):
            matrix.values[matrix.start[i] + j] = dense[i, j]
    right = rng.normal(size=size)
    skyline.factor(matrix)
    found = right.copy()
    skyline.solve(matrix, found)
    np.testing.assert_allclose(found, np.linalg.solve(dense, right), atol=1e-13)


@KINDS
@pytest.mark.parametrize("forbidden", [0.0, 0.3], ids=["no mask", "mask"])
@pytest.mark.parametrize("is_tied", [False, True], ids=["normal", "ties"])
def test_the_point_is_the_nearest_and_its_derivative_projects_onto_its_face(kind, cells, forbidden, is_tied):
    rng = np.random.default_rng(3)
    for n, m in ((1, 1), (1, 4), (3, 3), (3, 5)):
        graphs, sinks = lattice(n, m, kind, cells)
        parts = n * m * (1 if cells else 3)
        vertices = list_paths(graphs[0], sinks[0], parts)
        for scale in (0.0, 1e-3, 0.1, 1.0, 10.0, 1000.0):
            scores = scale * rng.normal(size=parts)
            scores = scale * np.round(2 * rng.normal(size=parts)) / 4 if is_tied else scores
            kept = vertices[rng.integers(len(vertices))] == 1  # so that one is left
            scores[(rng.random(parts) < forbidden) & ~kept] = -np.inf
            allowed = vertices[~vertices[:, np.isneginf(scores)].any(1)]
            point, rest, gap = project(scores[None], graphs, sinks)
            assert gap[0] <= 1e-9 * max(1.0, 4 * scale)
            used = np.where(allowed.any(0), scores, 0.0)  # what is on no path has no score
            np.testing.assert_allclose(point[0], nearest_of(used, allowed), atol=1e-9 * max(1.0, 4 * scale))

            gradient, product = rng.normal(size=(1, parts)), np.full((1, parts), 7.0)
            assert inwards.approach_backward(rest, graphs, sinks, rest.shape[1], gradient, product, 0, 1) == -1
            theta = np.where(np.isneginf(rest[0]), 0.0, rest[0])
            best = allowed[allowed @ theta >= (allowed @ theta).max() - 1e-8]
            projector = np.linalg.pinv(best - best[0]) @ (best - best[0])
            np.testing.assert_allclose(product[0], projector @ gradient[0], atol=1e-9)


@KINDS
def test_the_order_of_cells_changes_nothing(kind, cells):
    rng = np.random.default_rng(4)
    n, m = 4, 9
    scores = rng.normal(size=(3, n * m * (1 if cells else 3))) * [[1e-6], [0.1], [1.0]]
    (point, rest, _), (other, rest_of_other, _) = (
        project(scores, *(np.repeat(array, 3, 0) for array in lattice(n, m, kind, cells, by_columns)))
        for by_columns in (False, True)
    )
    np.testing.assert_allclose(other, point, atol=1e-9)
    np.testing.assert_allclose(rest_of_other, rest, atol=1e-9)


@KINDS
def test_tiny_scores_have_the_point_that_enumeration_says(kind, cells):
    rng = np.random.default_rng(8)
    graphs, sinks = lattice(4, 5, kind, cells)
    parts = 20 if cells else 60
    vertices = list_paths(graphs[0], sinks[0], parts)
    for scale in (1e-12, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4):
        scores = np.where(vertices.any(0), scale * rng.normal(size=parts), 0.0)
        point, _, gap = project(scores[None], graphs, sinks)
        assert gap[0] <= 1e-9
        np.testing.assert_allclose(point[0], nearest_of(scores, vertices), atol=5e-9)  # so near is the reference


def test_instances_without_a_path_or_without_a_length_are_left_alone():
    graphs, _ = lattice(3, 3, GLOBAL, True)
    scores = np.zeros((3, 9))
    scores[1, 4:] = -np.inf
    point, _, gap = project(scores, graphs, np.array([0, 9, 9]))
    assert (point[:2] == 7.0).all() and (gap[:2] == np.inf).all()
    assert gap[2] <= 1e-9

"""The active-set projection against enumeration: the point, its certificate, its mixture, its Jacobian."""

import numpy as np
import pytest

from pullback.kernels.active_set import core, dense
from pullback.kernels.active_set.dense import CONVERGED, RUNNING
from reference.active_set import cube, face_projector, permutations, project, sequences, subsets
from reference.trees import arcs, enumerate_trees

POLYTOPES = {
    "simplex": np.eye(5),
    "cube": cube(5),
    "subsets": subsets(7, 3),
    "permutations": permutations(4),
    "sequences": sequences(4, 3),
    "trees": np.array([arcs(heads).ravel() for heads in enumerate_trees(4, False, False)]),
    "single": np.array([[1.0, 0.0, 1.0]]),
    "weighted": np.random.default_rng(7).standard_normal((40, 6)),
}


@pytest.fixture(params=POLYTOPES, scope="module")
def vertices(request):
    return POLYTOPES[request.param]


def kinds(d, seed):
    """Generic, peaked, flat, tied, huge and one-sided scores: (11, d)."""
    random = np.random.default_rng(seed)
    s = random.standard_normal((3, d))
    flat = [np.zeros(d), np.full(d, -1e4), 1e-9 * s[0]]
    return np.vstack([s, 0.1 * s[:1], 10 * s[:1], 1e4 * s[:1], np.round(s[:1]), 1e4 * np.sign(s[:1]), flat])


def best_vertex(pull, vertices):
    """The argmax over the list, by a rule that breaks ties against the order of the list."""
    forbidden = np.isneginf(pull)
    values = np.where(forbidden, 0.0, pull) @ vertices.T
    values[forbidden.astype(float) @ (vertices != 0).T > 0] = -np.inf
    return vertices[len(vertices) - 1 - values[:, ::-1].argmax(1)]


class State:
    """The arrays of `grow` for a batch."""

    def __init__(self, scores, capacity, tolerance=1e-10):
        batch, d = scores.shape
        finite = np.where(np.isfinite(scores), np.abs(scores), 0.0)
        self.scores = scores
        self.tolerance = tolerance * np.maximum(1.0, finite.max(1))
        self.vertices = np.full((batch, capacity, d), np.nan)
        self.factor = np.full((batch, capacity + 3, capacity), np.nan)
        self.weights = np.full((batch, capacity), np.nan)
        self.count = np.zeros(batch, np.int64)
        self.point = np.zeros((batch, d))
        self.gap = np.full(batch, np.nan)
        self.status = np.full(batch, RUNNING)

    def seed(self, pool):
        arrays = (self.vertices, self.factor, self.weights, self.count, self.point)
        return dense.seed(self.scores, pool, self.tolerance, *arrays, 0, len(pool))

    def grow(self, answer, lo=0, hi=None):
        arrays = (self.vertices, self.factor, self.weights, self.count, self.point, self.gap, self.status)
        return dense.grow(self.scores, answer, self.tolerance, *arrays, lo, len(answer) if hi is None else hi)

    def run(self, vertices, rounds=500):
        """Rounds until every instance has ended; how many."""
        calls = 0
        while calls < rounds and (self.status == RUNNING).any():
            assert self.grow(best_vertex(self.scores - self.point, vertices)) == -1
            calls += 1
        return calls


def solve(scores, vertices, **settings):
    state = State(scores, capacity=min(len(vertices), scores.shape[1] + 1) + 1, **settings)
    state.run(vertices)
    return state


def test_the_point_is_the_nearest_of_the_hull(vertices):
    scores = kinds(vertices.shape[1], seed=0)
    state = solve(scores, vertices)
    assert (state.status == CONVERGED).all()
    for s, point in zip(scores, state.point):
        scale = max(1.0, np.abs(s).max())
        assert ((vertices - point) @ (s - point)).max() <= 1e-10 * scale  # the certificate, over every vertex
        if scale < 100:  # beyond, the reference itself loses digits
            np.testing.assert_allclose(point, project(s, vertices), atol=1e-9 * scale)


def test_the_point_is_a_mixture_of_affinely_independent_vertices(vertices):
    state = solve(kinds(vertices.shape[1], seed=1), vertices)
    for point, active, weights, count in zip(state.point, state.vertices, state.weights, state.count):
        active, weights = active[:count], weights[:count]
        assert (weights > 0).all() and weights.sum() == pytest.approx(1, abs=1e-12)
        assert (active[:, None] == vertices).all(-1).any(1).all()
        assert np.linalg.matrix_rank(active[1:] - active[0]) == count - 1
        np.testing.assert_allclose(weights @ active, point, atol=1e-12)


def test_the_factor_belongs_to_the_active_vertices(vertices):
    scores = kinds(vertices.shape[1], seed=2)
    state = solve(scores, vertices)
    for s, active, factor, count in zip(scores, state.vertices, state.factor, state.count):
        lower = np.tril(factor[:count, :count])
        np.testing.assert_allclose(lower @ lower.T, active[:count] @ active[:count].T + 1, atol=1e-11)
        np.testing.assert_allclose(lower @ factor[-1, :count], 1, atol=1e-11)
        values = active[:count] @ s - lower @ factor[-2, :count]  # the same up to one constant
        np.testing.assert_allclose(values, values[0], atol=1e-10 * max(1.0, np.abs(s).max()))


def test_tied_scores_and_repeated_answers_end():
    random = np.random.default_rng(3)
    for vertices in POLYTOPES.values():
        scores = random.integers(-1, 2, (60, vertices.shape[1])) * random.choice([0.5, 1.0, 1e4], (60, 1))
        state = solve(scores, vertices, tolerance=1e-9)
        assert (state.status == CONVERGED).all()


def test_an_answer_that_is_active_already_is_of_no_use_and_changes_nothing():
    state = solve(np.random.default_rng(4).standard_normal((1, 7)), subsets(7, 3))
    count, factor, weights = int(state.count[0]), state.factor[0], state.weights[0]
    before = np.tril(factor[:count, :count]), factor[-2:, :count].copy(), weights[:count].copy()
    values = before[0] @ factor[-2, :count]
    kept, trial = np.empty(len(weights), np.int64), np.empty(len(weights))
    for repeated in range(count):
        factor[count, :count] = state.vertices[0, :count] @ state.vertices[0, repeated]
        factor[count, count] = 3.0
        assert core.add(factor, weights, kept, trial, count, values[repeated], 1e-12) == (count, False)
    np.testing.assert_array_equal(kept[:count], np.arange(count))
    for old, new in zip(before, (np.tril(factor[:count, :count]), factor[-2:, :count], weights[:count])):
        np.testing.assert_array_equal(old, new)


def test_forbidden_parts_are_never_touched(vertices):
    random = np.random.default_rng(5)
    scores = random.standard_normal((12, vertices.shape[1]))
    scores[random.random(scores.shape) < 0.3] = -np.inf
    feasible = [not vertices[:, np.isneginf(s)].any(1).all() for s in scores]
    scores = scores[feasible]
    assert len(scores)
    state = solve(scores, vertices)
    assert (state.status == CONVERGED).all()
    for s, point in zip(scores, state.point):
        assert (point[np.isneginf(s)] == 0).all()
        np.testing.assert_allclose(point, project(s, vertices), atol=1e-9)


def test_an_answer_that_uses_a_forbidden_part_is_reported():
    scores = np.array([[1.0, 0.0], [1.0, -np.inf], [np.nan, 0.0]])
    assert State(scores, capacity=3).grow(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])) == 1
    assert State(scores, capacity=3).grow(np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])) == 2
    assert State(scores, capacity=3).grow(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])) == -1


def test_only_running_instances_of_the_range_change():
    scores = np.random.default_rng(6).standard_normal((4, 5)) * 0.1
    state = State(scores, capacity=7)
    state.status[2] = CONVERGED
    assert state.grow(best_vertex(scores, np.eye(5)), lo=1, hi=3) == -1
    np.testing.assert_array_equal(state.count, [0, 1, 0, 0])
    assert np.isnan(state.vertices[[0, 2, 3]]).all() and not state.point[[0, 2, 3]].any()


def test_single_precision_scores_and_vertices_give_the_same_point():
    vertices = subsets(7, 3)
    scores = np.random.default_rng(8).standard_normal((5, 7)).astype(np.float32)
    state = State(scores, capacity=9)
    state.vertices = state.vertices.astype(np.float32)
    state.tolerance = state.tolerance.astype(np.float64)
    state.run(vertices.astype(np.float32))
    for s, point in zip(scores.astype(np.float64), state.point):
        np.testing.assert_allclose(point, project(s, vertices), atol=1e-9)


def test_a_warm_start_is_the_projection_onto_the_hull_of_the_pool(vertices):
    random = np.random.default_rng(9)
    scores = kinds(vertices.shape[1], seed=9)
    pool = vertices[random.integers(0, len(vertices), (len(scores), 6))]
    state = State(scores, capacity=8)
    assert state.seed(pool) == -1
    for s, some, point in zip(scores, pool, state.point):
        scale = max(1.0, np.abs(s).max())
        assert ((some - point) @ (s - point)).max() <= 1e-10 * scale
        if scale < 100:
            np.testing.assert_allclose(point, project(s, some), atol=1e-9 * scale)


def test_a_warm_start_from_the_solution_needs_one_round(vertices):
    scores = kinds(vertices.shape[1], seed=10)
    cold = solve(scores, vertices)
    pool = cold.vertices.copy()
    pool[np.arange(pool.shape[1]) >= cold.count[:, None]] = np.nan
    warm = State(scores, capacity=cold.vertices.shape[1] + 1, tolerance=2e-10)
    warm.seed(pool)
    assert warm.run(vertices) == 1
    np.testing.assert_allclose(warm.point, cold.point, atol=1e-8)


def test_a_pool_without_a_feasible_vertex_leaves_the_instance_empty():
    scores = np.array([[0.0, -np.inf], [0.0, 0.0]])
    state = State(scores, capacity=3)
    state.seed(np.array([[[0.0, 1.0]], [[0.0, 1.0]]]))
    np.testing.assert_array_equal(state.count, [0, 1])


def test_tangent_projects_onto_the_span_of_the_active_vertices():
    random = np.random.default_rng(11)
    for vertices in POLYTOPES.values():
        d = vertices.shape[1]
        state = solve(0.5 * random.standard_normal((10, d)), vertices, tolerance=1e-13)
        for active, factor, count in zip(state.vertices, state.factor, state.count):
            g = random.standard_normal(d)
            inner = active @ g
            core.tangent(factor, count, inner)
            span = active[1:count] - active[0]
            expected = np.linalg.pinv(span) @ span @ g if count > 1 else 0 * g
            np.testing.assert_allclose(inner[:count] @ active[:count], expected, atol=1e-10)


def test_tangent_is_the_jacobian_where_the_active_vertices_span_the_face():
    vertices = subsets(7, 3)
    state = solve(0.5 * np.random.default_rng(12).standard_normal((10, 7)), vertices, tolerance=1e-13)
    for s, point, active, factor, count in zip(state.scores, state.point, state.vertices, state.factor, state.count):
        columns = np.array([active @ g for g in np.eye(7)])
        for inner in columns:
            core.tangent(factor, count, inner)
        np.testing.assert_allclose(
            columns[:, :count] @ active[:count], face_projector(s - point, vertices, point), atol=1e-9
        )


def dependent_projection(scores, bonus, vertices, capacity=4):
    """max ⟨s, μ⟩ + ⟨bonus, p⟩ − ½‖μ‖² by the core alone, growing its factor: (p over all vertices, certificate)."""
    factor, weights = np.empty((capacity + 3, capacity)), np.empty(capacity)
    kept, trial, active, point = np.empty(capacity, np.int64), np.empty(capacity), [], np.zeros(len(scores))
    values = vertices @ scores + bonus
    for _ in range(500):
        slope = values - vertices @ point
        best = int(slope.argmax())
        if active and slope[best] - slope[active[0]] <= 1e-10:
            break
        if len(active) == len(weights):
            old = len(weights)
            larger = np.empty((2 * old + 3, 2 * old))
            larger[:old, :old], larger[-3:, :old] = factor[:old], factor[-3:]
            factor, trial = larger, np.append(trial, trial)
            weights, kept = np.append(weights, weights), np.append(kept, kept)
        count = len(active)
        active.append(best)
        factor[count, : count + 1] = vertices[active] @ vertices[best]
        count, useful = core.add(factor, weights, kept, trial, count, values[best] - values.max(), 1e-11)
        assert useful
        active = [active[i] for i in kept[:count]]
        point = weights[:count] @ vertices[active]
    everyone = np.zeros(len(vertices))
    everyone[active] = weights[: len(active)]
    return everyone, slope.max() - slope @ everyone


def test_a_vertex_that_is_very_near_to_the_hull_of_the_others_still_counts():
    away = 1e-5
    vertices = np.array([[1.0, 0, 0, -1], [0, 1.0, 0, -1], [0, 0, 1.0, -1], [1 / 3, 1 / 3, 1 / 3, away - 1]])
    bonus = np.array([0.0, 0.0, 0.0, -0.5 * away])  # less than it gains by being nearer to the origin
    weights, certificate = dependent_projection(np.zeros(4), bonus, vertices)
    assert weights[3] > 0.9 and certificate <= 1e-10


def test_a_dependent_vertex_with_a_better_value_takes_the_place_of_another():
    """Vertices with a score of their own, as sequences have from transitions: equal points may differ in value."""
    random = np.random.default_rng(13)
    for vertices in (sequences(4, 3), np.repeat(cube(3), 4, axis=0), permutations(3)):
        for scale in (0.1, 1.0, 10.0):
            for _ in range(10):
                scores = scale * random.standard_normal(vertices.shape[1])
                bonus = scale * random.standard_normal(len(vertices))
                weights, gap = dependent_projection(scores, bonus, vertices)
                assert weights.min() >= 0 and weights.sum() == pytest.approx(1, abs=1e-12)
                assert gap <= 1e-10
                active = vertices[weights > 0]
                assert np.linalg.matrix_rank(active[1:] - active[0]) == len(active) - 1


def test_widening_completes_the_span_of_the_face(vertices):
    """Few vertices may mix to a point inside a large face; the Jacobian needs the span of that face."""
    random = np.random.default_rng(14)
    scores = vertices[random.integers(0, len(vertices), (20, 2))].mean(1)
    scores[10:] += 0.1 * random.standard_normal(scores[10:].shape)
    state = State(scores, capacity=scores.shape[1] + 2, tolerance=1e-12)
    state.run(vertices)
    weights, mixed, grown = state.weights.copy(), state.count.copy(), np.zeros((2, len(scores)), bool)
    arrays = (state.vertices, state.factor, state.weights, state.count, state.point)
    while True:
        direction = random.standard_normal(scores.shape)
        dense.leave_span(direction, state.vertices, state.factor, state.count, 0, len(scores))
        for side, found in zip((1e-7, -1e-7), grown):
            answer = best_vertex(scores - state.point + side * direction, vertices)
            dense.widen(scores, answer, np.full(len(scores), 1e-9), *arrays, found, 0, len(scores))
        if not grown.any():
            break
    for b, (s, point, active, count) in enumerate(zip(scores, state.point, state.vertices, state.count)):
        span = active[:count] - active[0]
        np.testing.assert_allclose(np.linalg.pinv(span) @ span, face_projector(s - point, vertices, point), atol=1e-8)
        np.testing.assert_array_equal(state.weights[b, : mixed[b]], weights[b, : mixed[b]])
        assert (state.weights[b, mixed[b] : count] == 0).all()
    assert (state.count > mixed).any() or len(vertices) < 6

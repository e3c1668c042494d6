"""Projection onto the flows of a DAG, against the list of all paths and against the best path."""

import itertools

import numpy as np
import pytest

from pullback.kernels.flows import forbid_dead_ends, in_runs, nearest_flow, new_workspace
from pullback.kernels.flows.laplacian import assemble, solve
from pullback.kernels.flows.passes import tally
from pullback.kernels.paths import project, project_backward
from reference import flows as reference
from reference.active_set import project as project_on_hull


def segmentation(n, longest):
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(i + longest, n) + 1)]
    return tuple(map(list, zip(*pairs)))


def alignment(n, m):
    pairs = []
    for i in range(n + 1):
        for j in range(m + 1):
            moves = [(i, j + 1), (i + 1, j), (i + 1, j + 1)]
            pairs += [(i * (m + 1) + j, a * (m + 1) + b) for a, b in moves if a <= n and b <= m]
    return tuple(map(list, zip(*sorted(pairs))))


def any_dag(nodes, share, seed):
    """Edges at random, some twice, and a path through all nodes but one, which may be a dead end."""
    rng = np.random.default_rng(seed)
    pairs = [(u, v) for u in range(nodes) for v in range(u + 1, nodes) for _ in range(2) if rng.random() < share]
    spine = [u for u in range(nodes) if u != nodes // 2]
    return tuple(map(list, zip(*sorted(pairs + list(itertools.pairwise(spine))))))


SMALL = {
    "one edge": ([0], [1]),
    "three edges": ([0, 0, 0], [1, 1, 1]),
    "diamond": ([0, 0, 0, 1, 2], [1, 2, 3, 3, 3]),
    "segments": segmentation(5, 3),
    "alignment": alignment(2, 2),
    "any": any_dag(7, 0.3, 0),
    "any other": any_dag(8, 0.2, 1),
}
LARGE = {
    "segments": segmentation(60, 8),
    "all segments": segmentation(25, 25),
    "alignment": alignment(14, 11),
    "thin": any_dag(60, 0.03, 2),
    "dense": any_dag(30, 0.5, 3),
}


def kinds(rng, tail, head):
    """Scores of all characters, by name; all are feasible."""
    edges = len(head)
    noise = rng.normal(size=edges)
    for scale in (1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4):
        yield f"normal {scale}", scale * noise
    for offset in (1e3, 1e6, -1e6):
        yield f"offset {offset}", offset + noise
    yield "integers", rng.integers(-2, 3, edges).astype(float)
    yield "quarters", rng.integers(-2, 3, edges) / 4
    yield "near ties", rng.integers(0, 2, edges) + 1e-9 * noise
    yield "equal", np.full(edges, 0.3)
    yield "large and equal", np.full(edges, 1e4)
    yield "cauchy", rng.standard_cauchy(edges)
    for step in (0.1, 1.0):
        yield f"spigot {step}", reference.best_path(noise, tail, head) - step * rng.normal(size=edges)
    for share in (0.3, 0.7, 1.0):
        allowed = reference.best_path(rng.normal(size=edges), tail, head) > 0
        for scale in (0.1, 10.0):
            yield f"masked {share} {scale}", np.where(allowed | (rng.random(edges) > share), scale * noise, -np.inf)


def project_one(scores, tail, head):
    point = np.full((1, len(head)), np.nan)
    assert project(scores[None], *reference.graphs(tail, head), point, 0, 1) == -1
    return point[0]


def backward(point, gradient, tail, head):
    product = np.full((1, len(head)), np.nan)
    assert project_backward(*reference.graphs(tail, head), point[None], gradient[None], product, 0, 1) == -1
    return product[0]


class Search:
    """Newton's method on one graph, with what it takes and gives by edge."""

    def __init__(self, tail, head):
        self.place = np.empty(len(head), int)
        self.graph = in_runs(np.searchsorted(tail, np.arange(max(head) + 1)), np.array(head), max(head), self.place)
        self.w = new_workspace(self.graph, max(head) + 1)

    def padded(self, numbers, padding):
        everywhere = np.full(self.graph.edge[-1], padding)
        everywhere[self.place] = numbers
        return everywhere

    def steps(self, scores):
        scores = self.padded(scores, -np.inf)
        assert forbid_dead_ends(scores, self.graph, self.w.core, self.w.potential)
        return nearest_flow(scores, self.graph, self.w)


def size(scores):
    return max(1.0, np.linalg.norm(scores[np.isfinite(scores)]))


@pytest.mark.parametrize("name", SMALL)
def test_the_projection_is_the_nearest_mixture_of_paths(name):
    tail, head = SMALL[name]
    every = reference.paths(tail, head)
    for kind, scores in kinds(np.random.default_rng(0), tail, head):
        if size(scores) < 1e3:  # beyond, the reference is not exact
            point = project_one(scores, tail, head)
            assert np.abs(point - project_on_hull(scores, every)).max() < 1e-9, kind


@pytest.mark.parametrize("seed", range(20))
def test_any_dag_will_do(seed):
    rng = np.random.default_rng(seed)
    tail, head = any_dag(rng.integers(3, 9), rng.uniform(0.1, 0.5), seed)
    every = reference.paths(tail, head)
    for kind, scores in kinds(rng, tail, head):
        if size(scores) < 1e3:  # beyond, the reference is not exact
            point, gradient = project_one(scores, tail, head), rng.normal(size=len(head))
            assert np.abs(point - project_on_hull(scores, every)).max() < 1e-9, kind
            expected = reference.face_projection(point, every, gradient)
            assert np.abs(backward(point, gradient, tail, head) - expected).max() < 1e-11, kind


@pytest.mark.parametrize("name", LARGE)
def test_the_projection_is_a_flow_that_no_path_improves(name):
    tail, head = LARGE[name]
    for kind, scores in kinds(np.random.default_rng(1), tail, head):
        point = project_one(scores, tail, head)
        assert (point >= 0).all() and not point[np.isneginf(scores)].any(), kind
        assert np.abs(reference.imbalance(point, tail, head)).max() < 1e-11, kind
        assert reference.gap(scores, point, tail, head) < 1e-10 * size(scores), kind


@pytest.mark.parametrize("name", {**SMALL, **LARGE})
def test_runs_hold_every_edge_once_in_groups_of_four(name):
    tail, head = {**SMALL, **LARGE}[name]
    search = Search(tail, head)
    first, heads, edge, _, sink = search.graph
    assert len(set(search.place)) == len(head) and (np.diff(edge[: first[sink] + 1]) % 4 == 0).all()
    for u in range(sink):
        for r in range(first[u], first[u + 1]):
            for e in np.flatnonzero((edge[r] <= search.place) & (search.place < edge[r + 1])):
                assert tail[e] == u and head[e] == heads[r] + search.place[e] - edge[r]


@pytest.mark.parametrize("name", LARGE)
def test_a_dozen_steps_are_enough(name):
    tail, head = LARGE[name]
    search = Search(tail, head)
    for seed in range(5):
        for kind, scores in kinds(np.random.default_rng(seed), tail, head):
            assert 0 <= search.steps(scores) <= 12, kind


@pytest.mark.parametrize("name", LARGE)
def test_potentials_leave_the_projection_as_it_is(name):
    tail, head = LARGE[name]
    rng = np.random.default_rng(2)
    scores = rng.integers(-1000, 1000, len(head)) / 512
    for largest in (10, 10**6, 10**9):
        potential = rng.integers(-largest, largest, max(head) + 1).astype(float)
        moved = project_one(scores + potential[tail] - potential[head], tail, head)
        assert np.abs(moved - project_one(scores, tail, head)).max() < 1e-11


@pytest.mark.parametrize("name", LARGE)
def test_a_path_is_its_own_projection(name):
    tail, head = LARGE[name]
    path = reference.best_path(np.random.default_rng(3).normal(size=len(head)), tail, head)
    assert np.abs(project_one(path, tail, head) - path).max() < 1e-12


@pytest.mark.parametrize("name", SMALL)
def test_the_backward_projects_on_the_face_of_the_paths_in_use(name):
    tail, head = SMALL[name]
    every = reference.paths(tail, head)
    rng = np.random.default_rng(4)
    for kind, scores in kinds(rng, tail, head):
        point, gradient = project_one(scores, tail, head), rng.normal(size=len(head))
        expected = reference.face_projection(point, every, gradient)
        assert np.abs(backward(point, gradient, tail, head) - expected).max() < 1e-11, kind


@pytest.mark.parametrize("name", LARGE)
def test_the_backward_is_the_derivative(name):
    tail, head = LARGE[name]
    rng = np.random.default_rng(5)
    smooth = 0
    for scale in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0) * 3:
        scores, direction, gradient = rng.normal(size=(3, len(head))) * [[scale], [1], [1]]
        above, below = (project_one(scores + h * direction, tail, head) for h in (1e-6, -1e-6))
        if ((above > 0) == (below > 0)).all():  # no kink between the two points
            smooth += 1
            slope = backward(project_one(scores, tail, head), gradient, tail, head) @ direction
            assert abs(gradient @ (above - below) / 2e-6 - slope) < 1e-6 * (1 + abs(slope))
    assert smooth > 9


def test_edges_may_take_any_of_the_parts():
    (graph,), sinks = reference.graphs([0, 0, 1], [1, 2, 2])
    scores = np.array([[np.nan, 0.2, 0.5, np.nan, 0.1]])
    point, alone = np.empty((1, 5)), np.empty((1, 3))
    assert project(scores[:, [1, 2, 4]], graph[None], sinks, alone, 0, 1) == -1
    graph[2, :3] = [1, 2, 4]
    assert project(scores, graph[None], sinks, point, 0, 1) == -1
    assert np.array_equal(point[0], [0, alone[0, 0], alone[0, 1], 0, alone[0, 2]])


def test_an_instance_without_an_answer_is_named():
    graph, sink = reference.graphs(*SMALL["diamond"])
    graph = graph, np.repeat(sink, 3)
    point = np.empty((3, 5))
    cut = np.zeros((3, 5))
    cut[1, [0, 2, 4]] = -np.inf
    unknown, infinite = np.zeros((3, 5)), np.zeros((3, 5))
    unknown[2, 1], infinite[2, 1] = np.nan, np.inf
    assert project(cut, *graph, point, 0, 3) == 1
    assert project(cut, *graph, point, 2, 3) == -1
    assert project(unknown, *graph, point, 0, 3) == project(infinite, *graph, point, 0, 3) == 2


@pytest.mark.parametrize("name", [*LARGE, "diamond"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_laplacian_systems_are_solved(name, share):
    tail, head = {**SMALL, **LARGE}[name]
    rng = np.random.default_rng(7)
    search = Search(tail, head)
    sink, system, imbalance = search.graph.sink, search.w.system, search.w.imbalance
    nodes = sink + 1
    for _ in range(10):
        value, amount = rng.random(len(head)), rng.normal(size=len(head))
        padded = search.padded(value, 0.0)
        tally(search.graph, padded, share, search.padded(amount, 0.0), imbalance, system)
        matrix, leaving = np.zeros((nodes, nodes)), np.zeros(nodes)
        for e in np.flatnonzero(value > share):
            leaving[tail[e]] += amount[e]
            leaving[head[e]] -= amount[e]
            matrix[tail[e], tail[e]] += 1
            matrix[head[e], head[e]] += 1
            matrix[tail[e], head[e]] -= 1
            matrix[head[e], tail[e]] -= 1
        assert np.abs(imbalance[:nodes] - leaving).max() < 1e-12
        assert np.array_equal(system.degree[:nodes], matrix.diagonal())
        right = matrix @ rng.normal(size=nodes)
        unknowns = assemble(search.graph, padded, share, system)
        system.rows[:unknowns] = right[system.node[:unknowns]]
        x = np.zeros(nodes)
        x[sink] = solve(sink, unknowns, system, right[sink])
        x[system.node[:unknowns]] = system.rows[:unknowns]
        assert np.abs(matrix @ x - right).max() < 1e-10

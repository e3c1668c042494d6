"""Kernels of paths: their graphs, what they refuse, and sums over more paths than a float can count."""

import math

import numpy as np
import pytest

from pullback.kernels import paths
from reference import flows as reference


def random_dag(nodes, rng, density=0.5):
    """Tails and heads, sorted, of a DAG whose nodes are all on paths from the first to the last."""
    tail, head = np.triu_indices(nodes, 1)
    kept = (rng.random(len(tail)) < density) | (head == tail + 1)
    return tail[kept], head[kept]


def numbered(edges, source, sink):
    """The graph of one instance, and which edges it uses."""
    edges = np.array(edges)[None]
    graph, used = np.empty((1, 3, edges.shape[1] + 2), np.int64), np.empty((1, edges.shape[1]), bool)
    nodes = max(edges.max(), source, sink) + 1
    report = paths.number(edges, np.array([source]), np.array([sink]), nodes, graph, used, 0, 1)
    return report, graph, used[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_shuffled_graph_is_sorted_again(seed):
    rng = np.random.default_rng(seed)
    tail, head = random_dag(8, rng)
    names, shuffle = rng.permutation(8), rng.permutation(len(tail))
    edges = np.stack([names[tail], names[head]], -1)[shuffle]
    report, graph, used = numbered(edges, names[0], names[-1])
    assert report == -1 and used.all()
    first, heads, part = graph[0]
    assert np.array_equal(heads[: len(tail)], head) and heads[-1] == 7
    assert np.array_equal(shuffle[part[: len(tail)]], np.arange(len(tail)))
    assert np.array_equal(first[:8], np.searchsorted(tail, np.arange(8))) and (first[8:] == len(tail)).all()


def test_dead_ends_have_no_number():
    report, graph, used = numbered([[0, 1], [1, 2], [1, 3], [4, 1], [-1, -1], [0, 2]], 0, 2)
    assert report == -1 and used.tolist() == [True, True, False, False, False, True]
    assert graph[0, 1, -1] == 2 and sorted(graph[0, 2, :3]) == [0, 1, 5]


def test_cycles_and_missing_paths_are_refused():
    assert numbered([[0, 1], [1, 0]], 0, 1)[0] == 0
    assert numbered([[0, 1], [1, 1]], 0, 1)[0] == 0
    assert numbered([[0, 1], [2, 3]], 0, 3)[0] == 0
    assert numbered([[0, 1], [2, 3]], 1, 0)[0] == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_best_path_is_that_of_the_reference(seed):
    rng = np.random.default_rng(seed)
    tail, head = random_dag(10, rng)
    _, graph, _ = numbered(np.stack([tail, head], -1), 0, 9)
    scores = rng.standard_normal((4, len(tail)))
    best = np.full_like(scores, np.nan)
    assert paths.argmax(scores, graph, np.full(4, 9), best, 1, 4) == -1
    assert np.isnan(best[0]).all()
    for b in range(1, 4):
        np.testing.assert_array_equal(best[b], reference.best_path(scores[b], tail, head))


def test_the_first_instance_without_an_answer_is_named():
    graph = paths.segmentations(4, 2, 1)
    scores, value = np.zeros((4, 8)), np.empty(4)
    scores[2, 4:6] = -np.inf  # no segment begins at position 2 …
    scores[2, 3] = -np.inf  # … and none leads over it
    assert paths.log_partition(scores, graph, np.full(4, 4), value, 0, 4) == 2
    assert paths.log_partition(scores, graph, np.array([4, 4, 2, 4]), value, 0, 4) == -1
    for sink in (-1, 5):
        assert paths.log_partition(scores, graph, np.array([4, sink, 4, 4]), value, 0, 4) == 1
        assert paths.argmax(scores, graph, np.array([4, sink, 4, 4]), np.empty_like(scores), 0, 4) == 1
        assert paths.project(scores, graph, np.array([4, sink, 4, 4]), np.empty_like(scores), 0, 4) == 1
    scores[3, 0] = np.nan
    assert paths.log_partition(scores, graph, np.full(4, 4), value, 3, 4) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_more_paths_than_a_float_can_count(dtype):
    """Each of n positions is a segment of its own or of two, with two labels: growth by 1 + √3 a position."""
    n = 900
    counts = [1, 2]
    for _ in range(2, n + 1):
        counts.append(2 * (counts[-1] + counts[-2]))
    assert counts[n] > 10**308
    graph = paths.segmentations(n, 2, 2)
    scores, sinks = np.zeros((1, 4 * n), dtype), np.array([n])
    value, marginals = np.empty(1, dtype), np.empty_like(scores)
    assert paths.partition(scores, graph, sinks, value, marginals, 0, 1) == -1
    np.testing.assert_allclose(value[0], math.log(counts[n]), rtol=1e-6 if dtype == np.float32 else 1e-13)
    start, width = np.divmod(np.arange(4 * n) // 2, 2)
    covered = (marginals[0] * (width + 1)).sum()
    np.testing.assert_allclose(covered, n, rtol=1e-4 if dtype == np.float32 else 1e-10)
    middle = (start == n // 2) & (width == 0)
    expected = float(counts[n // 2] * counts[n - n // 2 - 1] * 10**9 // counts[n]) / 1e9
    np.testing.assert_allclose(marginals[0, middle], expected, rtol=1e-4 if dtype == np.float32 else 1e-7)


def test_sums_in_logarithms_go_on_where_linear_ones_end():
    """What happens at the start of a sequence hardly depends on its length: 10²⁹⁵ segmentations, or 10³¹⁶."""
    start = np.random.default_rng(0).standard_normal(120)
    answers = []
    for n in (560, 600):
        scores, direction, product = np.zeros((1, 6 * n)), np.zeros((1, 6 * n)), np.empty((1, 6 * n))
        scores[0, :120], direction[0, :60] = start, 1.0
        graph, sinks = paths.segmentations(n, 2, 3), np.array([n])
        assert paths.hessian_product(scores, graph, sinks, direction, product, 0, 1) == -1
        answers.append(product[0, :60])
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-11)

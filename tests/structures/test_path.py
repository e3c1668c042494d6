"""What is particular to paths, beyond the contract of every structure."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_dag(nodes, seed, density=0.4):
    """Edges in random order between nodes with random numbers, some of them double; source and sink."""
    random = torch.Generator().manual_seed(seed)
    tail, head = torch.triu_indices(nodes, nodes, 1)
    chosen = (torch.rand(len(tail), generator=random) < density) | (head == tail + 1)
    edges = torch.stack([tail, head], -1)[chosen]
    edges = torch.cat([edges, edges[::5]])
    edges = edges[torch.randperm(len(edges), generator=random)]
    names = torch.randperm(10 * nodes, generator=random)[:nodes]
    return names[edges], int(names[0]), int(names[-1])


def all_pairs(nodes):
    return torch.triu_indices(nodes, nodes, 1).T


@pytest.mark.parametrize("nodes", [2, 3, 6, 9])
def test_a_complete_dag_has_a_path_through_every_subset_of_its_inner_nodes(nodes):
    edges = all_pairs(nodes)
    vertices = pb.Path(edges, 0, nodes - 1).enumerate((len(edges),)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == 2 ** (nodes - 2)
    value = pb.Path(edges, 0, nodes - 1).log_partition(torch.zeros(len(edges), dtype=torch.float64))
    assert_close(value.exp(), torch.tensor(2.0 ** (nodes - 2), dtype=torch.float64))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_random_dags_agree_with_the_list_of_their_paths(seed, scale):
    paths = pb.Path(*random_dag(7, seed))
    scores = scale * random_scores(4, len(paths.edges), seed=seed)
    every = paths.enumerate(scores.shape).vertices.double()
    values = scores @ every.T
    assert_close(paths.inner(scores, paths.argmax(scores)), values.amax(-1))
    assert_close(paths.log_partition(scores), values.logsumexp(-1))
    assert_close(paths.marginals(scores), values.softmax(-1) @ every)
    k = min(5, len(every))
    assert_close(paths.topk(scores, k).scores, values.topk(k).values)
    point = paths.sparsemap(scores)
    gap = ((scores - point) @ every.T).amax(-1) - ((scores - point) * point).sum(-1)
    assert (gap.abs() <= 1e-9 * max(1.0, scale)).all()
    assert_close(paths.support(scores).mean(), point, atol=1e-7, rtol=0)


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_on_random_dags_meet_finite_differences(seed):
    paths = pb.Path(*random_dag(6, seed))
    scores = random_scores(2, len(paths.edges), seed=seed).requires_grad_()
    for operation in (paths.log_partition, paths.marginals, paths.entropy, paths.sparsemap):
        assert torch.autograd.gradcheck(operation, scores)
    assert torch.autograd.gradgradcheck(paths.log_partition, scores)


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 1000.0])
def test_large_projections_are_certified_by_their_own_argmax(scale):
    paths = pb.Path(*random_dag(80, 0, density=0.2))
    scores = scale * random_scores(2, len(paths.edges))
    point = paths.sparsemap(scores)
    rest = scores - point
    gap = paths.inner(rest, paths.argmax(rest)) - paths.inner(rest, point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()


def test_graphs_of_different_shape_share_a_batch():
    single = [pb.Path(*random_dag(nodes, nodes)) for nodes in (4, 7, 5)]
    most = max(len(paths.edges) for paths in single)
    edges = torch.stack([torch.nn.functional.pad(p.edges, (0, 0, 0, most - len(p.edges)), value=-1) for p in single])
    source, sink = (torch.tensor([getattr(p, name) for p in single]) for name in ("source", "sink"))
    batch, scores = pb.Path(edges, source, sink), random_scores(3, most)
    for name in ("argmax", "marginals", "sparsemap", "log_partition", "entropy"):
        answers = getattr(batch, name)(scores)
        for answer, paths, row in zip(answers, single, scores):
            expected = getattr(paths, name)(row[: len(paths.edges)])
            assert_close(answer[: len(paths.edges)] if answer.dim() else answer, expected)
            assert answer.dim() == 0 or (answer[len(paths.edges) :] == 0).all()
    solution = batch.solve(scores)
    again = batch.solve(scores, start=solution.mixture.vertices)
    assert_close(again.mixture.mean(), batch.sparsemap(scores), atol=1e-7, rtol=0)
    assert (again.iterations <= 1).all()


def test_one_graph_may_have_several_ends():
    scores, edges = random_scores(3, 6), all_pairs(4)
    paths = pb.Path(edges, torch.tensor([0, 1, 2]), 3)
    for b in range(3):
        assert_close(paths.marginals(scores)[b], pb.Path(edges, b, 3).marginals(scores[b]))


def test_where_the_source_is_the_sink_there_is_the_empty_path():
    paths, scores = pb.Path(all_pairs(4), 2, 2), random_scores(2, 6)
    for name in ("argmax", "marginals", "sparsemap", "sample"):
        assert (getattr(paths, name)(scores) == 0).all()
    assert (paths.log_partition(scores) == 0).all() and len(paths.enumerate((6,)).vertices) == 1
    assert paths.contains(torch.zeros(6)) and not paths.contains(torch.ones(6))


def test_edges_on_no_path_are_never_read():
    edges = torch.tensor([[0, 1], [1, 2], [1, 5], [4, 1], [0, 2]])
    paths = pb.Path(edges, 0, 2)
    scores = torch.tensor([0.3, 0.2, torch.nan, torch.inf, 0.4])
    assert paths.argmax(scores).tolist() == [1, 1, 0, 0, 0]
    assert paths.marginals(scores)[2:4].tolist() == [0, 0]


def test_a_chain_is_a_path_through_its_lattice():
    n, t = 4, 3
    node = lambda i, tag: 1 + i * t + tag
    edges = torch.full((n, t, t, 2), -1)
    for i in range(n):
        for a in range(t if i > 0 else 1):
            for b in range(t):
                edges[i, a, b, 0] = node(i - 1, a) if i > 0 else 0
                edges[i, a, b, 1] = node(i, b) if i < n - 1 else node(n - 1, 0)
    paths, scores = pb.Path(edges.reshape(-1, 2), 0, node(n - 1, 0)), random_scores(2, n, t, t)
    for name in ("argmax", "marginals", "sparsemap"):
        assert_close(getattr(paths, name)(scores.flatten(1)), getattr(pb.Chain(), name)(scores).flatten(1))
    assert_close(paths.log_partition(scores.flatten(1)), pb.Chain().log_partition(scores))


def test_bad_graphs_are_named():
    edges = torch.tensor([[0, 1], [1, 2], [2, 5], [5, 1], [2, 3]])
    with pytest.raises(ValueError, match=r"Path: the edges of the instance have a cycle, 1 → 2 → 5 → 1; expected"):
        pb.Path(edges, 0, 3)
    both = torch.stack([torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0, 1], [2, 2]])])
    with pytest.raises(ValueError, match=r"Path: the edges of example \[1\] have a cycle, 2 → 2"):
        pb.Path(both, 0, 1)
    with pytest.raises(ValueError, match=r"example \[0\] have no path from the source, 0, to the sink, 7"):
        pb.Path(both[:1], 0, 7)
    with pytest.raises(TypeError, match=r"Path: edges are torch.float32; expected a tensor of integers"):
        pb.Path(both.float(), 0, 1)
    with pytest.raises(ValueError, match=r"Path: edges have shape \(2, 3\); expected \(..., m, 2\)"):
        pb.Path(torch.zeros(2, 3, dtype=torch.long), 0, 1)
    with pytest.raises(TypeError, match=r"Path: the sink has dtype torch.float32"):
        pb.Path(both[0], 0, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"Path: edges, source and sink have shapes .* expected one batch"):
        pb.Path(both, torch.zeros(3, dtype=torch.long), 1)


def test_ends_and_edges_that_are_no_nodes_are_named():
    edges = torch.tensor([[0, 1], [1, 3]])
    with pytest.raises(ValueError, match=r"Path: the sink of the instance is -1; expected a node, an integer ≥ 0"):
        pb.Path(edges, 0, -1)
    with pytest.raises(ValueError, match=r"Path: the source of the instance is -1; expected a node, an integer ≥ 0"):
        pb.Path(edges, -1, 3)
    with pytest.raises(ValueError, match=r"Path: the source of example \[1\] is -2; expected a node"):
        pb.Path(edges, torch.tensor([0, -2]), 3)
    for node in ("0", 0.0, None, True, [0]):
        with pytest.raises(TypeError, match=r"Path: the source is .*; expected an integer ≥ 0, or a tensor"):
            pb.Path(edges, node, 3)
        with pytest.raises(TypeError, match=r"Path: the sink is .*; expected an integer ≥ 0, or a tensor"):
            pb.Path(edges, 0, node)
    for pair in ([-2, -2], [-1, 3], [1, -1], [-1, -2], [0, -5]):
        message = (
            rf"Path: edge 2 of the instance is \({pair[0]}, {pair[1]}\); expected two nodes, integers ≥ 0, or \(-1"
        )
        with pytest.raises(ValueError, match=message):
            pb.Path(torch.cat([edges, torch.tensor([pair])]), 0, 3)
    padded = torch.stack([edges, torch.tensor([[0, 3], [-1, -1]]), torch.tensor([[-1, 3], [0, 3]])])
    assert pb.Path(padded[:2], 0, 3).argmax(torch.zeros(2, 2)).tolist() == [[1, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"Path: edge 0 of example \[2\] is \(-1, 3\)"):
        pb.Path(padded, 0, 3)


def test_a_path_that_is_made_inside_a_compiled_function_refuses_the_same():
    torch.compiler.reset()
    edges, scores = torch.tensor([[0, 1], [1, 3]]), torch.zeros(2)
    best = torch.compile(lambda sink: pb.Path(edges, 0, sink).argmax(scores), fullgraph=True, backend="aot_eager")
    assert best(torch.tensor(3)).tolist() == [1, 1]
    with pytest.raises(ValueError, match=r"Path: the sink of the instance is -1; expected a node"):
        best(torch.tensor(-1))


def test_bad_scores_are_named():
    paths, scores = pb.Path(all_pairs(3), 0, 2), torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"Path: scores have 4 parts; expected one for each edge, 3"):
        paths.argmax(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"Path: the graphs have the batch shape \(5,\); expected .*, \(2,\)"):
        pb.Path(all_pairs(3).expand(5, 3, 2), 0, 2).argmax(scores)
    scores[1, :2] = -torch.inf
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"Path: example \[1\] has no path"):
            getattr(paths, name)(scores)
    scores[1, 0] = torch.nan
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"Path: the scores of example \[1\] contain NaN"):
            getattr(paths, name)(scores)
    with pytest.raises(ValueError, match=r"there are 1073741824 vertices; expected at most"):
        pb.Path(all_pairs(32), 0, 31).enumerate((496,))

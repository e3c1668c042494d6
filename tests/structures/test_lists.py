"""Vertices as lists of parts, and back."""

import itertools

import pytest
import torch

import pullback as pb
from families import WHOLE

EDGES = torch.tensor([[4, 9], [0, 2], [2, 9], [0, 4], [0, 9], [2, 4]])  # in no order
PATHS = pb.Path(EDGES, source=0, sink=9)


CASES = [
    case for case in WHOLE if isinstance(case.structure, (pb.Segmentation, pb.Alignment, pb.SpanningTree, pb.Path))
]


def lists_of(structure, vertices):
    """The lists of a structure's vertices, and the vertices made of them."""
    event = vertices.shape[vertices.dim() - structure.event_dims :]
    if isinstance(structure, pb.Segmentation):
        listed = structure.segments(vertices)
        return listed, structure.vertex(listed, *event)
    if isinstance(structure, pb.Alignment):
        listed = structure.cells(vertices)
        return listed, structure.vertex(listed, *event[:2])
    if isinstance(structure, pb.SpanningTree):
        listed = structure.edges(vertices)
        return listed, structure.vertex(listed, event[0])
    listed = structure.route(vertices)
    return listed, structure.vertex(listed)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_lists_lead_back_to_the_vertices(case):
    for seed in range(5):
        best = case.structure.argmax(case.scores(seed))
        listed, again = lists_of(case.structure, best)
        assert torch.equal(again.to(best.dtype), best)
        for one, vertex in zip(listed if case.batch else [listed], best.reshape(-1, *case.event)):
            per_edge = 2 if isinstance(case.structure, pb.SpanningTree) else 1
            assert len(one) * per_edge == vertex.sum()


def test_cells_are_in_the_order_of_the_path():
    scores = torch.randn(20, 6, 7, 3, generator=torch.Generator().manual_seed(0))
    came_from = [(-1, -1), (-1, 0), (0, -1)]
    for path in pb.Alignment().cells(pb.Alignment().argmax(scores)):
        assert path[0] == (0, 0, 0) and path[-1][:2] == (5, 6)
        for before, (i, j, move) in itertools.pairwise(path):
            assert before[:2] == (i + came_from[move][0], j + came_from[move][1])


def test_cells_that_count_once_have_no_move():
    warping = pb.Alignment(kind="dtw")
    assert warping.cells(torch.eye(3)) == [(0, 0), (1, 1), (2, 2)]
    assert torch.equal(warping.vertex([(0, 0), (1, 1), (2, 2)], 3, 3), torch.eye(3))


def test_routes_go_from_source_to_sink_whatever_the_order_of_the_edges():
    best = PATHS.argmax(torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 1.0]))
    assert PATHS.route(best) == [1, 5, 0] and PATHS.nodes(best) == [0, 2, 4, 9]
    both = torch.stack([best, PATHS.vertex([4])])
    assert PATHS.route(both) == [[1, 5, 0], [4]] and PATHS.nodes(both) == [[0, 2, 4, 9], [0, 9]]
    assert torch.equal(PATHS.vertex([[0, 1, 5], [4]]), both)
    assert PATHS.route(both.reshape(1, 2, 1, 6)) == [[[[1, 5, 0]], [[4]]]]


def test_routes_of_graphs_that_differ():
    graphs = torch.tensor([[[0, 1], [1, 2]], [[3, 5], [-1, -1]]])
    paths = pb.Path(graphs, torch.tensor([0, 3]), torch.tensor([2, 5]))
    best = paths.argmax(torch.zeros(2, 2))
    assert paths.nodes(best) == [[0, 1, 2], [3, 5]] and paths.route(best) == [[0, 1], [0]]
    with pytest.raises(ValueError, match=r"Path: the graphs have the batch shape \(2,\)"):
        paths.nodes(best[0])


def test_rows_without_a_vertex_are_empty_lists():
    nothing = torch.zeros(2, 6)
    assert PATHS.route(nothing) == PATHS.nodes(nothing) == [[], []]
    same = pb.Path(EDGES, source=4, sink=4)
    assert same.route(nothing) == [[], []] and same.nodes(nothing) == [[4], [4]]
    assert pb.Alignment().cells(torch.zeros(2, 3, 4, 3)) == pb.SpanningTree.edges(torch.zeros(2, 3, 3)) == [[], []]


def test_edges_of_a_tree_are_given_once():
    best = pb.SpanningTree().argmax(torch.tensor([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]]))
    assert pb.SpanningTree.edges(best) == [(0, 1), (1, 2)]
    assert torch.equal(pb.SpanningTree.vertex([(2, 1), (0, 1)], 3), best)


def tensors_of(listed):
    """The innermost lists of items as tensors."""
    if isinstance(listed[0], list):
        return [tensors_of(each) if each else each for each in listed]
    return torch.tensor(listed)


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_tensors_are_read_as_lists_are(case):
    best = case.structure.argmax(case.scores())
    listed, vertices = lists_of(case.structure, best)
    sizes = case.event[: {pb.Segmentation: 3, pb.Alignment: 2, pb.SpanningTree: 1, pb.Path: 0}[type(case.structure)]]
    if listed:
        assert torch.equal(case.structure.vertex(tensors_of(listed), *sizes), vertices)


def test_a_batch_may_be_one_tensor():
    cut = torch.tensor([[[0, 2, 0], [2, 1, 0]], [[0, 1, 1], [1, 2, 0]]])
    assert torch.equal(pb.Segmentation.vertex(cut, 3, 2, 2), pb.Segmentation.vertex(cut.tolist(), 3, 2, 2))
    assert torch.equal(PATHS.vertex(torch.tensor([[1, 2]])), PATHS.vertex([[1, 2]]))


FORK = pb.Path(torch.tensor([[0, 1], [0, 2], [1, 3], [2, 3]]), source=0, sink=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: FORK.vertex([0, 1]),
            r"Path\.vertex: the edges \[0, 1\] do not lead from 0 to 3; expected the edges of o",
        ),
        (lambda: FORK.vertex([[0, 2], [0]]), r"Path\.vertex: the edges \[0\] do not lead from 0 to 3"),
        (lambda: FORK.vertex([0, 2, 1, 3]), r"Path\.vertex: the edges \[0, 1, 2, 3\] do not lead"),
        (lambda: FORK.vertex([0, 0, 2]), r"Path\.vertex: 0 is given twice; expected every part once"),
        (
            lambda: pb.Segmentation.vertex([(0, 2, 0), (1, 2, 0)], 4, 2, 1),
            r"the segments are \[\(0, 2, 0\), \(1, 2, 0\)\], of which one begins at 1; expected one at 2",
        ),
        (lambda: pb.Segmentation.vertex([(1, 2, 0)], 4, 2, 1), r"of which one begins at 1; expected one at 0"),
        (lambda: pb.Segmentation.vertex([[(0, 1, 0), (2, 1, 0)]], 4, 2, 1), r"one begins at 2; expected one at 1"),
        (lambda: pb.Segmentation.vertex([(0, 1, 0), (0, 1, 1)], 4, 2, 2), r"one begins at 0; expected one at 1"),
        (
            lambda: pb.Segmentation.vertex(torch.tensor([[0.0, 2, 0]]), 4, 2, 1),
            r"a segment is \[0\.0, 2\.0, 0\.0\]; exp",
        ),
        (
            lambda: pb.Alignment(kind="dtw").vertex([[(0, 0), (1, 1)], [(0, 0)]], 2, 2),
            r"Alignment\.vertex: the cells are \[\(0, 0\)\]; expected all cells of one alignment of kind 'dtw'",
        ),
        (lambda: pb.Alignment().vertex([(0, 0, 0), (1, 1, 1)], 2, 2), r"the cells are \[\(0, 0, 0\), \(1, 1, 1\)\]"),
        (
            lambda: pb.Alignment(torch.tensor([2, 1])).vertex([(0, 0, 0), (1, 1, 0)], 2, 2),
            r"the cells are \[\(0, 0, 0\), \(1, 1, 0\)\]; expected all cells",
        ),
        (
            lambda: pb.SpanningTree.vertex([(0, 1), (2, 1), (0, 2)], 4),
            r"the edges are \[\(0, 1\), \(2, 1\), \(0, 2\)\], and \(0, 2\) closes a cycle; expected the edges of",
        ),
        (lambda: pb.SpanningTree.vertex([[(0, 1)], [(0, 1), (1, 0)]], 4), r"and \(1, 0\) closes a cycle"),
    ],
)
def test_parts_that_are_no_structure_together_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PATHS.route(torch.ones(6)), r"Path\.route: the edges \[0, 1, 2, 3, 4, 5\] do not lead from 0 to 9"),
        (
            lambda: PATHS.nodes(torch.eye(6)[0]),
            r"Path\.nodes: the edges \[0\] do not lead from 0 to 9; expected the edges",
        ),
        (lambda: PATHS.nodes(torch.zeros(5)), r"Path: scores have 5 parts; expected one for each edge, 6"),
        (lambda: PATHS.vertex([0, 6]), r"Path\.vertex: an edge of the route is 6; expected a whole number from 0 to 5"),
        (lambda: PATHS.vertex([[0], [1.0]]), r"Path\.vertex: an edge of the route is 1\.0; expected a whole number"),
        (lambda: pb.SpanningTree.edges(torch.ones(3, 3).triu(1)), r"vertex\[0, 1\] is 1, .* expected halves"),
        (
            lambda: pb.SpanningTree.vertex([(0, 0)], 3),
            r"SpanningTree\.vertex: an edge is \(0, 0\); expected \(i, j\), two",
        ),
        (lambda: pb.SpanningTree.vertex([(0, 3)], 3), r"an edge is \(0, 3\); .* below 3"),
        (
            lambda: pb.Alignment().cells(torch.zeros(3, 4, 2)),
            r"parts of shape \(3, 4, 2\); expected \(\.\.\., n, m, 3\)",
        ),
        (
            lambda: pb.Alignment().vertex([(0, 0)], 3, 4),
            r"Alignment\.vertex: a cell is \(0, 0\); expected \(i, j, move\) below \(3, 4, 3\)",
        ),
        (lambda: pb.Alignment(kind="dtw").vertex([(0, -1)], 3, 4), r"a cell is \(0, -1\); expected \(i, j\) below"),
    ],
)
def test_lists_that_are_no_vertices_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

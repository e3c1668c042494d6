"""What is particular to alignments, beyond the contract of every structure."""

import math

import pytest
import torch
from torch.testing import assert_close

import pullback as pb

MATCH, DOWN, RIGHT = 0, 1, 2
STEPS = {MATCH: (1, 1), DOWN: (1, 0), RIGHT: (0, 1)}


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def delannoy(n, m):
    if n == 0 or m == 0:
        return 1
    return delannoy(n - 1, m) + delannoy(n, m - 1) + delannoy(n - 1, m - 1)


def rectangles(n, m):
    """How many local alignments: those that begin in one cell and end in another, below and to the right."""
    return sum(delannoy(i, j) * (n - i) * (m - j) for i in range(n) for j in range(m))


def shape_of(kind, n, m):
    return (n, m, 3) if kind in ("global", "local") else (n, m)


COUNTS = {
    "global": lambda n, m: delannoy(n - 1, m - 1),
    "local": rectangles,
    "dtw": lambda n, m: delannoy(n - 1, m - 1),
    "monotonic": lambda n, m: math.comb(m - 1, n - 1),
}
every_kind = pytest.mark.parametrize("kind", COUNTS)


@every_kind
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (2, 3), (3, 4), (4, 4)])
def test_the_number_of_alignments_is_known(kind, n, m):
    shape = shape_of(kind, n, m)
    vertices = pb.Alignment(kind=kind).enumerate(shape).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == COUNTS[kind](n, m)
    value = pb.Alignment(kind=kind).log_partition(torch.zeros(shape, dtype=torch.float64))
    assert_close(value.exp(), torch.tensor(float(COUNTS[kind](n, m)), dtype=torch.float64))


def as_path(n, m, rows, columns):
    """Global alignments as paths: an edge for each move into a cell, and one into the first cell."""
    edges = torch.full((n, m, 3, 2), -1)
    for i in range(n):
        for j in range(m):
            for move, (down, right) in STEPS.items():
                if i >= down and j >= right:
                    edges[i, j, move] = torch.tensor([(i - down) * m + j - right + 1, i * m + j + 1])
    edges[0, 0, MATCH] = torch.tensor([0, 1])
    return pb.Path(edges.reshape(-1, 2), 0, (rows - 1) * m + columns)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 100.0])
def test_a_global_alignment_is_a_path_through_cells(scale):
    n, m = 5, 4
    lengths = torch.tensor([[5, 4], [3, 4], [5, 1], [1, 1]])
    scores = scale * random_scores(4, n, m, 3)
    alignments, paths = pb.Alignment(lengths=lengths), as_path(n, m, *lengths.unbind(-1))
    for name in ("argmax", "marginals", "sparsemap"):
        expected = getattr(paths, name)(scores.flatten(1)).reshape(scores.shape)
        assert_close(getattr(alignments, name)(scores), expected)
    for name in ("log_partition", "entropy"):
        assert_close(getattr(alignments, name)(scores), getattr(paths, name)(scores.flatten(1)))
    assert_close(alignments.topk(scores, 4).scores, paths.topk(scores.flatten(1), 4).scores)


def test_dynamic_time_warping_is_a_global_alignment_whose_moves_share_the_score_of_a_cell():
    scores = random_scores(3, 4, 5)
    moves, cells = scores.unsqueeze(-1).expand(3, 4, 5, 3), pb.Alignment(kind="dtw")
    assert_close(cells.log_partition(scores), pb.Alignment().log_partition(moves))
    assert_close(cells.argmax(scores), pb.Alignment().argmax(moves).sum(-1))
    assert_close(cells.marginals(scores), pb.Alignment().marginals(moves).sum(-1))


def test_soft_dtw_is_the_log_partition_of_negative_costs():
    costs, gamma = random_scores(4, 6).abs(), 0.3
    chart = torch.full((5, 7), torch.inf, dtype=torch.float64)
    chart[0, 0] = 0.0
    for i in range(4):
        for j in range(6):
            before = torch.stack([chart[i, j], chart[i, j + 1], chart[i + 1, j]])
            chart[i + 1, j + 1] = costs[i, j] - gamma * (-before / gamma).logsumexp(0)
    assert_close(-gamma * pb.Alignment(kind="dtw").log_partition(-costs / gamma), chart[-1, -1])


def test_monotonic_alignments_give_every_column_one_row_and_leave_none_out():
    best = pb.Alignment(kind="monotonic").argmax(random_scores(5, 4, 9))
    assert (best.sum(-2) == 1).all() and (best.sum(-1) >= 1).all()
    rows = best.argmax(-2)
    assert (rows[:, 0] == 0).all() and (rows[:, -1] == 3).all()
    assert (rows.diff(dim=-1) >= 0).all() and (rows.diff(dim=-1) <= 1).all()


def test_a_local_alignment_finds_what_two_sequences_share():
    ours, theirs = torch.tensor([4, 1, 2, 3, 0]), torch.tensor([7, 7, 1, 2, 3, 9])
    scores = torch.full((5, 6, 3), -1.0)
    scores[..., MATCH] = torch.where(ours[:, None] == theirs, 1.0, -1.0)
    assert pb.Alignment(kind="local").argmax(scores).nonzero().tolist() == [[1, 2, 0], [2, 3, 0], [3, 4, 0]]


@every_kind
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 1000.0])
def test_large_projections_are_certified_by_their_own_argmax(kind, scale):
    alignments = pb.Alignment(kind=kind, lengths=torch.tensor([[12, 14], [7, 9]]))
    scores = scale * random_scores(2, *shape_of(kind, 12, 14))
    point = alignments.sparsemap(scores)
    rest = scores - point
    gap = alignments.inner(rest, alignments.argmax(rest)) - alignments.inner(rest, point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()


@every_kind
def test_derivatives_meet_finite_differences_in_a_padded_batch(kind):
    alignments = pb.Alignment(kind=kind, lengths=torch.tensor([[3, 4], [2, 2]]))
    scores = random_scores(2, *shape_of(kind, 3, 4)).requires_grad_()
    for operation in (alignments.log_partition, alignments.marginals, alignments.sparsemap):
        assert torch.autograd.gradcheck(operation, scores)
    assert torch.autograd.gradgradcheck(alignments.log_partition, scores)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"Alignment: the kind is 'best'; expected one of 'global', 'local'"):
        pb.Alignment(kind="best")
    with pytest.raises(ValueError, match=r"Alignment: scores have parts of shape \(4, 3, 2\); expected"):
        pb.Alignment().argmax(torch.zeros(4, 3, 2))
    with pytest.raises(ValueError, match=r"Alignment: lengths\[1, 1\] is 5; expected between 0 and 4"):
        pb.Alignment(kind="dtw", lengths=torch.tensor([[3, 4], [2, 5]])).argmax(torch.zeros(2, 3, 4))
    operations = ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support")
    reasons = {
        (3, 2): "has 3 rows and 2 columns; expected at least as many",
        (0, 2): "of lengths 0 and 2, has no alignment",
    }
    for lengths, reason in reasons.items():
        narrow = pb.Alignment(kind="monotonic", lengths=torch.tensor([[2, 4], lengths]))
        for name in operations:
            with pytest.raises(ValueError, match=rf"Alignment: example \[1\],? {reason}"):
                getattr(narrow, name)(torch.zeros(2, 3, 4))
    scores = torch.zeros(2, 3, 4, 3)
    scores[1, 2, 2, 0] = torch.nan
    for kind in ("global", "local"):
        for name in operations:
            with pytest.raises(ValueError, match=r"Alignment: the scores of example \[1\] contain NaN"):
                getattr(pb.Alignment(kind=kind), name)(scores)

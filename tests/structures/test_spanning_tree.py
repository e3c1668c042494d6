"""What is particular to spanning trees and forests, beyond the contract of every structure."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import pullback as pb

TREES = pb.SpanningTree()
REGULARIZERS = [pb.Unregularized(), pb.Entropy(), pb.SquaredNorm()]


def random_scores(*shape, seed=0, scale=1.0):
    """Not symmetric."""
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def symmetric(matrix):
    return (matrix + matrix.mT) / 2


# ---- what a tree is


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_there_are_as_many_trees_as_cayley_says(n):
    vertices = TREES.enumerate((n, n)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == (n ** (n - 2) if n > 1 else 1)
    assert torch.equal(vertices, vertices.mT)
    assert (vertices.sum((-1, -2)) == 2 * (n - 1)).all()
    assert (vertices.diagonal(dim1=-2, dim2=-1) == 0).all()
    assert_close(
        TREES.log_partition(torch.zeros(n, n, dtype=torch.float64)).exp(), torch.tensor(len(vertices)).double()
    )


@pytest.mark.parametrize(("n", "counts"), [(1, [1]), (2, [1, 1]), (3, [3, 3, 1]), (4, [16, 15, 6, 1])])
def test_there_are_as_many_forests_as_known(n, counts):
    found = [len(pb.SpanningTree.forest(k).enumerate((n, n)).vertices) for k in range(1, n + 1)]
    assert found == counts
    assert len(pb.SpanningTree.forest(2).enumerate((5, 5)).vertices) == 110


def test_the_score_of_a_tree_counts_the_mean_of_both_entries_of_an_edge_once():
    scores = random_scores(4, 4)
    path = torch.zeros(4, 4, dtype=torch.float64)
    for i in range(3):
        path[i, i + 1] = path[i + 1, i] = 1
    exact = sum((scores[i, i + 1] + scores[i + 1, i]) / 2 for i in range(3))
    assert_close(TREES.inner(scores, path), exact)
    every = TREES.topk(scores, 16)
    place = (every.vertices == path).all(-1).all(-1).nonzero().item()
    assert_close(every.scores[place], exact)
    assert_close(TREES.log_prob(scores, path), exact - every.scores.logsumexp(-1))


def test_what_is_no_tree_is_no_vertex():
    path = TREES.argmax(torch.tensor([[0.0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]))
    assert TREES.contains(path)
    assert not TREES.contains(path.triu())  # one half alone
    assert not TREES.contains(path / 2)
    assert not TREES.contains(path + torch.eye(4))
    cycle = torch.zeros(4, 4)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        cycle[i, j] = cycle[j, i] = 1
    assert not TREES.contains(cycle)
    assert not pb.SpanningTree(torch.tensor(3)).contains(path)
    assert not pb.SpanningTree.forest(2).contains(path)
    assert pb.SpanningTree.forest(2).contains(path * (torch.arange(4) < 3) * (torch.arange(4) < 3)[:, None])


# ---- both halves


OPERATIONS = ("argmax", "sparsemap", "project", "log_partition", "marginals", "entropy")


@pytest.mark.parametrize("name", OPERATIONS)
def test_where_the_halves_differ_their_mean_counts(name):
    scores = random_scores(3, 5, 5)
    operation = getattr(TREES, name)
    assert_close(operation(scores), operation(symmetric(scores)))
    assert_close(operation(scores.mT), operation(scores))


@pytest.mark.parametrize("name", ["sparsemap", "log_partition", "marginals", "entropy"])
def test_gradients_are_symmetric_and_zero_on_the_diagonal(name):
    scores = random_scores(3, 5, 5).requires_grad_()
    value = getattr(TREES, name)(scores)
    (gradient,) = torch.autograd.grad((value * random_scores(*value.shape, seed=1)).sum(), scores)
    assert torch.equal(gradient, gradient.mT)
    assert (gradient.diagonal(dim1=-2, dim2=-1) == 0).all() and (gradient != 0).any()


def test_each_half_of_the_gradient_of_the_log_partition_is_half_of_the_marginals():
    scores = random_scores(3, 6, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(TREES.log_partition(scores).sum(), scores)
    marginals = TREES.marginals(scores)
    assert_close(gradient, marginals / 2)
    assert_close(marginals.sum((-1, -2)), torch.full((3,), 2.0 * 5).double())


def test_everything_that_counts_edges_meets_finite_differences_in_every_entry():
    scores, trees = random_scores(2, 4, 4).requires_grad_(), TREES.topk(random_scores(2, 4, 4, seed=1), 3).vertices
    label = (trees * torch.tensor([0.5, 0.3, 0.2])[:, None, None]).sum(1)
    assert gradcheck(lambda scores: TREES.log_prob(scores, trees[:, 0]), (scores,))
    assert gradcheck(lambda scores: TREES.topk(scores, 3).scores, (scores,))
    assert gradcheck(lambda scores: TREES.inner(scores, label), (scores,))
    for regularizer in REGULARIZERS:
        assert gradcheck(lambda scores, r=regularizer: r.conjugate(TREES, scores), (scores,))
        loss = pb.FenchelYoungLoss(regularizer)
        assert gradcheck(lambda scores, loss=loss: loss(TREES, scores, trees[:, 0]), (scores,))


def test_the_gradient_of_the_maximum_entropy_is_minus_the_scores():
    scores = symmetric(random_scores(4, 4))
    point = TREES.marginals(scores).requires_grad_()
    (gradient,) = torch.autograd.grad(TREES.maximum_entropy(point), point)
    apart = 2 * gradient + scores  # the same number at every edge, as all trees have as many edges
    off = ~torch.eye(4, dtype=torch.bool)
    assert_close(apart[off], apart[0, 1].expand(12), atol=1e-6, rtol=0)


def test_an_edge_is_forbidden_by_either_half_of_scores_or_mask():
    scores = random_scores(4, 4)
    below, above = scores.clone(), scores.clone()
    below[2, 0] = above[0, 2] = -torch.inf
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2, 0] = False
    dirty = scores.clone()
    dirty[0, 2] = torch.nan  # the mask forbids it by its other half
    for name in OPERATIONS:
        expected = getattr(TREES, name)(below)
        assert_close(getattr(TREES, name)(above), expected)
        assert_close(getattr(pb.SpanningTree(mask=mask), name)(dirty), expected)
        if expected.dim() == 2:
            assert expected[0, 2] == expected[2, 0] == 0
    rows = pb.SpanningTree(mask=torch.tensor([True, True, True, False]))  # for each column: node 3 stays alone
    with pytest.raises(ValueError, match="has no tree"):
        rows.argmax(scores)


# ---- an edge in two places trains like an edge in one


@dataclass(frozen=True, eq=False)
class Edges(pb.LogLinear, pb.Enumerable):
    """The same trees, as vectors with one entry for each edge."""

    n: int

    def matrix(self, edges):
        low, high = torch.triu_indices(self.n, self.n, 1)
        whole = edges.new_zeros(*edges.shape[:-1], self.n, self.n)
        whole[..., low, high] = edges
        return whole + whole.mT

    def vector(self, matrix):
        low, high = torch.triu_indices(self.n, self.n, 1)
        return matrix[..., low, high]

    def argmax(self, scores):
        return self.vector(TREES.argmax(self.matrix(scores.detach())))

    def log_partition(self, scores):
        every = self.vector(TREES.enumerate((self.n, self.n)).vertices.double())
        return (scores @ every.T).logsumexp(-1)

    def sample(self, scores, sample_shape=(), *, generator=None):
        return self.vector(TREES.sample(self.matrix(scores), sample_shape, generator=generator))

    def vertices(self, event):
        return self.vector(TREES.enumerate((self.n, self.n)).vertices)


ESTIMATORS = {
    "ste": pb.ste(0.3),
    "spigot": pb.spigot(0.3),
    "spigot, two steps": pb.spigot(0.3, steps=2),
    "spigot_ce": pb.spigot_ce(0.3),
    "spigot_eg": pb.spigot_eg(0.3),
    "best_vertex": pb.best_vertex(),
    "structured_attention": pb.structured_attention(0.7),
    "sparsemap": pb.sparsemap(0.7),
    "ste_marginals": pb.ste_marginals(),
    "ste_sparsemap": pb.ste_sparsemap(),
    "minimum_risk": pb.minimum_risk(),
}


@pytest.mark.parametrize("half", ["upper", "lower", "both"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_trains_edges_as_if_each_were_one_entry(name, half):
    edges, goal = Edges(4), random_scores(3, 6, seed=1)
    one, two = (random_scores(3, 6).requires_grad_() for _ in range(2))

    def loss(vector):
        return (vector - goal).pow(2).sum(-1) + (vector @ goal.T[:, 0]).sin()

    def loss_of_matrix(matrix):
        seen = {"upper": matrix, "lower": matrix.mT, "both": symmetric(matrix)}[half]
        return loss(edges.vector(seen))

    estimator = ESTIMATORS[name]
    expected, found = estimator.loss(edges, one, loss), estimator.loss(TREES, edges.matrix(two), loss_of_matrix)
    assert_close(found, expected)
    expected.sum().backward()
    found.sum().backward()
    assert_close(two.grad, one.grad, atol=1e-6, rtol=1e-6)


def test_the_gradient_of_the_sparsemap_estimator_is_that_of_its_loss():
    weight = random_scores(5, 5, seed=3)
    loss = lambda point: (weight * point).sum((-1, -2)).sin() + point[..., 0, 1].square()
    scores = random_scores(2, 5, 5, scale=0.5).requires_grad_()
    for estimator in (pb.sparsemap(), pb.structured_attention()):
        assert gradcheck(lambda scores, e=estimator: e.loss(TREES, scores, loss), (scores,))


def test_exponentiated_steps_tend_to_the_gradient_of_the_marginals():
    weight = random_scores(5, 5, seed=3)
    loss = lambda point: (weight * point).sum((-1, -2)).sin()
    gradients = []
    for estimator in (pb.spigot_eg(1e-6), pb.structured_attention()):
        scores = random_scores(2, 5, 5).requires_grad_()
        estimator.loss(TREES, scores, loss).sum().backward()
        gradients.append(scores.grad)
    assert_close(gradients[0] / 1e-6, gradients[1], atol=1e-5, rtol=1e-4)


# ---- sizes, known answers


@pytest.mark.parametrize("n", [2, 5, 30])
def test_equal_scores_give_equal_edges(n):
    scores = torch.full((n, n), 3.0, dtype=torch.float64)
    uniform = (1 - torch.eye(n).double()) * 2 / n
    assert_close(TREES.marginals(scores), uniform)
    assert_close(TREES.sparsemap(scores), uniform)
    assert_close(TREES.entropy(scores), torch.tensor((n - 2) * math.log(n), dtype=torch.float64))
    forest = pb.SpanningTree.forest(2).sparsemap(scores)
    assert_close(forest.sum(), torch.tensor(2.0 * (n - 2)).double())


def test_a_path_is_its_own_only_tree():
    n = 6
    scores = torch.full((n, n), -torch.inf)
    for i in range(n - 1):
        scores[i, i + 1] = scores[i + 1, i] = float(i)
    path = (scores > -torch.inf).float()
    for name in ("argmax", "marginals", "sparsemap", "sample"):
        assert_close(getattr(TREES, name)(scores), path)
    assert_close(TREES.log_partition(scores), torch.tensor(10.0))
    assert_close(TREES.entropy(scores), torch.tensor(0.0))
    assert TREES.topk(scores, 3).size == 1


@pytest.mark.parametrize("k", [1, 7])
@pytest.mark.parametrize("scale", [0.0, 0.01, 0.3, 1.0, 30.0])
def test_large_projections_are_certified_by_their_own_argmax(scale, k):
    scores = random_scores(2, 60, 60, scale=scale)
    trees = pb.SpanningTree(torch.tensor([60, 37]), trees=k)
    point = trees.sparsemap(scores)
    rest = scores - point
    gap = trees.inner(rest, trees.argmax(rest)) - trees.inner(rest, point)
    assert (gap.abs() <= 1e-9 * max(1.0, scale)).all()
    assert_close(point.sum((-1, -2)), torch.tensor([2.0 * (60 - k), 2.0 * (37 - k)]).double())
    assert (point[1, 37:] == 0).all() and (point[1, :, 37:] == 0).all()


def test_the_vertices_of_a_solution_mix_to_the_point_and_warm_starts_keep_them():
    scores = random_scores(3, 12, 12, scale=0.5)
    for trees in (TREES, pb.SpanningTree.forest(3)):
        found = trees.solve(scores)
        assert_close(found.mixture.mean(), trees.sparsemap(scores), atol=1e-7, rtol=0)
        assert (trees.solve(scores, start=found.mixture.vertices).iterations == 1).all()


def test_graphs_without_edges_have_one_tree():
    scores = torch.full((2, 3, 3), torch.nan, dtype=torch.float64).requires_grad_()
    none = pb.SpanningTree(torch.tensor([0, 1]))
    for name in ("argmax", "sparsemap", "marginals", "sample"):
        assert (getattr(none, name)(scores) == 0).all()
    value = none.log_partition(scores)
    assert (value == 0).all()
    assert (torch.autograd.grad(value.sum(), scores)[0] == 0).all()
    single = pb.SpanningTree.forest(3)  # as many trees as nodes
    assert (single.argmax(torch.zeros(3, 3)) == 0).all() and (single.sparsemap(torch.zeros(3, 3)) == 0).all()


# ---- forests have no sums, and errors are in words


def test_forests_offer_what_needs_no_sum():
    forests, scores = pb.SpanningTree.forest(2), random_scores(2, 4, 4)
    assert TREES.offers(pb.LogLinear) and not forests.offers(pb.LogLinear)
    assert forests.offers(pb.KBest) and forests.offers(pb.Enumerable) and not TREES.offers(pb.Simplex)
    for name in ("log_partition", "marginals", "entropy", "sample"):
        with pytest.raises(pb.MissingCapability, match=r"no fast way to sum over all forests of 2 trees.*trees=1"):
            getattr(forests, name)(scores)
    with pytest.raises(pb.MissingCapability, match="partition function"):
        pb.spigot_eg().loss(forests, scores.requires_grad_(), lambda z: z.sum((-1, -2)))
    both = pb.product(forests, pb.Categorical(), shapes=[(4, 4), (2,)])
    assert not both.offers(pb.LogLinear) and not pb.Independent(forests).offers(pb.LogLinear)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pb.SpanningTree.forest(0), r"forest: k is 0; expected an integer ≥ 1"),
        (lambda: pb.SpanningTree(trees=1.5), r"trees is 1\.5"),
        (lambda: TREES.argmax(torch.zeros(2, 3, 4)), r"parts of shape \(3, 4\); expected \(\.\.\., n, n\)"),
        (
            lambda: pb.SpanningTree.forest(3, lengths=torch.tensor([3, 2])).sparsemap(torch.zeros(2, 3, 3)),
            r"example \[1\] has 2 node\(s\); expected at least 3, one for each tree",
        ),
        (lambda: pb.SpanningTree(torch.tensor([2, 4])).argmax(torch.zeros(2, 3, 3)), r"lengths\[1\] is 4"),
        (lambda: TREES.enumerate((12, 12)), r"there are \d+ ways to choose 11 edges; expected at most"),
    ],
)
def test_misuse_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=rf"SpanningTree[.:].*{message}"):
        make()


def test_a_graph_in_pieces_is_refused_unless_its_pieces_are_the_trees():
    scores = torch.full((4, 4), -torch.inf)
    scores[0, 1] = scores[1, 0] = scores[2, 3] = scores[3, 2] = 0.0
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "entropy", "sample", "support"):
        with pytest.raises(ValueError, match=r"the instance has no tree: its mask or its edges at -inf"):
            getattr(TREES, name)(scores)
    assert_close(pb.SpanningTree.forest(2).sparsemap(scores), (scores == 0).float())
    with pytest.raises(ValueError, match="no forest of 2 trees"):
        pb.SpanningTree.forest(2).argmax(scores.masked_fill(scores == 0, -torch.inf))


def test_sparsemap_that_rounding_leads_out_of_the_polytope_is_an_error():
    signs = torch.tensor([[1, -1, 1, 1], [-1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]).double()
    assert_close(pb.SpanningTree().sparsemap(1e8 * signs)[0, 2:], signs.new_ones(2))
    with pytest.raises(pb.ConvergenceError, match="did not converge"):
        pb.SpanningTree().sparsemap(1e20 * signs)


@pytest.mark.parametrize("tolerance", [0.01, 0.3, 1.0])
def test_the_gap_of_a_solution_counts_every_edge_once(tolerance):
    scores, trees = symmetric(random_scores(8, 10, 10)), pb.SpanningTree(tolerance=tolerance)
    solution = trees.solve(scores)
    rest = scores - solution.mixture.mean()
    rest.diagonal(dim1=-2, dim2=-1).zero_()
    assert_close(solution.gap, TREES.inner(rest, TREES.argmax(rest) - solution.mixture.mean()))
    assert solution.converged.all() and (solution.gap <= tolerance).all() and (solution.gap > tolerance / 100).any()

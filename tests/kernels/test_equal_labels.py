"""SparseMAP over arcs whose labels all score the same: by arcs alone, with the derivative of the labelled face."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.operators import _equal_labels
from pullback.operators._equal_labels import ByChartOrArcs
from pullback.operators._mixture_projection import VertexSearch
from reference.active_set import face_projector

ROOTS = pytest.mark.parametrize("single_root", [False, True], ids=["any roots", "one root"])


@pytest.fixture
def always(monkeypatch):
    """Few words are projected by arcs, too.  The list tells for how many examples that happened."""
    counts, project = [], ByChartOrArcs._project_arcs

    def counted(self, scores, *given):
        counts.append(len(scores))
        return project(self, scores, *given)

    monkeypatch.setattr(ByChartOrArcs, "_project_arcs", counted)
    monkeypatch.setattr(ByChartOrArcs, "are_long", lambda self, lengths: lengths >= 1)
    monkeypatch.setattr(_equal_labels, "_SPANNING", 1)
    return counts


def tied(*shape, seed):
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)) / 4.0


def with_labels(arcs, labels):
    return arcs.double()[..., None].repeat(1, 1, 1, labels)


@ROOTS
@pytest.mark.parametrize("masked", ["nothing", "a label", "arcs"])
def test_the_point_and_its_derivative_are_those_of_the_listed_trees(single_root, masked, always):
    scores = with_labels(tied(6, 4, 4, seed=0), 3)
    scores[0] = 0.0
    if masked == "a label":
        scores[..., 1] = -torch.inf
    elif masked == "arcs":
        scores[:, 1, 2] = -torch.inf
    trees = pb.DependencyTree(projective=True, single_root=single_root, labelled=True)
    every = trees.enumerate(scores.shape[1:]).vertices.flatten(1).double().numpy()
    leaf = scores.clone().requires_grad_()
    point = trees.sparsemap(leaf)
    gradient = torch.randn(point.shape, generator=torch.Generator().manual_seed(1), dtype=point.dtype)
    point.backward(gradient)
    assert sum(always) == len(scores)
    for s, mu, g, found in zip(scores, point.detach(), gradient, leaf.grad):
        mu, rest = mu.flatten().numpy(), torch.where(s > -torch.inf, s - mu, -1e6).flatten().numpy()
        assert ((every - mu) @ rest).max() <= 1e-11
        expected = face_projector(rest, every, mu) @ g.flatten().numpy()
        assert_close(found.flatten(), torch.from_numpy(expected), rtol=0, atol=1e-9)


def test_only_arcs_that_have_as_many_labels_of_one_score_are_projected_alone(always):
    trees = pb.DependencyTree(torch.tensor([9, 5, 9]), projective=True, labelled=True)
    scores = with_labels(tied(3, 10, 10, seed=2), 3)
    scores[1, 6:], scores[1, :, 6:], scores[:, :, 0] = torch.nan, torch.nan, torch.nan
    point = trees.sparsemap(scores)
    assert always == [3]
    for change in (0.125, -torch.inf):
        other = scores.clone()
        other[0, 2, 3, 1] += change
        assert_close(trees.sparsemap(other)[1:], point[1:])
        assert always.pop() == 2


def test_blocks_of_ties_with_equal_labels_take_the_vertices_of_arcs(monkeypatch):
    node, sizes, run = torch.arange(26), [], VertexSearch.run

    def counted(self, batch):
        report = run(self, batch)
        sizes.extend(batch.size[batch.lo : batch.hi].tolist())
        return report

    monkeypatch.setattr(VertexSearch, "run", counted)
    blocks = ((node[:, None] // 10) == (node // 10)).double()[None]
    alone = pb.DependencyTree(projective=True).sparsemap(3 * blocks)
    trees = pb.DependencyTree(projective=True, labelled=True)
    leaf = with_labels(blocks, 3).requires_grad_()
    point = trees.sparsemap(leaf)
    assert_close(point, (alone / 3)[..., None].expand_as(point))
    assert sizes[1:] == sizes[:1]  # and no search with labels, which would end with many times as many
    rest = (leaf - point).detach()
    assert (rest * (trees.argmax(rest) - point)).sum() <= 1e-10
    gradient = torch.randn(point.shape, generator=torch.Generator().manual_seed(0), dtype=point.dtype)
    point.backward(gradient)
    assert_close((leaf.grad * leaf.grad).sum(), (leaf.grad * gradient).sum())  # a projection

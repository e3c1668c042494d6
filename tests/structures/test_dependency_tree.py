"""Dependency trees beyond what every structure promises: the two ways to SparseMAP."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from pullback.structures import _tree_projections

LENGTHS = torch.tensor([12, 12, 12, 7, 12, 0])
SCALES = torch.tensor([10.0, 0.5, 4.0, 10.0, 1.0, 1.0], dtype=torch.float64)


def mixed_batch(dtype=torch.float64):
    """Peaked and flat scores by turns."""
    generator = torch.Generator().manual_seed(0)
    return (SCALES[:, None, None] * torch.randn(6, 13, 13, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("single_root", [False, True])
def test_peaked_examples_go_by_trees_and_flat_ones_by_cuts_to_the_same_points(single_root, monkeypatch):
    trees, scores = pb.DependencyTree(LENGTHS, single_root=single_root), mixed_batch().requires_grad_()
    weights = torch.randn(6, 13, 13, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def both():
        point, _, _, count = _tree_projections.project(scores, LENGTHS, single_root)
        (gradient,) = torch.autograd.grad((point * weights).sum(), scores)
        return count, point, gradient

    count, *expected = both()
    assert count[0] > 0 and count[3] > 0 and count[1] == count[4] == 0
    assert_close(trees.sparsemap(scores), expected[0])
    for name, value in {"_FEW_RIVALS": 0, "_FEW_TREES": 1}.items():
        monkeypatch.setattr(_tree_projections, name, value)
        count, *found = both()
        assert (count <= value).all()  # all by cuts, or all whose trees were more than expected
        for given, wanted in zip(found, expected):
            assert_close(given, wanted, atol=1e-9, rtol=0)
        monkeypatch.undo()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_way_of_an_example_does_not_depend_on_its_batch(dtype):
    scores = mixed_batch(dtype)
    together = pb.DependencyTree(LENGTHS).sparsemap(scores)
    for b in range(6):
        alone = pb.DependencyTree(LENGTHS[b]).sparsemap(scores[b])
        assert torch.equal(together[b], alone)


def test_the_derivative_is_right_whichever_way_was_taken():
    scores = mixed_batch()[:, :6, :6].contiguous().requires_grad_()
    assert torch.autograd.gradcheck(pb.DependencyTree().sparsemap, scores)
    assert torch.autograd.gradgradcheck(pb.DependencyTree().sparsemap, scores)

"""Several latent variables in one example: `Independent` and `product`."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_eight_choices_with_one_loss_per_example_are_trained():
    """Each copy learns the category that its own column of the target asks for."""
    scores = torch.zeros(4, 8, 16, dtype=torch.float64, requires_grad=True)
    wanted = torch.nn.functional.one_hot(torch.arange(32).reshape(4, 8) % 16, 16).double()
    each, optimizer = pb.Independent(pb.Categorical()), torch.optim.SGD([scores], lr=1.0)
    for _ in range(30):
        losses = pb.spigot_ce(0.5).loss(each, scores, lambda z: (z - wanted).square().sum((-1, -2)))
        assert losses.shape == (4,)
        optimizer.zero_grad()
        losses.sum().backward()
        optimizer.step()
    assert torch.equal(each.argmax(scores), wanted)


def test_copies_are_what_the_inner_structure_gives_in_a_batch():
    scores, inner, each = random_scores(3, 2, 4, 4), pb.DependencyTree(), pb.Independent(pb.DependencyTree())
    for name in ("argmax", "sparsemap", "marginals"):
        assert_close(getattr(each, name)(scores), getattr(inner, name)(scores))
    for name in ("log_partition", "entropy"):
        assert_close(getattr(each, name)(scores), getattr(inner, name)(scores).sum(-1))
    z = each.sample(scores, (5,), generator=torch.Generator().manual_seed(0))
    assert_close(each.log_prob(scores, z), inner.log_prob(scores, z).sum(-1))
    choice = pb.Independent(pb.Categorical())
    assert_close(choice.entmax(scores[:, :, 0], 1.5), pb.Categorical().entmax(scores[:, :, 0], 1.5))


def test_vertices_of_whole_numbers_have_a_probability_as_well():
    tagging = pb.Tagging(random_scores(2, 2))
    both = pb.product(pb.Categorical(), tagging, shapes=[(2,), (2, 2)])
    scores = random_scores(3, 6)
    z = both.argmax(scores)
    for dtype in (torch.bool, torch.int64):
        assert torch.equal(both.log_prob(scores, z.to(dtype)), both.log_prob(scores, z))
        assert_close(both.own_score(z.to(dtype)), both.own_score(z))


def test_a_wrapper_offers_what_it_wraps():
    oracle = pb.Oracle(pb.Subset(1).argmax)
    assert pb.Independent(pb.Categorical()).offers(pb.Simplex)
    assert not pb.Independent(oracle).offers(pb.LogLinear) and not pb.Independent(oracle).offers(pb.Enumerable)
    assert not pb.Independent(pb.Subset(1)).offers(pb.KBest)
    mixed = pb.product(pb.Categorical(), oracle, shapes=[(2,), (3,)])
    assert not mixed.offers(pb.LogLinear) and mixed.offers(pb.Structure)
    scores = random_scores(2, 5)
    assert_close(
        mixed.sparsemap(scores), torch.cat([pb.Categorical().sparsemap(s) for s in (scores[:, :2], scores[:, 2:])], -1)
    )
    for structure in (mixed, pb.Independent(oracle)):
        with pytest.raises(pb.MissingCapability, match="needs a partition function, and Oracle has none"):
            structure.log_partition(random_scores(2, 5))


def test_a_solution_reports_what_the_blocks_reported():
    slow = pb.Oracle(pb.Subset(2).argmax, max_iterations=2)
    scores = 0.1 * random_scores(2, 3, 6)
    with pytest.warns(pb.ConvergenceWarning):
        found = pb.Independent(slow).solve(scores)
    assert not found.converged.any() and (found.iterations == 2).all() and (found.gap > 0).all()
    trees = pb.Independent(pb.DependencyTree())
    scores = 0.3 * random_scores(2, 2, 5, 5)
    cold = trees.solve(scores)
    warm = trees.solve(scores, start=cold.mixture.vertices)
    assert (cold.iterations > 2).all() and (warm.iterations == 1).all() and warm.converged.all()
    both = pb.product(pb.DependencyTree(), pb.Categorical(), shapes=[(5, 5), (4,)])
    packed = both.pack(scores[:, 0], random_scores(2, 4))
    cold = both.solve(packed)
    warm = both.solve(packed, start=cold.mixture.vertices)
    assert (warm.iterations == 1).all() and warm.converged.all()
    assert_close(warm.mixture.mean(), both.sparsemap(packed), atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match="start has shape"):
        both.solve(packed, start=packed)


def test_combinations_that_would_explode_are_refused():
    each = pb.Independent(pb.Categorical())
    with pytest.raises(ValueError, match=r"Independent: 8 blocks have 4294967296 combinations.*topk"):
        each.enumerate((2, 8, 16))
    with pytest.raises(ValueError, match="or more combinations of vertices mix; expected at most"):
        each.support(torch.zeros(2, 8, 16))
    best = each.topk(random_scores(2, 8, 16), 5)
    assert best.vertices.shape == (2, 5, 8, 16) and (best.size == 5).all()
    assert (best.scores.diff(dim=-1) <= 0).all()


def test_pack_and_unpack_are_inverse_and_unpack_gives_views():
    both = pb.product(pb.Categorical(), pb.DependencyTree(), shapes=[(4,), (3, 3)])
    choice, tree = random_scores(2, 4), random_scores(2, 3, 3)
    packed = both.pack(choice, tree)
    assert packed.shape == (2, 13)
    views = both.unpack(packed)
    assert torch.equal(views[0], choice) and torch.equal(views[1], tree)
    views[1].zero_()
    assert (packed[:, 4:] == 0).all()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: pb.Independent(pb.Categorical), TypeError, "structure is a"),
        (lambda: pb.Independent(pb.Categorical(), dims=0), ValueError, "dims is 0; expected an integer ≥ 1"),
        (lambda: pb.Independent(pb.Categorical()).argmax(torch.zeros(4)), ValueError, "at least 2 dimension"),
        (lambda: pb.product(pb.Categorical(), shapes=[]), ValueError, r"1 structure\(s\) and 0 shape\(s\)"),
        (lambda: pb.product(pb.Categorical, shapes=[(4,)]), TypeError, "expected a Structure"),
        (lambda: pb.product(pb.Categorical(), shapes=[4]), TypeError, "expected a sequence of shapes"),
        (lambda: pb.product(pb.DependencyTree(), shapes=[(4,)]), ValueError, r"\(4,\); expected 2 dimension"),
        (
            lambda: pb.product(pb.Categorical(), shapes=[(4,)]).argmax(torch.zeros(5)),
            ValueError,
            r"expected \(\.\.\., 4\)",
        ),
        (lambda: pb.product(pb.Categorical(), shapes=[(4,)]).pack(torch.zeros(3)), ValueError, "block 0 has shape"),
    ],
)
def test_bad_input_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()

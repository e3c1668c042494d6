"""What is particular to linear chains, beyond the contract of every structure."""

import itertools

import pytest
import torch
from torch.testing import assert_close

import pullback as pb


def random_scores(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("n", "t"), [(1, 3), (2, 3), (4, 2), (3, 1)])
def test_there_are_as_many_sequences_as_powers(n, t):
    vertices = pb.Chain().enumerate((n, t, t)).vertices
    assert len(vertices) == len(vertices.unique(dim=0)) == t**n


def test_the_score_of_a_sequence_reads_the_tag_before_first():
    scores = random_scores(3, 2, 2)
    for tags in itertools.product(range(2), repeat=3):
        expected = scores[0, 0, tags[0]] + scores[1, tags[0], tags[1]] + scores[2, tags[1], tags[2]]
        assert_close(pb.Chain().inner(scores, pb.Chain.pairs(torch.tensor(tags), 2)), expected)


def test_tags_and_pairs_are_inverse():
    tags = torch.tensor([[2, 0, 1], [1, 1, -1], [-1, -1, -1]])
    pairs = pb.Chain.pairs(tags, 3)
    assert torch.equal(pb.Chain.tags(pairs), tags)
    assert pb.Chain(torch.tensor([3, 2, 0])).contains(pairs).all()
    assert not pb.Chain().contains(pairs)[1:].any()


def test_a_chain_of_one_position_is_a_choice():
    scores = random_scores(5, 1, 4, 4)
    for name in ("argmax", "sparsemap", "marginals"):
        assert_close(getattr(pb.Chain(), name)(scores)[:, 0, 0], getattr(pb.Categorical(), name)(scores[:, 0, 0]))
    assert_close(pb.Chain().log_partition(scores), pb.Categorical().log_partition(scores[:, 0, 0]))


def test_tags_that_do_not_interact_are_independent_choices():
    unary = random_scores(3, 5, 4)
    scores = unary.unsqueeze(-2).expand(3, 5, 4, 4)
    each = pb.Independent(pb.Categorical())
    assert_close(pb.Chain().log_partition(scores), each.log_partition(unary))
    assert_close(pb.Chain().marginals(scores).sum(-2), each.marginals(unary))


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 30.0])
def test_large_projections_are_certified_by_their_own_argmax(scale):
    scores, chain = scale * random_scores(2, 60, 12, 12), pb.Chain(torch.tensor([60, 37]))
    point = chain.sparsemap(scores)
    rest = scores - point
    gap = chain.inner(rest, chain.argmax(rest)) - chain.inner(rest, point)
    assert (gap.abs() <= 1e-8 * max(1.0, scale)).all()


def test_bad_input_is_named():
    with pytest.raises(
        ValueError, match=r"Chain: scores have parts of shape \(3, 2, 4\); expected \(\.\.\., n, t, t\)"
    ):
        pb.Chain().argmax(torch.zeros(5, 3, 2, 4))
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"lengths.*\[1\].*expected"):
            getattr(pb.Chain(torch.tensor([3, 4])), name)(torch.zeros(2, 3, 2, 2))
    with pytest.raises(ValueError, match=r"Chain: lengths\[1\] is 5; expected between 0 and 4"):
        pb.Chain(torch.tensor([3, 5])).enumerate((2, 4, 2, 2))
    forbidden = torch.zeros(2, 3, 2, 2)
    forbidden[1, 2] = -torch.inf
    for name in ("argmax", "sparsemap", "log_partition", "marginals", "sample", "support"):
        with pytest.raises(ValueError, match=r"Chain: example \[1\] has no sequence"):
            getattr(pb.Chain(), name)(forbidden)
    with pytest.raises(ValueError, match=r"there are .* vertices; expected at most"):
        pb.Chain().enumerate((30, 5, 5))


def test_long_chains_on_which_newton_stops_are_solved_all_the_same():
    scores = torch.randn(1, 100, 32, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chain = pb.Chain()
    point = chain.sparsemap(scores)
    rest = scores - point
    assert (chain.inner(rest, chain.argmax(rest)) - chain.inner(rest, point)).abs() <= 1e-8


def test_the_scores_of_the_k_best_fall_in_single_precision_as_well():
    scores = 100 * torch.randn(60, 5, 5, generator=torch.Generator().manual_seed(0))
    assert (pb.Chain().topk(scores, 500).scores.diff() <= 0).all()

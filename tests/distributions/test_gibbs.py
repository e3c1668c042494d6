"""Gibbs distributions against the list of their vertices."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import kl_divergence
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, STEPS, WORDS, Case

every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
scales = pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3], ids=lambda scale: f"scale {scale:g}")


def gibbs(case: Case, seed: int = 0, scale: float = 1.0) -> pb.Gibbs:
    """One whose enumeration may hold vertices of other examples, which are then not refused."""
    return pb.Gibbs(case.structure, case.scores(seed, scale), validate_args=False)


def expected(case: Case, p: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Σ p values over the vertices, where p is not 0; `values` are (vertices, *batch) or (vertices, *batch, *event)."""
    p = p.reshape(*p.shape, *(1,) * (values.dim() - p.dim()))
    return torch.where(p > 0, p * values, 0).sum(0)


@every_log_linear
@scales
def test_probabilities_are_those_of_enumeration_and_sum_to_one(case, scale):
    distribution = gibbs(case, scale=scale)
    log_prob = distribution.log_prob(distribution.enumerate_support())
    assert_close(log_prob, case.vertex_scores(distribution.scores).log_softmax(0), atol=1e-9 * max(1, scale), rtol=0)
    assert_close(log_prob.exp().sum(0), torch.ones(case.batch, dtype=torch.float64))


@every_log_linear
@scales
def test_mean_variance_and_entropy_are_those_of_enumeration(case, scale):
    distribution = gibbs(case, scale=scale)
    p, vertices = case.vertex_scores(distribution.scores).softmax(0), case.vertices()
    mean = expected(case, p, vertices)
    assert_close(distribution.mean, mean, atol=1e-9, rtol=0)
    assert_close(distribution.variance, expected(case, p, (vertices - mean).square()), atol=1e-9, rtol=0)
    assert_close(distribution.stddev.square(), distribution.variance, atol=1e-9, rtol=0)
    assert_close(distribution.entropy(), -torch.special.xlogy(p, p).sum(0), atol=1e-8, rtol=0)


@every_log_linear
def test_no_vertex_is_likelier_than_the_mode(case):
    distribution = gibbs(case)
    every = distribution.log_prob(distribution.enumerate_support())
    assert_close(distribution.log_prob(distribution.mode), every.amax(0))


@every_log_linear
def test_samples_have_the_frequencies_of_the_mean(case):
    distribution, draws = pb.Gibbs(case.structure, case.scores()), 3000
    samples = distribution.sample((draws,), generator=torch.Generator().manual_seed(1))
    assert samples.shape == (draws, *case.shape) and not samples.requires_grad
    assert distribution.support.check(samples).all()
    error = 5 * distribution.stddev / draws**0.5 + 1e-12
    assert ((samples.mean(0) - distribution.mean).abs() <= error).all()


def test_samples_have_the_frequencies_of_their_probabilities():
    trees = pb.Gibbs(pb.DependencyTree(), Case("", pb.DependencyTree(), (), (4, 4)).scores())
    samples, every = trees.sample((20000,), generator=torch.Generator().manual_seed(0)), trees.enumerate_support()
    frequency = (samples.unsqueeze(1) == every).flatten(2).all(-1).double().mean(0)
    p = trees.log_prob(every).exp()
    assert len(p) == 16
    assert ((frequency - p).abs() <= 5 * (p * (1 - p) / 20000).sqrt()).all()


@every_log_linear
@scales
def test_the_divergence_is_that_of_enumeration(case, scale):
    p, q = gibbs(case, 0, scale), gibbs(case, 1, scale)
    log_p, log_q = (case.vertex_scores(one.scores).log_softmax(0) for one in (p, q))
    divergence = kl_divergence(p, q)
    between = torch.where(log_p > -torch.inf, log_p - log_q, 0)
    assert_close(divergence, expected(case, log_p.exp(), between), atol=1e-9 * max(1, scale), rtol=1e-9)
    assert (divergence >= 0).all()
    itself = kl_divergence(p, p)
    assert (itself >= 0).all() and (itself <= 1e-10 * max(1, scale)).all()


# Zeros are not uniform where a structure has scores of its own.
@pytest.mark.parametrize("case", [case for case in LOG_LINEAR_UPSTAIRS if not case.structure.has_own_scores], ids=repr)
def test_the_divergence_from_uniform_is_what_entropy_lacks(case):
    p = gibbs(case)
    uniform = pb.Gibbs(case.structure, torch.zeros_like(p.scores))
    assert_close(kl_divergence(p, uniform), case.feasible().sum(0).double().log() - p.entropy(), atol=1e-10, rtol=0)


@every_log_linear
def test_gradients_are_those_of_finite_differences(case):
    scores, other = case.scores(0).requires_grad_(), case.scores(1).requires_grad_()
    every = case.vertices()

    def answers(s, t):
        p, q = (pb.Gibbs(case.structure, given, validate_args=False) for given in (s, t))
        log_prob = p.log_prob(every)
        log_prob = log_prob.masked_fill(log_prob == -torch.inf, 0)
        return log_prob, p.entropy(), p.mean, p.variance, kl_divergence(p, q)

    assert gradcheck(answers, (scores, other), fast_mode=True, atol=1e-6)


def test_gradients_reach_the_scores_of_the_structure_itself():
    case = Case("", pb.Tagging(torch.zeros(3, 3)), (2,), (3, 3))
    scores, other = case.scores(0), case.scores(1)

    def answers(transitions):
        tags = pb.Tagging(transitions)
        p, q = pb.Gibbs(tags, scores), pb.Gibbs(tags, other)
        return p.log_prob(p.mode), p.entropy(), p.mean, kl_divergence(p, q)

    assert gradcheck(answers, STEPS.clamp_min(-3).requires_grad_())


@every_log_linear
def test_an_expanded_batch_has_the_same_numbers(case):
    small, shape = gibbs(case), (2, *case.batch)
    large = small.expand(shape)
    assert isinstance(large, pb.Gibbs) and large.batch_shape == shape and large.event_shape == case.event
    every = small.enumerate_support().unsqueeze(1).expand(-1, 2, *case.shape)
    assert_close(large.log_prob(every), small.log_prob(small.enumerate_support()).unsqueeze(1).expand(-1, *shape))
    for one in ("mean", "variance", "mode"):
        assert_close(getattr(large, one), getattr(small, one).expand(*shape, *case.event))
    assert_close(large.entropy(), small.entropy().expand(shape))
    drawn = large.sample((50,), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (50, *shape, *case.event) and large.support.check(drawn).all()
    assert_close(kl_divergence(large, gibbs(case, 1)), kl_divergence(small, gibbs(case, 1)).expand(shape))
    assert_close(kl_divergence(gibbs(case, 1), large), kl_divergence(gibbs(case, 1), small).expand(shape))


def test_examples_of_an_expanded_batch_are_drawn_independently():
    coins = pb.Gibbs(pb.Binary(), torch.zeros(1)).expand((1000,))
    share = float(coins.sample(generator=torch.Generator().manual_seed(0)).mean())
    assert 0.4 < share < 0.6


def test_lengths_of_one_dimension_broadcast_to_a_larger_batch():
    trees = pb.Gibbs(pb.DependencyTree(WORDS), torch.zeros(3, 4, 4, dtype=torch.float64)).expand((5, 3))
    assert_close(trees.entropy(), torch.tensor([16.0, 1.0, 3.0]).double().log().expand(5, 3), atol=1e-12, rtol=0)
    column = pb.Gibbs(pb.DependencyTree(WORDS[:, None]), torch.zeros(3, 1, 4, 4, dtype=torch.float64)).expand((3, 5))
    assert_close(column.entropy(), trees.entropy().mT)


def test_forbidden_parts_have_no_probability_and_an_infinite_divergence():
    scores = torch.tensor([0.5, -torch.inf, 1.0, 0.0], dtype=torch.float64)
    some, all_of_them = pb.Gibbs(pb.Categorical(), scores), pb.Gibbs(pb.Categorical(), torch.zeros(4).double())
    assert some.log_prob(torch.eye(4)).isneginf().tolist() == [False, True, False, False]  # a vertex, so not refused
    assert kl_divergence(all_of_them, some) == torch.inf
    assert kl_divergence(some, all_of_them).isfinite()
    for kind in (pb.Gibbs, pb.SparseMAPDistribution):
        leaf = scores.clone().requires_grad_()
        p = kind(pb.Categorical(), leaf)
        (kl_divergence(p, all_of_them) + 2 * p.entropy()).backward()
        assert leaf.grad.isfinite().all() and leaf.grad[1] == 0 and leaf.grad[2] < 0


def test_a_prior_without_a_batch_serves_every_example():
    pairs, scores = pb.Subset(2), torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    q, prior = pb.Gibbs(pairs, scores), pb.Gibbs(pairs, torch.zeros(5, dtype=torch.float64))
    assert_close(kl_divergence(q, prior), torch.tensor(10.0).double().log() - q.entropy())
    assert kl_divergence(prior, q).shape == (7,)


def test_a_divergence_in_single_precision_is_accurate_and_single():
    scores = 1000 + torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0))
    other = 1000 + torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(1))
    trees = pb.DependencyTree()
    found = kl_divergence(pb.Gibbs(trees, scores), pb.Gibbs(trees, other))
    exact = kl_divergence(pb.Gibbs(trees, scores.double()), pb.Gibbs(trees, other.double()))
    assert found.dtype == torch.float32
    assert_close(found.double(), exact, atol=0, rtol=1e-6)

"""The sparse mixture as a distribution, against the list of its vertices."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import kl_divergence
from torch.testing import assert_close

import pullback as pb
from families import JOINT, LOG_LINEAR_UPSTAIRS, STEPS, UPSTAIRS, Case

every_structure = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)


def sparse(case: Case, seed: int = 0, scale: float = 0.7) -> pb.SparseMAPDistribution:
    return pb.SparseMAPDistribution(case.structure, case.scores(seed, scale), validate_args=False)


def probabilities(distribution: pb.SparseMAPDistribution, vertices: torch.Tensor) -> torch.Tensor:
    """Those of the vertices (m, *batch, *event), looked up one by one in the mixture."""
    mixture, batch = distribution.mixture, distribution.batch_shape
    found = torch.zeros(len(vertices), *batch, dtype=torch.float64)
    for i, vertex in enumerate(vertices):
        for j in range(mixture.probabilities.shape[-1]):
            same = (mixture.vertices.select(len(batch), j) == vertex).flatten(len(batch)).all(-1)
            found[i] += torch.where(same, mixture.probabilities[..., j], 0)
    return found


@every_structure
def test_probabilities_are_those_of_the_mixture_and_sum_to_one(case):
    distribution = sparse(case)
    every = distribution.enumerate_support()
    p = distribution.log_prob(every).exp()
    assert_close(p, probabilities(distribution, every))
    assert_close(p.sum(0), torch.ones(case.batch, dtype=torch.float64))
    assert ((p > 0).sum(0) == distribution.mixture.size).all()


@every_structure
def test_mean_variance_entropy_and_mode_are_those_of_enumeration(case):
    distribution = sparse(case)
    every = distribution.enumerate_support()
    p = distribution.log_prob(every).exp()
    wide = p.reshape(*p.shape, *(1,) * len(case.event))
    mean = (wide * every).sum(0)
    assert_close(distribution.mean, mean)
    assert_close(distribution.mean, case.structure.sparsemap(distribution.scores), atol=1e-7, rtol=0)
    assert_close(distribution.variance, (wide * (every - mean).square()).sum(0))
    assert_close(distribution.entropy(), -torch.special.xlogy(p, p).sum(0))
    assert_close(distribution.log_prob(distribution.mode), p.amax(0).log())


@every_structure
def test_samples_come_from_the_mixture_with_its_frequencies(case):
    distribution, draws = sparse(case), 3000
    samples = distribution.sample((draws,), generator=torch.Generator().manual_seed(1))
    assert samples.shape == (draws, *case.shape) and not samples.requires_grad
    assert (distribution.log_prob(samples) > -torch.inf).all()
    error = 5 * distribution.variance.clamp_min(0).sqrt() / draws**0.5 + 1e-9
    assert ((samples.mean(0) - distribution.mean).abs() <= error).all()


@every_log_linear
def test_the_divergence_from_a_gibbs_distribution_is_that_of_enumeration(case):
    p, q = sparse(case), pb.Gibbs(case.structure, case.scores(1), validate_args=False)
    every = p.enumerate_support()
    log_p, log_q = p.log_prob(every), q.log_prob(every)
    between = torch.where(log_p > -torch.inf, log_p.exp() * (log_p - log_q), 0)
    divergence = kl_divergence(p, q)
    assert_close(divergence, between.sum(0))
    assert (divergence >= 0).all()


def test_the_divergence_of_sparse_distributions_is_finite_where_one_support_holds_the_other():
    choice = pb.Categorical()
    wide = pb.SparseMAPDistribution(choice, torch.tensor([0.1, 0.0, 0.05], dtype=torch.float64))
    narrow = pb.SparseMAPDistribution(choice, torch.tensor([0.5, 0.0, -3.0], dtype=torch.float64))
    p, q = narrow.mean, wide.mean
    assert_close(kl_divergence(narrow, wide), torch.special.xlogy(p, p).sum() - torch.special.xlogy(p, q).sum())
    assert kl_divergence(wide, narrow) == torch.inf
    assert kl_divergence(wide, wide).abs() < 1e-15


def answers(case: Case, p: pb.SparseMAPDistribution) -> list[torch.Tensor]:
    """Everything differentiable."""
    answered = [p.mixture.probabilities, p.log_prob(p.mode), p.entropy(), p.mean, p.variance]
    if case.structure.offers(pb.LogLinear):
        answered.append(kl_divergence(p, pb.Gibbs(case.structure, case.scores(1), validate_args=False)))
    return answered


def weighted(tensors: list[torch.Tensor]) -> torch.Tensor:
    """One number that every entry has a part in."""
    return sum((tensor * torch.linspace(1, 2, tensor.numel()).reshape(tensor.shape)).sum() for tensor in tensors)


@pytest.mark.parametrize("case", [case for case in UPSTAIRS if case not in JOINT], ids=repr)
def test_gradients_are_those_of_finite_differences(case):
    """Near the scores, the same vertices mix to the point of SparseMAP; where vertices tie, others would do as well."""
    scores = case.scores(3, 0.7).requires_grad_()
    p = pb.SparseMAPDistribution(case.structure, scores, validate_args=False)
    (gradient,) = torch.autograd.grad(weighted(answers(case, p)), scores)
    vertices, probabilities, size = (tensor.detach() for tensor in p.mixture)
    direction, step, values = torch.where(case.allowed(), case.scores(4), 0), 1e-6, []
    for moved in (scores.detach() + step * direction, scores.detach() - step * direction):
        point, nearby = case.structure.sparsemap(moved), probabilities.clone()
        for index in np.ndindex(*case.batch):
            rows = vertices[index][: size[index]].flatten(1)
            system = torch.cat([rows, torch.ones(len(rows), 1).double()], 1).mT
            target = torch.cat([point[index].flatten(), torch.ones(1).double()])
            nearby[index][: size[index]] = torch.linalg.pinv(system) @ target
            assert_close(system @ nearby[index][: size[index]], target, atol=1e-8, rtol=0)
        other = p.expand(case.batch)
        other.mixture = pb.Mixture(vertices, nearby, size)
        values.append(weighted(answers(case, other)))
    assert_close((gradient * direction).sum(), (values[0] - values[1]) / (2 * step), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("case", [case for case in UPSTAIRS if case in JOINT], ids=repr)
def test_gradients_of_several_variables_are_those_of_finite_differences(case):
    def numbers(scores):
        return weighted(answers(case, pb.SparseMAPDistribution(case.structure, scores, validate_args=False)))

    assert gradcheck(numbers, case.scores(3, 0.7).requires_grad_(), atol=1e-5, rtol=1e-4)


def test_gradients_reach_the_scores_of_the_structure_and_of_the_other_distribution():
    case = Case("", pb.Tagging(torch.zeros(3, 3)), (2,), (3, 3))
    scores, other = case.scores(0), case.scores(1).requires_grad_()

    def numbers(transitions, t):
        tags = pb.Tagging(transitions)
        p, q = pb.SparseMAPDistribution(tags, scores), pb.Gibbs(tags, t)
        return p.mixture.probabilities, p.entropy(), kl_divergence(p, q)

    assert gradcheck(numbers, (STEPS.clamp_min(-3).requires_grad_(), other), atol=1e-5)


@every_structure
def test_an_expanded_batch_has_the_same_numbers(case):
    small, shape = sparse(case), (2, *case.batch)
    large = small.expand(shape)
    assert isinstance(large, pb.SparseMAPDistribution) and large.batch_shape == shape
    every = small.enumerate_support()
    assert_close(large.log_prob(every.unsqueeze(1)), small.log_prob(every).unsqueeze(1).expand(-1, *shape))
    for one in ("mean", "variance", "mode"):
        assert_close(getattr(large, one), getattr(small, one).expand(*shape, *case.event))
    assert_close(large.entropy(), small.entropy().expand(shape))
    drawn = large.sample((4,), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (4, *shape, *case.event) and (large.log_prob(drawn) > -torch.inf).all()


def test_batches_of_both_sides_of_a_divergence_broadcast():
    pairs = pb.Subset(2)
    generator = torch.Generator().manual_seed(0)
    scores, other = (torch.randn(*shape, 5, generator=generator, dtype=torch.float64) for shape in ((3, 1), (4,)))
    found = kl_divergence(pb.SparseMAPDistribution(pairs, scores), pb.Gibbs(pairs, other))
    assert found.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            one = kl_divergence(pb.SparseMAPDistribution(pairs, scores[i, 0]), pb.Gibbs(pairs, other[j]))
            assert_close(found[i, j], one)
    alone = pb.SparseMAPDistribution(pairs, scores[0, 0])
    assert_close(kl_divergence(alone, pb.Gibbs(pairs, other)), found[0])


def test_a_structure_without_sums_has_a_sparse_distribution():
    def best(scores):
        return torch.zeros_like(scores).scatter(-1, scores.topk(2).indices, 1.0)

    scores = torch.tensor([[0.5, 0.2, 0.0, -9.0]], dtype=torch.float64)
    known, asked = (pb.SparseMAPDistribution(one, scores) for one in (pb.Subset(2), pb.Oracle(best)))
    assert_close(known.mean, asked.mean)
    assert asked.log_prob(asked.sample((5,))).shape == (5, 1)
    assert not asked.has_enumerate_support and known.has_enumerate_support
    with pytest.raises(pb.MissingCapability, match=r"SparseMAPDistribution\.enumerate_support needs a list of vert"):
        asked.enumerate_support()


def test_a_batch_without_examples_gives_none():
    nothing = pb.SparseMAPDistribution(pb.Categorical(), torch.zeros(0, 3))
    assert nothing.mode.shape == nothing.mean.shape == nothing.sample().shape == (0, 3)
    assert nothing.sample((2,)).shape == (2, 0, 3)
    assert nothing.log_prob(torch.zeros(0, 3)).shape == nothing.entropy().shape == (0,)

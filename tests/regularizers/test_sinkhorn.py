"""Entropy-regularized matchings."""

import pytest
import torch

import pullback as pb

F64 = torch.float64
TIGHT = 1e-12
SHAPES = [
    pytest.param(n, m, optional, id=f"{n}x{m}, {optional=}")
    for n, m in ((3, 3), (2, 4), (4, 2))
    for optional in (False, True)
]


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def sinkhorn(scores, temperature, sweeps=20_000):
    """Plain sweeps over a square matrix."""
    logs = scores / temperature
    for _ in range(sweeps):
        logs = logs - logs.logsumexp(-1, keepdim=True)
        logs = logs - logs.logsumexp(-2, keepdim=True)
    return logs.exp()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 10.0])
def test_the_prediction_is_that_of_many_sweeps(temperature):
    scores = random(3, 4, 4)
    found = pb.Sinkhorn(temperature, tolerance=TIGHT).predict(pb.Matching(), scores)
    torch.testing.assert_close(found, sinkhorn(scores, temperature), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("n", "m", "optional"), SHAPES)
def test_the_prediction_maximizes_over_mixtures_of_matchings(n, m, optional):
    structure, regularizer = pb.Matching(optional=optional), pb.Sinkhorn(0.7, tolerance=TIGHT)
    scores = random(2, n, m)
    best = regularizer.predict(structure, scores)
    torch.testing.assert_close(structure.project(best), best, rtol=0, atol=1e-9)
    value = structure.inner(scores, best) - regularizer.value(structure, best)
    weights = random(200, len(structure.enumerate((n, m)).vertices), seed=1).mul(2).softmax(-1)
    others = torch.einsum("kv,vij->kij", weights, structure.enumerate((n, m)).vertices.double())
    for other in others:
        other = other.expand_as(scores)
        for point in (other, best + 0.01 * (other - best)):
            assert (structure.inner(scores, point) - regularizer.value(structure, point) <= value + 1e-12).all()


@pytest.mark.parametrize(("n", "m", "optional"), SHAPES)
def test_its_derivatives_in_scores_and_temperature_are_those_of_differences(n, m, optional):
    structure = pb.Matching(optional=optional)
    scores, temperature = random(2, n, m).requires_grad_(), torch.tensor([0.5, 2.0], dtype=F64, requires_grad=True)

    def predict(scores, temperature):
        return pb.Sinkhorn(temperature, tolerance=TIGHT).predict(structure, scores)

    def conjugate(scores, temperature):
        return pb.Sinkhorn(temperature, tolerance=TIGHT).conjugate(structure, scores)

    torch.autograd.gradcheck(predict, (scores, temperature))
    torch.autograd.gradcheck(conjugate, (scores, temperature))


def test_a_second_derivative_is_refused_in_words():
    scores = random(3, 3).requires_grad_()
    (first,) = torch.autograd.grad(pb.Sinkhorn().predict(pb.Matching(), scores)[0, 0], scores, create_graph=True)
    with pytest.raises(RuntimeError, match="no derivative of this order"):
        first.square().sum().backward()


def test_the_loss_of_a_label_is_positive_and_pulls_the_prediction_to_it():
    structure, loss = pb.Matching(), pb.FenchelYoungLoss(pb.Sinkhorn(0.3, tolerance=1e-9), reduction="none")
    scores = random(4, 5, 5).requires_grad_()
    target = structure.argmax(random(4, 5, 5, seed=1))
    losses = loss(structure, scores, target)
    assert (losses > 0).all()
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    torch.testing.assert_close(gradient, pb.Sinkhorn(0.3, tolerance=1e-9).predict(structure, scores.detach()) - target)


def test_prices_of_scores_nearby_save_iterations():
    scores = 3 * random(8, 12, 12)
    first = pb.Matching().transport(scores, tolerance=1e-10)
    again = pb.Matching().transport(scores + 1e-6, (first.row_prices, first.column_prices), tolerance=1e-10)
    assert again.iterations.sum() < first.iterations.sum()
    assert not first.row_prices.requires_grad
    with pytest.raises(ValueError, match=r"prices of rows of shape \(8, 11\); expected \(8, 12\)"):
        pb.Matching().transport(scores, (first.row_prices[:, 1:], first.column_prices))


def test_a_search_that_ends_too_early_warns():
    with pytest.warns(pb.ConvergenceWarning, match="a sum is off by"):
        pb.Sinkhorn(0.01, max_iterations=1).predict(pb.Matching(), random(6, 6))


def test_only_matchings_have_it():
    with pytest.raises(pb.MissingCapability, match=r"Sinkhorn needs rows and columns that are matched"):
        pb.Sinkhorn().predict(pb.Categorical(), random(3))
    copies = pb.Independent(pb.Matching())
    scores = random(2, 3, 4, 4)
    torch.testing.assert_close(pb.Sinkhorn().predict(copies, scores), pb.Sinkhorn().predict(pb.Matching(), scores))


def test_every_estimator_of_the_family_takes_it():
    structure, scores, weight = pb.Matching(), random(3, 4, 4).requires_grad_(), random(4, 4, seed=1)
    estimator = pb.Surrogate(pb.Sinkhorn(), pb.Mirror(0.1, regularizer=pb.Sinkhorn()))
    losses = estimator.loss(structure, scores, lambda z: (z * weight).sum((-1, -2)))
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    point = pb.Sinkhorn().predict(structure, scores.detach())
    target = pb.Sinkhorn().predict(structure, scores.detach() - 0.1 * weight)
    torch.testing.assert_close(gradient, point - target, rtol=0, atol=1e-6)

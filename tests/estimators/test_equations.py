"""The equations of every method, in double precision, against formulas written out."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from decoders import (
    BITS,
    CHOICE,
    F64,
    SUBSET,
    TREE,
    Decoder,
    every_case,
    every_log_linear,
    gradient_of_parts,
    latent_gradient,
    make,
    score_gradient,
)
from families import REGULARIZERS


@every_case
def test_straight_through_passes_the_gradient_on(case):
    decoder, scores = Decoder(case), case.scores()
    z = case.structure.argmax(scores)
    allowed = case.structure.restrict(scores) > -torch.inf
    exact = torch.where(allowed, 0.3 * gradient_of_parts(decoder, z), 0)
    assert_close(score_gradient(pb.ste(0.3), case, decoder), case.structure.count_once(exact))


@every_case
def test_spigot_is_argmax_minus_a_projected_step(case):
    decoder, z = Decoder(case), case.structure.argmax(case.scores())
    target = case.structure.project(z - 0.3 * gradient_of_parts(decoder, z))
    assert_close(score_gradient(pb.spigot(0.3), case, decoder), case.structure.count_once(z - target))
    assert_close(pb.spigot(0.3).inspect(case.structure, case.scores(), decoder).target, target)


@every_log_linear
def test_spigot_ce_projects_a_step_from_the_marginals(case):
    decoder, p = Decoder(case), case.structure.marginals(case.scores())
    target = case.structure.project(p - 0.3 * gradient_of_parts(decoder, p))
    assert_close(score_gradient(pb.spigot_ce(0.3), case, decoder), case.structure.count_once(p - target))
    assert_close(pb.spigot_ce(0.3).inspect(case.structure, case.scores(), decoder).target, target)


@every_log_linear
def test_spigot_eg_is_a_difference_of_marginals(case):
    decoder, scores = Decoder(case), case.scores()
    p = case.structure.marginals(scores)
    target = case.structure.marginals(scores - 0.3 * gradient_of_parts(decoder, p))
    assert_close(score_gradient(pb.spigot_eg(0.3), case, decoder), case.structure.count_once(p - target))


@every_log_linear
def test_spigot_eg_tends_to_the_gradient_of_the_marginals(case):
    decoder = Decoder(case)
    relaxed = score_gradient(pb.structured_attention(), case, decoder)
    assert_close(score_gradient(pb.spigot_eg(1e-6), case, decoder) / 1e-6, relaxed, atol=1e-4, rtol=1e-4)


@every_log_linear
def test_relaxations_follow_the_chain_rule(case):
    decoder, scores = Decoder(case), case.scores()
    for name, operation in (("structured_attention", "marginals"), ("sparsemap", "sparsemap")):
        leaf = (scores / 0.5).requires_grad_()
        point = getattr(case.structure, operation)(leaf)
        exact = torch.autograd.grad(decoder(point).sum(), leaf)[0] / 0.5
        assert_close(score_gradient(make(name, temperature=0.5), case, decoder), exact)


@every_log_linear
def test_straight_through_with_a_jacobian_decodes_from_the_argmax(case):
    decoder, scores = Decoder(case), case.scores()
    z = case.structure.argmax(scores)
    for name, operation in (("ste_marginals", "marginals"), ("ste_sparsemap", "sparsemap")):
        leaf = scores.clone().requires_grad_()
        (exact,) = torch.autograd.grad(getattr(case.structure, operation)(leaf), leaf, latent_gradient(decoder, z))
        assert_close(score_gradient(make(name), case, decoder), exact)
        assert_close(make(name).loss(case.structure, scores, decoder), decoder(z))


@every_log_linear
def test_minimum_risk_is_the_exact_expected_loss(case):
    decoder, scores = Decoder(case), case.scores().requires_grad_()
    p = case.vertex_scores(scores).softmax(0)
    losses = torch.stack([decoder(z) for z in case.vertices()])
    exact = torch.where(case.feasible(), p * losses, 0).sum(0)
    assert_close(pb.minimum_risk().loss(case.structure, scores, decoder), exact)
    (gradient,) = torch.autograd.grad(exact.sum(), scores)
    assert_close(score_gradient(pb.minimum_risk(), case, decoder), gradient)


@every_log_linear
@pytest.mark.parametrize("prediction", REGULARIZERS, ids=repr)
def test_best_vertex_learns_the_vertex_with_the_lowest_loss(case, prediction):
    decoder = Decoder(case)
    losses = torch.stack([decoder(z) for z in case.vertices()]).masked_fill(~case.feasible(), torch.inf)
    estimator = pb.best_vertex(prediction)
    target = estimator.inspect(case.structure, case.scores(), decoder).target
    assert_close(decoder(target), losses.amin(0))
    exact = prediction.predict(case.structure, case.scores()) - target
    assert_close(score_gradient(estimator, case, decoder), case.structure.count_once(exact))


@every_case
def test_sparse_marginalization_is_the_expected_loss_under_the_support(case):
    decoder, scores = Decoder(case), case.scores().requires_grad_()
    support = case.structure.support(scores)
    batch = len(case.batch)
    losses = torch.stack([decoder(z) for z in support.vertices.movedim(batch, 0)], -1)
    exact = (support.probabilities * losses).sum(-1)
    assert_close(pb.sparse_marginalization().loss(case.structure, scores, decoder), exact)
    inspection = pb.sparse_marginalization().inspect(case.structure, scores, decoder)
    assert inspection.evaluations == support.size.max()
    gradient = torch.autograd.grad(exact.sum(), scores)[0]
    assert_close(score_gradient(pb.sparse_marginalization(), case, decoder), gradient, atol=1e-9, rtol=1e-7)


def test_spigot_is_straight_through_inside_the_polytope():
    case = BITS  # the cube: a small step inward from a vertex stays inside
    z = case.structure.argmax(case.scores())

    def inward(point):
        return 0.5 * (point - 0.5).square().sum(-1)

    spigot, ste = (score_gradient(e(0.1), case, inward) for e in (pb.spigot, pb.ste))
    assert_close(spigot, ste)
    assert z.shape == spigot.shape and (spigot != 0).any()


def test_spigot_ignores_a_constant_in_the_gradient_and_straight_through_does_not():
    case = CHOICE
    decoder = Decoder(case)
    shifted = lambda point: decoder(point) + 7 * point.sum(-1)
    assert_close(score_gradient(pb.spigot(0.3), case, shifted), score_gradient(pb.spigot(0.3), case, decoder))
    difference = score_gradient(pb.ste(0.3), case, shifted) - score_gradient(pb.ste(0.3), case, decoder)
    assert_close(difference, torch.full_like(difference, 2.1))


def test_when_one_vertex_is_best_and_the_rest_equally_bad_the_risk_favors_it():
    case = CHOICE
    best = torch.tensor([1, 0, 4])
    risk = lambda point: 1 - point.gather(-1, best[:, None]).squeeze(-1)
    gradient = score_gradient(pb.minimum_risk(), case, risk)
    scores = case.scores().requires_grad_()
    log_p = scores.log_softmax(-1).gather(-1, best[:, None]).squeeze(-1)
    (direction,) = torch.autograd.grad(log_p.sum(), scores)
    assert_close(gradient, -log_p.exp().detach()[:, None] * direction)


COMBINATIONS = [
    pytest.param(forward, start, descent, prediction, id=f"{forward}, {start}, {type(descent).__name__}, {prediction}")
    for forward in REGULARIZERS
    for start in [*REGULARIZERS, 0.0]
    for descent in [pb.Unconstrained(0.3, 2), pb.Projected(0.3, 2), pb.Mirror(0.3, 2, regularizer=pb.SquaredNorm())]
    for prediction in REGULARIZERS
] + [
    pytest.param(
        forward,
        pb.Entropy(),
        pb.Mirror(0.3, 2, regularizer=pb.Entropy()),
        prediction,
        id=f"{forward}, Entropy(), exponentiated, {prediction}",
    )
    for forward in REGULARIZERS
    for prediction in REGULARIZERS
]


@pytest.mark.parametrize("case", [SUBSET, TREE], ids=repr)
@pytest.mark.parametrize(("forward", "start", "descent", "prediction"), COMBINATIONS)
def test_every_combination_of_forward_start_descent_and_loss(case, forward, start, descent, prediction):
    decoder, scores, structure = Decoder(case), case.scores(), case.structure
    point = start.predict(structure, scores) if isinstance(start, pb.Regularizer) else torch.full_like(scores, start)
    allowed = structure.restrict(scores) > -torch.inf
    dual = scores
    for _ in range(2):
        change = torch.where(allowed, -0.3 * latent_gradient(decoder, point), 0)
        if isinstance(descent, pb.Unconstrained):
            point = point + change
        elif isinstance(descent, pb.Mirror) and isinstance(descent.regularizer, pb.Entropy):
            dual = dual + change
            point = structure.marginals(dual)
        else:
            point = structure.sparsemap(point + change)
    estimator = pb.Surrogate(prediction, descent, start=start, decodes_from=forward)
    calls = decoder.calls
    gradient = score_gradient(estimator, case, decoder)
    assert_close(gradient, prediction.predict(structure, scores) - point)
    assert decoder.calls - calls == (2 if start == forward else 3)
    assert_close(estimator.loss(structure, scores, decoder), decoder(forward.predict(structure, scores)))


def test_a_given_point_may_be_the_start():
    case = CHOICE
    decoder, given = Decoder(case), torch.full(case.scores().shape, 0.2, dtype=F64)
    estimator = pb.Surrogate(pb.Unregularized(), pb.Projected(0.3), start=given)
    target = case.structure.sparsemap(given - 0.3 * latent_gradient(decoder, given))
    assert_close(score_gradient(estimator, case, decoder), case.structure.argmax(case.scores()) - target)

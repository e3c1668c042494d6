"""What every regularizer promises, for every structure that can serve it."""

import re

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, REGULARIZERS, UPSTAIRS

PAIRS = [
    pytest.param(regularizer, case, id=f"{type(regularizer).__name__}, {case}")
    for regularizer in REGULARIZERS
    for case in UPSTAIRS
    if case in LOG_LINEAR_UPSTAIRS or not isinstance(regularizer, pb.Entropy)
]
SIMPLEX = pb.Categorical()
ALPHAS = [1.0, 1.2, 1.5, 2.0, 3.0]


def random_targets(case, seed=11):
    """Points of the hull: vertices, and mixtures of vertices on a face and inside."""
    generator = torch.Generator().manual_seed(seed)
    vertices, feasible = case.vertices(), case.feasible()
    for keep in (1, 2, len(vertices)):
        order = torch.rand(feasible.shape, generator=generator, dtype=torch.float64).masked_fill(~feasible, -1)
        threshold = order.topk(min(keep, len(vertices)), 0).values[-1]
        weight = torch.where((order >= threshold) & (order >= 0), order + 0.01, 0)
        weight = weight / weight.sum(0)
        yield (weight.reshape(*weight.shape, *(1,) * len(case.event)) * vertices).sum(0)


@pytest.mark.parametrize(("regularizer", "case"), PAIRS)
def test_predict_is_the_gradient_of_the_conjugate(regularizer, case):
    scores = case.scores().requires_grad_()
    (gradient,) = torch.autograd.grad(regularizer.conjugate(case.structure, scores).sum(), scores)
    assert_close(gradient, case.structure.count_once(regularizer.predict(case.structure, scores.detach())))
    assert gradcheck(lambda scores: regularizer.conjugate(case.structure, scores), (scores,))


@pytest.mark.parametrize(("regularizer", "case"), PAIRS)
def test_predict_attains_the_conjugate(regularizer, case):
    scores = case.scores()
    point = regularizer.predict(case.structure, scores)
    attained = case.structure.inner(scores, point) - regularizer.value(case.structure, point)
    assert_close(attained, regularizer.conjugate(case.structure, scores), atol=1e-7, rtol=1e-7)


@pytest.mark.parametrize(("regularizer", "case"), PAIRS)
def test_the_fenchel_young_loss_has_its_true_value_and_gradient(regularizer, case):
    for target in random_targets(case):
        scores = case.scores().requires_grad_()
        losses = pb.FenchelYoungLoss(regularizer, "none")(case.structure, scores, target)
        assert losses.shape == case.batch
        assert (losses > -1e-9).all()
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        difference = regularizer.predict(case.structure, scores.detach()) - target
        assert_close(gradient, case.structure.count_once(difference))
        best = pb.Unregularized().predict(case.structure, scores.detach())
        if isinstance(regularizer, pb.Unregularized):
            exact = case.value(scores, best) - case.value(scores, target)
            assert_close(losses, exact)
    own = regularizer.predict(case.structure, case.scores())
    assert_close(
        pb.FenchelYoungLoss(regularizer)(case.structure, case.scores(), own),
        torch.zeros((), dtype=torch.float64),
        atol=1e-7,
        rtol=0,
    )


@pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
def test_the_crf_loss_of_a_vertex_is_its_negative_log_probability(case):
    scores = case.scores()
    vertex = case.structure.argmax(case.scores(seed=5))
    losses = pb.FenchelYoungLoss(pb.Entropy(), "none")(case.structure, scores, vertex)
    assert_close(losses, -case.structure.log_prob(scores, vertex), atol=1e-7, rtol=1e-7)


def test_the_flat_crf_loss_is_cross_entropy_minus_the_entropy_of_the_label():
    scores = torch.randn(4, 5, dtype=torch.float64)
    label = torch.rand(4, 5, dtype=torch.float64).softmax(-1)
    loss = pb.FenchelYoungLoss(pb.Entropy())(SIMPLEX, scores, label)
    entropy = -(label * label.log()).sum(-1).mean()
    assert_close(loss, torch.nn.functional.cross_entropy(scores, label) - entropy)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_reductions_are_those_of_pytorch(reduction):
    scores, label = torch.randn(4, 5), torch.eye(5)[:4]
    losses = pb.FenchelYoungLoss(pb.SquaredNorm(), "none")(SIMPLEX, scores, label)
    reduced = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]
    assert_close(pb.FenchelYoungLoss(pb.SquaredNorm(), reduction)(SIMPLEX, scores, label), reduced)


def test_the_sparsemap_loss_is_half_a_difference_of_squared_distances():
    scores = torch.randn(4, 5, dtype=torch.float64)
    label = torch.rand(4, 5, dtype=torch.float64).softmax(-1)
    loss = pb.FenchelYoungLoss(pb.SquaredNorm(), "none")(SIMPLEX, scores, label)
    nearest = SIMPLEX.sparsemap(scores)
    exact = 0.5 * ((scores - label).square().sum(-1) - (scores - nearest).square().sum(-1))
    assert_close(loss, exact)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_tsallis_predicts_entmax_and_has_a_fenchel_young_loss(alpha):
    regularizer = pb.Tsallis(alpha)
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    point = regularizer.predict(SIMPLEX, scores)
    assert_close(point, SIMPLEX.entmax(scores, alpha))
    conjugate = regularizer.conjugate(SIMPLEX, scores)
    assert_close(torch.autograd.grad(conjugate.sum(), scores)[0], point)
    for candidate in torch.rand(50, 4, 5, dtype=torch.float64).softmax(-1):
        attained = SIMPLEX.inner(scores, candidate) - regularizer.value(SIMPLEX, candidate)
        assert (attained <= conjugate + 1e-9).all()


def test_tsallis_takes_an_order_for_each_example_and_differentiates_it():
    scores = torch.randn(4, 4, dtype=torch.float64)
    label = torch.rand(4, 4, dtype=torch.float64).softmax(-1)
    orders = torch.tensor([1.0, 1.3, 1.5, 2.0], dtype=torch.float64)
    loss = lambda alpha: pb.FenchelYoungLoss(pb.Tsallis(alpha), "none")(SIMPLEX, scores, label)
    together = loss(orders)
    for i, order in enumerate(orders.tolist()):
        assert_close(together[i], loss(order)[i])
    assert gradcheck(loss, (orders[1:].new_tensor([1.2, 1.3, 1.6, 1.9]).requires_grad_(),))


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_the_mirror_map_of_tsallis_inverts_its_prediction(alpha):
    point = SIMPLEX.entmax(torch.randn(4, 5, dtype=torch.float64), alpha)
    regularizer = pb.Tsallis(alpha)
    assert_close(regularizer.predict(SIMPLEX, regularizer.mirror(SIMPLEX, point, None)), point)


def test_a_target_with_nan_is_refused_unless_it_is_padding():
    scores, label = torch.zeros(2, 3), torch.tensor([[1.0, 0.0, torch.nan]] * 2)
    for regularizer in REGULARIZERS:
        with pytest.raises(ValueError, match=r"target of example \[0\] is not between 0 and 1"):
            pb.FenchelYoungLoss(regularizer)(SIMPLEX, scores, label)
        padded = pb.Categorical(lengths=torch.tensor([2, 2]))
        assert pb.FenchelYoungLoss(regularizer)(padded, scores, label).isfinite()


def test_targets_in_half_precision_have_an_entropy_too():
    for structure in (pb.Categorical(), pb.Subset(2), pb.Binary()):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            target = structure.marginals(torch.randn(20, 5)).to(dtype)
            losses = pb.FenchelYoungLoss(pb.Entropy(), "none")(structure, torch.randn(20, 5), target)
            assert losses.isfinite().all()


def test_second_derivatives_of_a_conjugate_are_the_jacobian_of_its_prediction():
    scores = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(3, 4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(pb.SquaredNorm().conjugate(SIMPLEX, scores).sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad(gradient, scores, direction)
    (jacobian,) = torch.autograd.grad(SIMPLEX.sparsemap(scores), scores, direction)
    assert_close(second, jacobian)


@pytest.mark.parametrize(("regularizer", "case"), PAIRS)
def test_a_target_outside_the_polytope_is_refused_with_its_distance_by_every_regularizer(regularizer, case):
    inside = case.structure.argmax(case.scores())
    outside = inside.clone()
    first = outside.reshape(-1, *case.event)[0].flatten()
    used = case.structure.restrict(case.scores()).reshape(-1, *case.event)[0].flatten() > -torch.inf
    first[used] = 0.5 + 0.5 * first[used]  # half the way to the corner of all ones
    exact = case.structure.project(outside)
    off = float((exact - outside).abs().reshape(-1, *case.event)[0].max())
    loss = pb.FenchelYoungLoss(regularizer)
    if off < 1e-4:  # the cube has that corner, and a single vertex no other point
        assert loss(case.structure, case.scores(), outside).isfinite()
    else:
        example = re.escape(str([0] * len(case.batch)))
        message = rf"target of example {example} lies outside the polytope, {off:.2g} away from it; expected at most"
        with pytest.raises(ValueError, match=message):
            loss(case.structure, case.scores(), outside)


def test_a_target_within_rounding_of_the_polytope_counts_as_its_nearest_point():
    scores = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    label = pb.Subset(2).marginals(scores + 1)
    for regularizer in REGULARIZERS:
        loss = pb.FenchelYoungLoss(regularizer)
        moved = loss(pb.Subset(2), scores, label + 3e-5)
        assert_close(moved, loss(pb.Subset(2), scores, label), atol=1e-6, rtol=0)


def test_a_vertex_as_target_costs_no_projection():
    class Watched(pb.Oracle):
        def sparsemap(self, scores):
            raise AssertionError("a projection was asked for")

    scores, label = torch.randn(4, 5), torch.eye(5)[:4]
    structure = Watched(SIMPLEX.argmax)
    losses = pb.FenchelYoungLoss(pb.Unregularized(), "none")(structure, scores, label)
    assert_close(losses, scores.amax(-1) - scores.diagonal())
    with pytest.raises(AssertionError, match="a projection"):
        pb.FenchelYoungLoss(pb.Unregularized())(structure, scores, label / 2 + 0.1)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("as_tensor", [False, True], ids=["a number", "a tensor"])
def test_the_derivative_of_tsallis_is_finite_at_zero(alpha, as_tensor):
    point = torch.tensor([[0.0, 0.3, 0.7], [1.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    order = torch.tensor(alpha, dtype=torch.float64) if as_tensor else alpha
    (gradient,) = torch.autograd.grad(pb.Tsallis(order).value(SIMPLEX, point).sum(), point)
    assert_close(gradient, ((alpha * point ** (alpha - 1) - 1) / (alpha * (alpha - 1))).detach())


def test_where_the_derivative_of_an_entropy_is_infinite_a_part_that_is_not_in_use_gets_zero():
    point = torch.tensor([0.0, 0.3, 0.7], dtype=torch.float64, requires_grad=True)
    for order in (1.0, torch.tensor(1.0, dtype=torch.float64)):
        (gradient,) = torch.autograd.grad(pb.Tsallis(order).value(SIMPLEX, point), point)
        assert gradient[0] == 0
        assert_close(gradient[1:], point.detach()[1:].log() + 1)


def test_orders_on_both_sides_of_the_formula_have_derivatives_together():
    orders = torch.tensor([1.0, 1.5], dtype=torch.float64)
    point = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(pb.Tsallis(orders).value(SIMPLEX, point).sum(), point)
    assert_close(gradient, torch.tensor([[0.0, 1.0], [-4 / 3, 2 / 3]], dtype=torch.float64))


def test_regularizers_are_equal_by_their_type_and_their_fields_and_tensors_by_identity():
    orders = torch.tensor([1.2, 1.5])
    assert pb.Tsallis(orders) == pb.Tsallis(orders)
    assert pb.Tsallis(orders) != pb.Tsallis(orders.clone())
    assert pb.Tsallis(1.5) == pb.Tsallis(1.5) != pb.Tsallis(2.0)
    assert pb.Entropy() == pb.Entropy() != pb.SquaredNorm()
    assert len({pb.Tsallis(1.5), pb.Tsallis(1.5), pb.Entropy()}) == 2


def test_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="reduction is 'average'"):
        pb.FenchelYoungLoss(pb.Entropy(), "average")
    with pytest.raises(ValueError, match=r"target has shape \(2,\).*\(3,\)"):
        pb.FenchelYoungLoss(pb.Entropy())(SIMPLEX, torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match=r"alpha is 0\.5"):
        pb.Tsallis(0.5)
    with pytest.raises(pb.MissingCapability, match="Binary"):
        pb.Tsallis(1.5).predict(pb.Binary(), torch.zeros(3))
    with pytest.raises(pb.MissingCapability, match="partition function"):
        pb.Entropy().predict(pb.Oracle(SIMPLEX.argmax), torch.zeros(3))

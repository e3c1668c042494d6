"""Estimators under noise: several draws as one batch, and the argmax smoothed by noise."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, UPSTAIRS

F64 = torch.float64
CHOICE, PAIR = pb.Categorical(), pb.Subset(2)
every_case = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)


def seed(number=0):
    return torch.Generator().manual_seed(number)


def random(*shape, number=0):
    return torch.randn(*shape, generator=seed(number), dtype=F64)


def goals(case):
    """A loss per example that depends on its index, and is not linear."""
    goal = torch.rand(*case.batch, *case.event, generator=seed(5), dtype=F64)
    return lambda point: (point - goal).square().flatten(-len(case.event)).sum(-1)


def gradient_of(estimator, structure, scores, downstream, reduce=torch.sum):
    leaf = scores.detach().clone().requires_grad_()
    return torch.autograd.grad(reduce(estimator.loss(structure, leaf, downstream)), leaf)[0]


class Given(pb.Noise):
    """Numbers that are known beforehand."""

    def __init__(self, numbers):
        super().__init__()
        self.given = numbers

    def numbers(self, shape, dtype, device, generator):
        return self.given


# ---- several draws as one batch


def compare_one_batch_with_separate_calls(case, make, atol=1e-9):
    scores, downstream = case.scores(), goals(case)
    numbers = torch.randn(3, *case.shape, generator=seed(7), dtype=F64)
    together = pb.Perturbed(make(), Given(numbers), samples=3)
    apart = [pb.Perturbed(make(), Given(one)) for one in numbers]
    losses = torch.stack([one.loss(case.structure, scores, downstream) for one in apart]).mean(0)
    assert_close(together.loss(case.structure, scores, downstream), losses)
    gradients = torch.stack([gradient_of(one, case.structure, scores, downstream) for one in apart]).mean(0)
    found = gradient_of(together, case.structure, scores, downstream)
    assert_close(found, gradients, atol=atol, rtol=1e-7)


@every_case
@pytest.mark.parametrize("make", [lambda: pb.spigot(0.3), lambda: pb.sparsemap()], ids=["spigot", "sparsemap"])
def test_several_draws_are_the_mean_of_as_many_calls(case, make):
    compare_one_batch_with_separate_calls(case, make)


@every_log_linear
@pytest.mark.parametrize("make", [pb.ste_marginals, lambda: pb.spigot_eg(0.3)], ids=["ste_marginals", "spigot_eg"])
def test_several_draws_are_the_mean_of_as_many_calls_where_there_are_marginals(case, make):
    compare_one_batch_with_separate_calls(case, make)


@every_case
def test_a_step_down_and_a_step_up_are_made_for_all_draws_at_once(case):
    one_step = pb.Mirror(0.7, regularizer=pb.Unregularized())
    compare_one_batch_with_separate_calls(case, lambda: pb.Surrogate(pb.Unregularized(), pb.Symmetric(one_step)))


@pytest.mark.parametrize("name", ["minimum_risk", "sparse_marginalization", "best_vertex", "reinforce", "perturbed"])
def test_any_estimator_can_be_perturbed(name):
    estimator = pb.Perturbed(pb.get_estimator(name), pb.Gumbel(), 4, generator=seed())
    torch.manual_seed(0)
    gradient = gradient_of(estimator, PAIR, random(3, 5), lambda z: (z - random(5, number=1)).square().sum(-1))
    assert gradient.shape == (3, 5) and gradient.isfinite().all() and (gradient != 0).any()


def test_step_sizes_and_temperatures_per_example_hold_for_every_draw():
    sizes, scores = torch.tensor([0.2, 0.9]), random(2, 4)
    downstream = lambda z: (z - random(4, number=1)).square().sum(-1)
    for make in (pb.spigot, pb.structured_attention):
        whole = gradient_of(pb.Perturbed(make(sizes), "normal", 3, generator=seed()), CHOICE, scores, downstream)
        for i, size in enumerate(sizes.tolist()):
            alone = gradient_of(pb.Perturbed(make(size), "normal", 3, generator=seed()), CHOICE, scores, downstream)
            assert_close(whole[i], alone[i], atol=1e-6, rtol=1e-5)


def test_the_decoder_sees_the_batch_of_the_user_once_for_each_draw():
    seen = []

    def downstream(point):
        seen.append(point.shape)
        return point.mul_(2).square().sum(-1)  # it may write into its argument

    estimator = pb.Perturbed(pb.spigot_ce(0.3, steps=2), "gumbel", samples=3)
    gradient_of(estimator, CHOICE, random(2, 4), downstream)
    assert seen == [(2, 4)] * 9 and estimator.evaluations == 9
    assert pb.Perturbed(pb.minimum_risk(), "gumbel", 2).evaluations is None


def test_weights_of_losses_scale_the_gradient_of_each_example():
    weights, scores = torch.tensor([0.5, 0.0, -2.0], dtype=F64), random(3, 5)
    downstream = lambda z: (z - random(5, number=1)).square().sum(-1)
    for inner in (pb.spigot(0.3), pb.ste_marginals(), pb.spigot_eg(0.3, steps=2)):
        make = lambda inner=inner: pb.Perturbed(inner, "normal", 3, generator=seed())
        whole = gradient_of(make(), PAIR, scores, downstream)
        weighted = gradient_of(make(), PAIR, scores, downstream, lambda losses: (weights * losses).sum())
        assert_close(weighted, weights[:, None] * whole)


def test_an_example_without_noise_does_not_depend_on_its_batch():
    scores, goal = random(3, 5), random(3, 5, number=1)
    for inner in (pb.spigot(0.3), pb.ste_marginals(), pb.imle(2.0, "none", two_sided=True)):
        estimator = pb.Perturbed(inner, pb.NoNoise(), 2)
        whole = gradient_of(estimator, PAIR, scores, lambda z: (z - goal).square().sum(-1))
        for i in range(3):
            alone = lambda z, i=i: (z - goal[i : i + 1]).square().sum(-1)
            assert_close(gradient_of(estimator, PAIR, scores[i : i + 1], alone)[0], whole[i])


def test_a_loss_that_is_nan_marks_its_example_alone():
    broken = torch.tensor([1.0, torch.nan, 1.0], dtype=F64)
    gradient = gradient_of(
        pb.imle(samples=2, generator=seed()), PAIR, random(3, 5), lambda z: broken * (z - 0.3).square().sum(-1)
    )
    assert gradient[1].isnan().any() and gradient[[0, 2]].isfinite().all()


def test_evaluations_during_the_backward_pass_replay_the_random_numbers_of_each_draw():
    dropout, masks = nn.Dropout(0.5), []
    dropout.register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    estimator = pb.Perturbed(pb.spigot(0.3, steps=2), "normal", 2, generator=seed())
    torch.manual_seed(3)
    gradient_of(estimator, CHOICE, random(2, 4), lambda z: (dropout(z + 1) * random(4)).square().sum(-1))
    assert len(masks) == 4
    assert torch.equal(masks[0], masks[2]) and torch.equal(masks[1], masks[3]) and not torch.equal(*masks[:2])


def test_one_draw_can_be_handed_over_and_several_cannot():
    estimator = pb.perturb_and_map(generator=seed())
    scores = random(2, 4)
    z = estimator(CHOICE, scores)
    noise = pb.Gumbel().draw(CHOICE, scores, generator=seed())
    assert torch.equal(z, CHOICE.argmax(scores + noise))
    with pytest.raises(TypeError, match=r"averages the losses of 3 samples: call `estimator\.loss"):
        pb.perturb_and_map(samples=3)(CHOICE, scores)
    with pytest.raises(TypeError, match="evaluates the downstream loss itself"):
        pb.Perturbed(pb.spigot_ce())(CHOICE, scores)


def test_the_labels_of_one_draw_can_be_inspected():
    scores, downstream = random(2, 5), lambda z: (z - random(5, number=1)).square().sum(-1)
    number = random(2, 5, number=2)
    found = pb.Perturbed(pb.spigot(0.3), Given(number)).inspect(PAIR, scores, downstream)
    assert_close(found.target, pb.spigot(0.3).inspect(PAIR, scores + number, downstream).target)
    assert pb.perturb_and_map(samples=2).inspect(PAIR, scores, downstream).label is None


def test_an_inspection_draws_the_noise_of_the_step_and_puts_it_back():
    scores, downstream = random(40, 5), lambda z: (z - random(5, number=1)).square().sum(-1)
    for generator in (None, seed()):
        estimator = pb.imle(5.0, generator=generator)
        torch.manual_seed(0)
        before = torch.get_rng_state() if generator is None else generator.get_state()
        found = estimator.inspect(PAIR, scores, downstream)
        after = torch.get_rng_state() if generator is None else generator.get_state()
        assert torch.equal(before, after)
        assert ((found.gradient != 0).any(-1) == found.label.elsewhere).all()


def test_what_an_inner_estimator_learns_belongs_to_the_outer_one():
    temperature = nn.Parameter(torch.tensor(1.3))
    assert dict(pb.perturb_and_map(temperature).named_parameters()) == {"inner.temperature": temperature}
    estimator = pb.perturb_and_map(temperature, samples=2)
    estimator.loss(CHOICE, random(2, 4).float(), lambda z: z[..., 0]).sum().backward()
    assert temperature.grad is not None


def test_what_is_no_estimator_cannot_be_perturbed():
    with pytest.raises(TypeError, match="inner is 'ste'; expected an Estimator"):
        pb.Perturbed("ste")
    with pytest.raises(ValueError, match="samples is 0"):
        pb.Perturbed(pb.ste(), samples=0)


# ---- the named ones


def test_perturb_and_map_on_a_choice_is_the_straight_through_gumbel_softmax():
    scores, price = random(3, 4), random(4, number=1)
    noise = pb.Gumbel().draw(CHOICE, scores, generator=seed())
    leaf = scores.clone().requires_grad_()
    soft = ((leaf + noise) / 0.7).softmax(-1)
    hard = CHOICE.argmax(scores + noise)
    (expected,) = torch.autograd.grad(((soft + (hard - soft).detach()) * price).square().sum(), leaf)
    estimator = pb.perturb_and_map(0.7, generator=seed())
    assert_close(gradient_of(estimator, CHOICE, scores, lambda z: (z * price).square().sum(-1)), expected)


def test_stochastic_relaxations_are_the_relaxations_of_perturbed_scores():
    scores, price = random(3, 5), random(5, number=1)
    loss = lambda z: (z * price).square().sum(-1)
    noise = pb.Normal(0.5).draw(PAIR, scores, generator=seed())
    for make, operation in ((pb.stochastic_softmax, PAIR.marginals), (pb.stochastic_sparsemap, PAIR.sparsemap)):
        estimator = make(0.7, pb.Normal(0.5), generator=seed())
        assert_close(estimator(PAIR, scores), operation((scores + noise) / 0.7))
        leaf = scores.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(operation((leaf + noise) / 0.7)).sum(), leaf)
        estimator = make(0.7, pb.Normal(0.5), generator=seed())
        assert_close(gradient_of(estimator, PAIR, scores, loss), expected)


# ---- the argmax smoothed by noise


def jacobian(regularizer, structure, scores):
    """(parts out, parts in) of one example, from the draws of one call."""
    leaf = scores.clone().requires_grad_()
    point = regularizer.predict(structure, leaf)
    rows = [torch.autograd.grad(point[i], leaf, retain_graph=True)[0] for i in range(len(point))]
    return torch.stack(rows)


def mean_and_error(draws):
    draws = torch.stack(draws)
    return draws.mean(0), draws.std(0) / len(draws) ** 0.5


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_the_jacobian_is_that_of_the_smoothed_argmax_on_average(noise):
    scores, step, batches = torch.tensor([0.4, -0.3, 0.1, 0.0], dtype=F64), 0.1, 30
    found, error = mean_and_error(
        [jacobian(pb.PerturbedMaximum(noise, 2000, generator=seed(i)), PAIR, scores) for i in range(batches)]
    )

    def slope(i):  # the same draws on both sides
        ends = []
        for sign in (1, -1):
            moved = scores + sign * step * torch.eye(4, dtype=F64)
            wide = pb.PerturbedMaximum(noise, 2000, generator=seed(1000 + i))
            ends.append(torch.stack([wide.predict(PAIR, one) for one in moved], -1))
        return (ends[0] - ends[1]) / (2 * step)

    expected, other_error = mean_and_error([slope(i) for i in range(batches)])
    curvature = 0.3 * step**2  # of the third derivatives, which are below 2
    assert ((found - expected).abs() <= 4 * (error.square() + other_error.square()).sqrt() + curvature).all()
    assert found.abs().max() > 0.1


def test_a_choice_smoothed_by_gumbel_noise_is_the_softmax_on_average():
    scores = torch.tensor([0.4, -0.3, 0.1, 1.0], dtype=F64)
    regularizer = pb.PerturbedMaximum("gumbel", 500, generator=seed())
    point, error = mean_and_error([regularizer.predict(CHOICE, scores) for _ in range(60)])
    assert ((point - scores.softmax(-1)).abs() <= 4 * error).all()
    found, error = mean_and_error([jacobian(regularizer, CHOICE, scores) for _ in range(60)])
    p = scores.softmax(-1)
    assert ((found - (p.diag() - p.outer(p))).abs() <= 4 * error).all()


def test_perturbed_decodes_from_the_mean_and_differentiates_with_the_control_variate():
    scores, price = random(3, 5), random(5, number=1)
    estimator = pb.perturbed(0.5, "gumbel", 7, generator=seed())
    noise = pb.Gumbel().draw(PAIR, scores.expand(7, 3, 5), generator=seed())
    z = PAIR.argmax(scores / 0.5 + noise)
    assert_close(pb.perturbed(0.5, "gumbel", 7, generator=seed())(PAIR, scores), z.mean(0))
    along = ((z - PAIR.argmax(scores)) * price).sum(-1, keepdim=True)
    expected = (along * (1 - torch.exp(-noise))).mean(0) / 0.5
    assert_close(gradient_of(estimator, PAIR, scores, lambda point: (point * price).sum(-1)), expected)


def test_the_gradient_of_scores_that_are_sure_does_not_explode_with_little_noise():
    scores = torch.tensor([[5.0, 0.0, -1.0]], dtype=F64)
    estimator = pb.perturbed(noise=pb.Normal(1e-6), samples=8, generator=seed())
    assert (gradient_of(estimator, CHOICE, scores, lambda z: 1e3 * z.sum(-1)) == 0).all()


@pytest.mark.parametrize("scale", [0.0, torch.tensor([0.0, 1.0], dtype=F64)])
def test_without_noise_the_gradient_is_that_of_the_argmax(scale):
    scores = torch.tensor([[0.5, 0.0, -1.0], [0.5, 0.0, -1.0]], dtype=F64)
    estimator = pb.perturbed(noise=pb.Normal(scale), samples=8, generator=seed())
    gradient = gradient_of(estimator, CHOICE, scores, lambda z: z @ scores[0])
    assert (gradient[0] == 0).all() and bool(gradient[1].any()) == isinstance(scale, torch.Tensor)


@every_case
def test_the_prediction_is_the_gradient_of_the_conjugate(case):
    scores = case.scores().requires_grad_()
    regularizer = lambda: pb.PerturbedMaximum(pb.Normal(0.7), 5, generator=seed())
    (gradient,) = torch.autograd.grad(regularizer().conjugate(case.structure, scores).sum(), scores)
    predicted = regularizer().predict(case.structure, scores)
    assert predicted.requires_grad
    assert_close(gradient, case.structure.count_once(predicted.detach()))


@every_case
def test_the_conjugate_is_the_mean_of_the_best_perturbed_scores(case):
    scores = case.scores()
    wide = scores.expand(4, *scores.shape)
    noisy = scores + 0.7 * pb.Normal().draw(case.structure, wide, generator=seed())
    if not isinstance(case.structure, pb.Enumerable) or not case.structure.offers(pb.Enumerable):
        best = torch.stack([case.value(one, case.structure.argmax(one)) for one in noisy])
    else:
        best = torch.stack([case.vertex_scores(one).amax(0) for one in noisy])
    found = pb.PerturbedMaximum(pb.Normal(0.7), 4, generator=seed()).conjugate(case.structure, scores)
    assert_close(found, best.mean(0))


def test_the_fenchel_young_loss_of_gumbel_noise_on_a_choice_is_the_cross_entropy_on_average():
    scores, label = random(4, 5), pb.Categorical().argmax(random(4, 5, number=1))
    for scale in (1.0, 0.5):
        criterion = pb.FenchelYoungLoss(pb.PerturbedMaximum(pb.Gumbel(scale), 500, generator=seed()), "none")
        value, error = mean_and_error([criterion(CHOICE, scores, label) for _ in range(60)])
        exact = scale * nn.functional.cross_entropy(scores / scale, label, reduction="none")
        assert ((value - exact).abs() <= 4 * error).all()


def test_the_fenchel_young_loss_of_gaussian_noise_on_a_bit_has_its_closed_form():
    scores, scale = torch.tensor([[-0.7], [0.2], [1.5]], dtype=F64), 0.8
    label = torch.tensor([[1.0], [1.0], [0.0]], dtype=F64)
    criterion = pb.FenchelYoungLoss(pb.PerturbedMaximum(pb.Normal(scale), 1000, generator=seed()), "none")
    value, error = mean_and_error([criterion(pb.Binary(), scores, label) for _ in range(60)])
    unit = torch.distributions.Normal(torch.zeros((), dtype=F64), 1.0)
    at = scores / scale
    expected = scores * unit.cdf(at) + scale * unit.log_prob(at).exp() - scores * label
    assert ((value - expected.squeeze(-1)).abs() <= 4 * error).all()


def test_the_fenchel_young_loss_learns_its_label_and_vanishes_there():
    label = pb.DependencyTree().argmax(random(2, 4, 4))
    for noise in ("normal", "gumbel"):
        criterion = pb.FenchelYoungLoss(pb.PerturbedMaximum(noise, 50, generator=seed()), "none")
        scores = torch.zeros(2, 4, 4, dtype=F64, requires_grad=True)
        losses = criterion(pb.DependencyTree(), scores, label)
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        assert (losses > 0).all()
        expected = (
            pb.PerturbedMaximum(noise, 50, generator=seed()).predict(pb.DependencyTree(), scores.detach()) - label
        )
        assert_close(gradient, expected)
        sure = pb.FenchelYoungLoss(pb.PerturbedMaximum(noise, 4000, generator=seed()), "none")
        assert_close(sure(pb.DependencyTree(), 100 * label, label), torch.zeros(2, dtype=F64), atol=0.15, rtol=0)


def test_a_label_between_vertices_has_no_perturbed_loss():
    criterion = pb.FenchelYoungLoss(pb.PerturbedMaximum())
    with pytest.raises(ValueError, match="Ω is known at vertices alone"):
        criterion(CHOICE, random(2, 4), torch.full((2, 4), 0.25, dtype=F64))


def test_transitions_learn_from_a_perturbed_loss():
    transitions = random(3, 3).requires_grad_()
    label = pb.Tagging(transitions.detach()).argmax(random(2, 4, 3))

    def total(table):
        criterion = pb.FenchelYoungLoss(pb.PerturbedMaximum("normal", 5, generator=seed()), "sum")
        return criterion(pb.Tagging(table), random(2, 4, 3, number=1), label)

    (gradient,) = torch.autograd.grad(total(transitions), transitions)
    direction = random(3, 3, number=2)
    ends = [float(total((transitions + sign * 1e-6 * direction).detach())) for sign in (1, -1)]
    assert float((gradient * direction).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-5)

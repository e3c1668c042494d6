"""A draw in the forward pass, a Jacobian that knows the draw in the backward pass."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb

F64 = torch.float64
CHOICE = pb.Categorical()


def seed(number=0):
    return torch.Generator().manual_seed(number)


def random(*shape, number=0):
    return torch.randn(*shape, generator=seed(number), dtype=F64)


def gradient_of(estimator, structure, scores, downstream):
    leaf = scores.detach().clone().requires_grad_()
    return torch.autograd.grad(estimator.loss(structure, leaf, downstream).sum(), leaf)[0]


def with_draw(estimator, structure, scores, downstream):
    """The gradient, and what the decoder saw."""
    seen = []

    def watched(point):
        seen.append(point.detach().clone())
        return downstream(point)

    return gradient_of(estimator, structure, scores, watched), seen[0]


def softmax_jacobian(q):
    return torch.diag_embed(q) - q.unsqueeze(-1) * q.unsqueeze(-2)


def times(matrix, vector):
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def draws(estimator, scores, downstream, repeats):
    """Independent gradients (repeats, parts) of one example's scores."""
    wide = scores.expand(repeats, *scores.shape)
    return gradient_of(estimator, CHOICE, wide, downstream)


PRICE = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=F64)
MADE = {
    "gumbel_rao": lambda **options: pb.gumbel_rao(0.7, 8, **options),
    "reinmax": lambda **options: pb.reinmax(1.3, **options),
    "gapped_ste": lambda **options: pb.gapped_ste(0.7, **options),
    "simple": lambda **options: pb.simple(**options),
}


def cubic(z):
    return (z * PRICE).sum(-1) + (z @ PRICE - 0.4) ** 3


@pytest.mark.parametrize("name", MADE)
def test_the_decoder_sees_a_draw_from_the_softmax(name):
    scores = random(4)
    wide = scores.expand(20000, 4)
    points = MADE[name](generator=seed())(CHOICE, wide)
    assert CHOICE.contains(points).all()
    p = scores.softmax(-1)
    error = (p * (1 - p) / 20000).sqrt()
    assert ((points.mean(0) - p).abs() <= 4 * error).all()


@pytest.mark.parametrize("name", MADE)
def test_copies_of_a_choice_are_choices(name):
    """With one loss for all copies, every copy has the Jacobian it would have alone."""
    scores, price = random(2, 3, 4), random(3, 4, number=1)
    both = with_draw(MADE[name](generator=seed()), pb.Independent(CHOICE), scores, lambda z: (z * price).sum((-1, -2)))
    apart = with_draw(MADE[name](generator=seed()), CHOICE, scores, lambda z: (z * price).sum(-1))
    for one, other in zip(both, apart):
        assert_close(one, other)


def test_reinmax_is_its_formula():
    scores, temperature = random(5, 4), 1.3
    found, z = with_draw(pb.reinmax(temperature, generator=seed()), CHOICE, scores, cubic)
    leaf = z.clone().requires_grad_()
    (g,) = torch.autograd.grad(cubic(leaf).sum(), leaf)
    p, middle = scores.softmax(-1), ((scores / temperature).softmax(-1) + z) / 2
    assert_close(found, times(2 * softmax_jacobian(middle) - softmax_jacobian(p) / 2, g))


def test_reinmax_is_exact_on_average_for_quadratic_losses_and_straight_through_is_not():
    scores, matrix = random(4), random(4, 4, number=1)
    quadratic = lambda z: (z @ matrix * z).sum(-1) + z @ PRICE
    exact = gradient_of(pb.minimum_risk(), CHOICE, scores, quadratic)
    bias = {}
    for make in (pb.reinmax, pb.simple):
        drawn = draws(make(generator=seed()), scores, quadratic, 40000)
        error = drawn.std(0) / 200
        bias[make] = float(((drawn.mean(0) - exact).abs() / error).max())
    assert bias[pb.reinmax] <= 4 < bias[pb.simple]


def test_gumbel_rao_has_the_mean_of_straight_through_gumbel_and_less_variance():
    scores = random(4)
    straight = draws(pb.perturb_and_map(0.5, generator=seed()), scores, cubic, 20000)
    spread = [float(straight.var(0).sum())]
    for samples in (1, 4, 64):
        found = draws(pb.gumbel_rao(0.5, samples, generator=seed(1)), scores, cubic, 20000)
        error = ((straight.var(0) + found.var(0)) / 20000).sqrt()
        assert ((found.mean(0) - straight.mean(0)).abs() <= 4 * error).all()
        spread.append(float(found.var(0).sum()))
    assert spread[1] == pytest.approx(spread[0], rel=0.1)
    assert spread[3] < spread[2] < 0.9 * spread[0]


def test_gumbel_rao_is_the_mean_of_jacobians_at_noise_that_leads_to_the_draw():
    """At a low temperature each of them is nearly zero: no noise leaves another category on top by far."""
    scores = torch.tensor([[2.0, 0.0, -1.0, -torch.inf]], dtype=F64)
    found, z = with_draw(pb.gumbel_rao(1e-4, 4, generator=seed()), CHOICE, scores, lambda z: z @ PRICE)
    assert_close(found, torch.zeros_like(found), atol=1e-6, rtol=0)
    assert z[0, 3] == 0


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0, 1e4])
@pytest.mark.parametrize("name", MADE)
def test_gradients_are_finite_at_any_scale_of_the_scores(name, scale):
    scores = scale * random(64, 4)
    gradient = gradient_of(MADE[name](generator=seed()), CHOICE, scores, cubic)
    assert gradient.isfinite().all()
    assert_close(gradient.sum(-1), torch.zeros(64, dtype=F64), atol=1e-9, rtol=0)


def test_gapped_straight_through_is_the_softmax_of_scores_that_agree_with_the_draw():
    scores, temperature, gap = random(50, 4), 0.7, 1.5
    found, z = with_draw(pb.gapped_ste(temperature, gap, generator=seed()), CHOICE, scores, lambda z: z @ PRICE)
    for row, gradient, drawn in zip(scores, found, z.argmax(-1)):
        moved = row.clone()
        moved[drawn] = row.max()
        for other in range(4):
            if other != drawn:
                moved[other] = min(row[other], row.max() - gap)
        p = (moved / temperature).softmax(-1)
        assert_close(gradient, softmax_jacobian(p) @ PRICE / temperature)
        assert moved.argmax() == drawn


def test_a_gap_may_differ_by_example():
    scores, gaps = random(2, 4), torch.tensor([0.5, 3.0], dtype=F64)
    whole = gradient_of(pb.gapped_ste(gap=gaps, generator=seed()), CHOICE, scores, lambda z: z @ PRICE)
    for i, gap in enumerate(gaps.tolist()):
        alone = gradient_of(pb.gapped_ste(gap=gap, generator=seed()), CHOICE, scores, lambda z: z @ PRICE)
        assert_close(whole[i], alone[i])


@pytest.mark.parametrize("shape", [(5,), (2, 3)])
def test_gaps_that_are_not_one_for_each_example_are_refused(shape):
    with pytest.raises(ValueError, match=r"gap has shape .*; expected one number, or the batch shape"):
        gradient_of(pb.gapped_ste(gap=torch.ones(shape)), CHOICE, random(3, 4), lambda z: z @ PRICE)


def test_simple_with_one_item_is_straight_through_softmax_at_a_draw():
    scores = random(6, 4)
    for structure in (pb.Subset(1), CHOICE):
        found, z = with_draw(pb.simple(generator=seed()), structure, scores, cubic)
        leaf = z.clone().requires_grad_()
        (g,) = torch.autograd.grad(cubic(leaf).sum(), leaf)
        assert_close(found, times(softmax_jacobian(scores.softmax(-1)), g))


@pytest.mark.parametrize("structure", [pb.Subset(2), pb.DependencyTree(torch.tensor([3, 1]))], ids=repr)
def test_simple_is_exact_on_average_for_linear_losses(structure):
    shape = (2, 5) if isinstance(structure, pb.Subset) else (2, 4, 4)
    scores, price = random(*shape), random(*shape[1:], number=1)
    linear = lambda z: (z * price).flatten(2 - 1).sum(-1)
    exact = gradient_of(pb.minimum_risk(), structure, scores, linear)
    assert_close(gradient_of(pb.simple(generator=seed()), structure, scores, linear), exact)


def test_a_random_estimator_may_be_averaged_over_draws():
    scores = random(2, 4)
    mean = pb.Perturbed(pb.reinmax(generator=seed()), pb.NoNoise(), 3)
    found = gradient_of(mean, CHOICE, scores, cubic)
    wide = gradient_of(pb.reinmax(generator=seed()), CHOICE, scores.expand(3, 2, 4), cubic)
    assert_close(found, wide.mean(0))


def test_options_that_make_no_sense_are_refused():
    for make in (pb.gumbel_rao, pb.reinmax, pb.gapped_ste, pb.simple):
        with pytest.raises(ValueError, match=r"temperature is 0; expected a finite number > 0"):
            make(temperature=0)
    with pytest.raises(ValueError, match="samples is 0; expected an integer ≥ 1"):
        pb.gumbel_rao(samples=0)
    with pytest.raises(ValueError, match="gap is -1; expected a finite number ≥ 0"):
        pb.gapped_ste(gap=-1)
    with pytest.raises(pb.MissingCapability, match="ReinMax needs unit vectors"):
        pb.reinmax()(pb.Subset(2), random(2, 4))

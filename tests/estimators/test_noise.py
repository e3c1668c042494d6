"""Noise: one number for each part, none where there is no part, the same for the same generator."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from families import UPSTAIRS

F64 = torch.float64
NOISES = [pb.Gumbel(), pb.Normal(), pb.SumOfGamma(3), pb.NoNoise()]
every_noise = pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
smooth = pytest.mark.parametrize("noise", NOISES[:2], ids=lambda noise: type(noise).__name__)


def seed(number=0):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
def test_parts_that_may_not_be_used_get_no_noise(case):
    scores = case.scores()
    best = case.structure.argmax(scores)
    closed = torch.rand(scores.shape, generator=seed(3)) < 0.5
    scores = scores.masked_fill((best == 0) & closed, -torch.inf)
    forbidden = case.structure.restrict(scores) == -torch.inf
    for noise in NOISES[:3]:
        drawn = noise.draw(case.structure, scores, generator=seed())
        assert drawn.shape == scores.shape and drawn.dtype == scores.dtype
        assert (drawn[forbidden] == 0).all()
        assert (drawn[~forbidden] != 0).all()


@pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
def test_entries_of_one_part_have_one_number_and_different_parts_have_different_ones(case):
    drawn = pb.Normal().draw(case.structure, case.scores(), generator=seed())
    one_each = case.structure.count_once(torch.ones_like(drawn))
    assert_close(case.structure.count_once(case.structure.gradient_of_parts(drawn)), drawn)
    numbers = drawn[drawn != 0]
    parts = float(one_each[drawn != 0].sum())
    assert len(numbers.unique()) == round(parts)


@every_noise
def test_an_edge_in_both_halves_has_the_distribution_of_one_number(noise):
    scores = torch.zeros(20000, 3, 3, dtype=F64)
    edges = noise.draw(pb.SpanningTree(), scores, generator=seed())
    alone = noise.draw(pb.Binary(), scores[..., 0], generator=seed(1))
    assert_close(edges, edges.mT)
    assert_close(edges[:, 0, 1].mean(), alone.mean(), atol=0.03, rtol=0)
    assert_close(edges[:, 0, 1].var(), alone.var(), atol=0.05, rtol=0)


MOMENTS = {
    "Gumbel": (pb.Gumbel(), 0.5772156649, math.pi**2 / 6),
    "Normal": (pb.Normal(), 0.0, 1.0),
    "SumOfGamma": (
        pb.SumOfGamma(4),
        (sum(1 / i for i in range(1, 11)) - math.log(10)) / 4,
        sum(1 / i**2 for i in range(1, 11)) / 4,
    ),
    "scaled": (pb.Normal(0.3), 0.0, 0.09),
    "NoNoise": (pb.NoNoise(), 0.0, 0.0),
}


@pytest.mark.parametrize("name", MOMENTS)
def test_numbers_have_the_mean_and_the_variance_of_their_kind(name):
    noise, mean, variance = MOMENTS[name]
    drawn = noise.draw(pb.Binary(), torch.zeros(100_000, dtype=F64), generator=seed())
    assert float(drawn.mean()) == pytest.approx(mean, abs=4 * math.sqrt(variance / 1e5) + 1e-12)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.05, abs=1e-12)


@smooth
def test_slopes_are_those_of_the_logarithm_of_the_density(noise):
    density = {
        pb.Gumbel: lambda e: -e - torch.exp(-e),
        pb.Normal: lambda e: -0.5 * e.square(),
    }[type(noise)]
    numbers = torch.linspace(-3, 3, 7, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(-density(numbers).sum(), numbers)
    assert_close(noise.slope(numbers.detach()), slope)
    assert float(noise.slope(torch.zeros(()))) == 0
    drawn = noise.draw(pb.Binary(), torch.zeros(100_000, dtype=F64), generator=seed())
    assert float(drawn.mean()) == pytest.approx(noise.mean, abs=0.02)


@every_noise
def test_the_same_generator_gives_the_same_numbers_with_any_number_of_threads(noise):
    scores = torch.zeros(64, 40, 40)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = noise.draw(pb.SpanningTree(), scores, generator=seed())
        torch.set_num_threads(2)
        assert torch.equal(noise.draw(pb.SpanningTree(), scores, generator=seed()), one)
    finally:
        torch.set_num_threads(threads)
    if not isinstance(noise, pb.NoNoise):
        assert not torch.equal(noise.draw(pb.SpanningTree(), scores, generator=seed(1)), one)


@every_noise
def test_numbers_do_not_depend_on_the_precision_of_the_scores(noise):
    exact = noise.draw(pb.Binary(), torch.zeros(3, 4, dtype=F64), generator=seed())
    for dtype in (torch.float32, torch.bfloat16):
        assert_close(noise.draw(pb.Binary(), torch.zeros(3, 4, dtype=dtype), generator=seed()), exact.to(dtype))


def test_a_scale_is_a_number_a_tensor_per_example_or_a_function_asked_at_every_call():
    scores, scales = torch.zeros(2, 3, dtype=F64), torch.tensor([0.5, 2.0])
    standard = pb.Normal().draw(pb.Binary(), scores, generator=seed())
    assert_close(pb.Normal(0.3).draw(pb.Binary(), scores, generator=seed()), 0.3 * standard)
    assert_close(pb.Normal(scales).draw(pb.Binary(), scores, generator=seed()), scales[:, None] * standard)
    several = pb.Normal(scales).draw(pb.Binary(), scores.expand(4, 2, 3), generator=seed())
    assert_close(several, scales[:, None] * pb.Normal().draw(pb.Binary(), scores.expand(4, 2, 3), generator=seed()))
    asked = iter([0.1, 0.2])
    falling = pb.Normal(lambda: next(asked))
    for scale in (0.1, 0.2):
        assert_close(falling.draw(pb.Binary(), scores, generator=seed()), scale * standard)


def test_a_scale_that_is_a_parameter_is_trained_with_the_model():
    price = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
    scores = torch.randn(4, 3, generator=seed(), dtype=F64)

    def total(scale):
        estimator = pb.stochastic_softmax(noise=pb.Gumbel(scale), samples=5, generator=seed(1))
        return estimator, estimator.loss(pb.Categorical(), scores, lambda z: (z * price).sum(-1)).sum()

    scale = nn.Parameter(torch.tensor(0.7, dtype=F64))
    estimator, loss = total(scale)
    assert dict(estimator.named_parameters()) == {"noise.scale": scale}
    (gradient,) = torch.autograd.grad(loss, scale)
    assert_close(gradient, (total(0.7 + 1e-6)[1] - total(0.7 - 1e-6)[1]) / 2e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("gumbel", pb.Gumbel), ("normal", pb.Normal), ("sum_of_gamma", pb.SumOfGamma), ("none", pb.NoNoise)],
)
def test_a_noise_may_be_given_by_its_name(name, kind):
    assert type(pb.Perturbed(pb.ste(), name).noise) is kind


def test_what_is_no_noise_is_refused():
    with pytest.raises(ValueError, match="noise is 'gumbl'; expected 'gumbel' perhaps, or one of normal"):
        pb.perturb_and_map(noise="gumbl")
    with pytest.raises(TypeError, match=r"noise is 0\.5; expected a name such as 'gumbel', or a Noise"):
        pb.Perturbed(pb.ste(), 0.5)
    with pytest.raises(ValueError, match=r"Gumbel: scale is -1; expected a finite number ≥ 0"):
        pb.Gumbel(-1)
    with pytest.raises(ValueError, match="SumOfGamma: k is 0; expected an integer ≥ 1"):
        pb.SumOfGamma(0)
    with pytest.raises(TypeError, match=r"noise is SumOfGamma\(.*; expected one whose density is known"):
        pb.perturbed(noise="sum_of_gamma")


def test_numbers_that_are_not_one_for_each_example_are_refused():
    for estimator in (pb.perturb_and_map(noise=pb.Gumbel(torch.ones(2, 4))), pb.structured_attention(torch.ones(3))):
        with pytest.raises(ValueError, match=r"has shape \(.*\); expected one number, or the batch shape \(4,\)"):
            estimator.loss(pb.Categorical(), torch.zeros(4, 5, requires_grad=True), lambda z: z.square().sum(-1))

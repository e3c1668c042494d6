"""Differences of solutions: black-box differentiation, implicit maximum likelihood, the identity."""

import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from families import UPSTAIRS

F64 = torch.float64
CHOICE, PAIR = pb.Categorical(), pb.Subset(2)
every_case = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)


def seed(number=0):
    return torch.Generator().manual_seed(number)


def random(*shape, number=0):
    return torch.randn(*shape, generator=seed(number), dtype=F64)


def quadratic(case):
    goal = torch.rand(*case.batch, *case.event, generator=seed(5), dtype=F64)
    return lambda point: (point - goal).square().flatten(-len(case.event)).sum(-1)


def gradient_of(estimator, structure, scores, downstream):
    leaf = scores.detach().clone().requires_grad_()
    return torch.autograd.grad(estimator.loss(structure, leaf, downstream).sum(), leaf)[0]


def asked(case, downstream, z):
    """The derivative of the loss in each part."""
    z = z.clone().requires_grad_()
    return case.structure.gradient_of_parts(torch.autograd.grad(downstream(z).sum(), z)[0])


# ---- the equations


@every_case
def test_black_box_differentiation_is_a_difference_quotient_of_argmaxes(case):
    scores, downstream = case.scores(), quadratic(case)
    z = case.structure.argmax(scores)
    moved = case.structure.argmax(scores - 1.7 * asked(case, downstream, z))
    expected = case.structure.count_once(z - moved) / 1.7
    assert_close(gradient_of(pb.blackbox(1.7), case.structure, scores, downstream), expected)


@every_case
def test_implicit_likelihood_without_noise_is_lambda_times_the_black_box(case):
    scores, downstream = case.scores(), quadratic(case)
    found = gradient_of(pb.imle(1.7, "none"), case.structure, scores, downstream)
    assert_close(found, 1.7 * gradient_of(pb.blackbox(1.7), case.structure, scores, downstream))


@every_case
def test_implicit_likelihood_uses_the_same_noise_in_both_solutions(case):
    scores, downstream, structure = case.scores(), quadratic(case), case.structure
    noisy = scores + pb.SumOfGamma(3).draw(structure, scores, generator=seed())
    z = structure.argmax(noisy)
    step = 1.7 * asked(case, downstream, z)
    one_sided = structure.count_once(z - structure.argmax(noisy - step))
    two_sided = structure.count_once(structure.argmax(noisy + step) - structure.argmax(noisy - step)) / 2
    for sides, expected in ((False, one_sided), (True, two_sided)):
        estimator = pb.imle(1.7, pb.SumOfGamma(3), two_sided=sides, generator=seed())
        assert_close(gradient_of(estimator, structure, scores, downstream), expected)


def test_the_quotient_follows_a_lambda_that_changes():
    scores, price = random(2, 5), random(5, number=1)
    downstream = lambda z: (z * price).sum(-1)
    each = torch.tensor([0.5, 3.0])
    constant = [gradient_of(pb.blackbox(float(size)), PAIR, scores, downstream) for size in each]
    assert_close(gradient_of(pb.blackbox(each), PAIR, scores, downstream)[0], constant[0][0])
    assert_close(gradient_of(pb.blackbox(each), PAIR, scores, downstream)[1], constant[1][1])
    schedule = iter(each.tolist())
    estimator = pb.blackbox(lambda: next(schedule))
    for expected in constant:
        assert_close(gradient_of(estimator, PAIR, scores, downstream), expected)


def test_two_sides_are_less_biased_than_one():
    """With Gumbel noise and a linear loss, means are differences of softmaxes, and the exact gradient their limit."""
    scores, price = random(1, 5), random(5, number=1)
    downstream = lambda z: (z * price).sum(-1)
    exact = gradient_of(pb.minimum_risk(), CHOICE, scores, downstream)
    p = lambda shift: (scores + shift * price).softmax(-1)
    known = {False: p(0) - p(-2), True: (p(2) - p(-2)) / 2}
    bias = {}
    for two_sided, mean in known.items():
        estimator = pb.imle(2.0, "gumbel", 1000, two_sided=two_sided, generator=seed())
        drawn = torch.stack([gradient_of(estimator, CHOICE, scores, downstream) for _ in range(20)])
        assert ((drawn.mean(0) - mean).abs() <= 4 * drawn.std(0) / 20**0.5).all()
        bias[two_sided] = float((drawn.mean(0) / 2 - exact).norm())
    assert bias[True] < 0.6 * bias[False]


# ---- the identity


@every_case
def test_the_identity_passes_the_gradient_without_what_the_argmax_ignores(case):
    scores, downstream, structure = case.scores(), quadratic(case), case.structure
    usable = structure.restrict(scores) > -torch.inf
    total = lambda numbers: structure.widen(numbers.flatten(-structure.event_dims).sum(-1))
    parts = structure.count_once(structure.gradient_of_parts(torch.where(usable, scores, 0)))
    step = structure.count_once(asked(case, downstream, structure.argmax(scores)))
    if not structure.has_own_scores:
        centered = structure.visible(parts, usable)
        norm = total(structure.count_once(centered.square())).sqrt()
        norm = torch.where(norm == 0, 1, norm)
        unit = centered / norm
        expected = (structure.visible(step, usable) - structure.count_once(unit) * total(unit * step)) / norm
    else:
        expected = structure.visible(step, usable)
    found = gradient_of(pb.identity(), structure, scores, downstream)
    assert_close(found, expected)
    assert found.isfinite().all()


def test_the_identity_neither_shifts_nor_stretches_scores():
    scores, downstream = random(3, 5), lambda z: (z - random(5, number=1)).square().sum(-1)
    gradient = gradient_of(pb.identity(), CHOICE, scores, downstream)
    assert_close(gradient.sum(-1), torch.zeros(3, dtype=F64))
    assert_close((gradient * scores).sum(-1), torch.zeros(3, dtype=F64))
    assert_close(gradient_of(pb.identity(), CHOICE, 10 * scores + 3, downstream), gradient / 10)
    assert_close(pb.identity()(CHOICE, scores), CHOICE.argmax(scores))


def test_the_identity_leaves_scores_that_say_nothing_finite():
    gradient = gradient_of(pb.identity(), CHOICE, torch.ones(2, 4, dtype=F64), lambda z: z[..., 0])
    assert gradient.isfinite().all() and (gradient != 0).any()


# ---- a step that adapts


def test_an_adaptive_step_is_relative_to_scores_and_gradient_and_divided_out():
    scores, price = random(3, 5), random(5, number=1)
    downstream = lambda z: (z * price).square().sum(-1)
    z = PAIR.argmax(scores)
    gradient = 2 * z * price.square()
    size = (0.8 * scores.norm(dim=-1) / gradient.norm(dim=-1))[:, None]
    expected = (z - PAIR.argmax(scores - size * gradient)) / size
    assert (expected != 0).any()
    assert_close(gradient_of(pb.imle(pb.Adaptive(0.8), "none"), PAIR, scores, downstream), expected)
    as_it_is = pb.imle(pb.Adaptive(0.8, rescale=False), "none")
    assert_close(gradient_of(as_it_is, PAIR, scores, downstream), expected * size)
    louder = gradient_of(pb.imle(pb.Adaptive(0.8), "none"), PAIR, scores, lambda z: 100 * downstream(z))
    assert_close(louder, 100 * expected)
    two_sided = gradient_of(pb.imle(pb.Adaptive(0.8), "none", two_sided=True), PAIR, scores, downstream)
    up, down = (PAIR.argmax(scores + sign * size * gradient) for sign in (1, -1))
    assert_close(two_sided, (up - down) / (2 * size))


def test_an_adaptive_ratio_grows_until_as_many_parts_change_as_it_should():
    scores, goal = random(64, 10), random(64, 10, number=1)
    downstream = lambda z: (z - goal).square().sum(-1)
    for ratio, direction in ((0.0, 1), (20.0, -1)):
        step = pb.Adaptive(ratio, changes=1.0, rate=0.05)
        estimator = pb.imle(step, "normal", generator=seed())
        for _ in range(10):
            gradient_of(estimator, PAIR, scores, downstream)
        assert (float(step.ratio) - ratio) * direction > 0.3
        for _ in range(600):
            gradient_of(estimator, PAIR, scores, downstream)
        assert float(step.changed) == pytest.approx(1.0, abs=0.35)


def test_an_adaptive_step_learns_in_training_alone_and_not_from_inspection():
    estimator, scores = pb.imle("adaptive", "none"), random(3, 5)
    downstream = lambda z: (z - random(5, number=1)).square().sum(-1)
    state = lambda: [tensor.clone() for tensor in estimator.state_dict().values()]
    before = state()
    estimator.inspect(PAIR, scores, downstream)
    estimator.eval()
    gradient_of(estimator, PAIR, scores, downstream)
    assert all(torch.equal(a, b) for a, b in zip(before, state()))
    estimator.train()
    gradient_of(estimator, PAIR, scores, downstream)
    assert not all(torch.equal(a, b) for a, b in zip(before, state()))


def test_an_adaptive_step_is_saved_with_the_model_and_training_resumes_with_it():
    def model(two_sided):
        torch.manual_seed(0)
        estimator = pb.imle(pb.Adaptive(rate=0.1), two_sided=two_sided, generator=seed())
        return pb.LatentStructureModel(nn.Linear(2, 5), lambda x, z: z, estimator, PAIR, lambda z, y: z[..., 0])

    x = torch.randn(4, 2, generator=seed(1))
    for two_sided in (False, True):
        trained, resumed = model(two_sided), model(two_sided)
        for _ in range(3):
            trained.loss(x, None).sum().backward()
        keys = [key for key in trained.state_dict() if key.endswith(("ratio", "changed"))]
        assert len(keys) == 2 and all(key.startswith("estimator.") for key in keys)
        file = io.BytesIO()
        torch.save(trained.state_dict(), file)
        file.seek(0)
        resumed.load_state_dict(torch.load(file, weights_only=True))
        for key in keys:
            assert torch.equal(resumed.state_dict()[key], trained.state_dict()[key])
            assert not torch.equal(trained.state_dict()[key], model(two_sided).state_dict()[key])
        resumed.estimator.generator.set_state(trained.estimator.generator.get_state())
        for one in (trained, resumed):
            one.zero_grad()
            one.loss(x, None).sum().backward()
        assert_close(resumed.encoder.weight.grad, trained.encoder.weight.grad)
        assert_close(resumed.state_dict(), trained.state_dict())


def test_a_gradient_under_an_adaptive_step_does_not_depend_on_the_batch():
    scores, goal = random(3, 5), random(3, 5, number=1)
    whole = gradient_of(pb.imle("adaptive", "none"), PAIR, scores, lambda z: (z - goal).square().sum(-1))
    for i in range(3):
        alone = lambda z, i=i: (z - goal[i : i + 1]).square().sum(-1)
        found = gradient_of(pb.imle("adaptive", "none"), PAIR, scores[i : i + 1], alone)
        assert_close(found[0], whole[i])


# ---- words and misuse


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(TypeError, match=r"step_size is 'adaptiv'; expected a finite .* or one of .*'adaptive'"):
        pb.imle("adaptiv")
    with pytest.raises(ValueError, match=r"imle: step_size is -1; expected a finite number ≥ 0"):
        pb.imle(-1)
    with pytest.raises(ValueError, match=r"blackbox: step_size is -1; expected a finite number ≥ 0"):
        pb.blackbox(-1)
    for rule in ("adaptive", "relative", pb.Relative(), pb.Adaptive(), [0.1]):
        with pytest.raises(TypeError, match=r"blackbox: step_size is .*; expected λ itself, .* for imle") as caught:
            pb.blackbox(rule)
        assert repr(rule) in str(caught.value)
    with pytest.raises(ValueError, match=r"Symmetric: descent is Projected\(.*; expected one step"):
        pb.Symmetric(pb.Projected(0.1, steps=2))
    with pytest.raises(ValueError, match=r"expected one step, without backtracking"):
        pb.Symmetric(pb.Projected(0.1, backtrack=True))
    with pytest.raises(ValueError, match=r"expected one step"):
        pb.Symmetric(pb.Exhaustive())
    with pytest.raises(ValueError, match=r"decay is 1; expected a number in \[0, 1\)"):
        pb.Adaptive(decay=1)
    with pytest.raises(TypeError, match="ratio is '1'; expected a finite number"):
        pb.Adaptive("1")


def test_a_central_step_of_projected_gradient_is_its_own_average():
    """Inside the polytope both steps are straight, and the label is that of one step."""
    scores, inward = random(3, 4), lambda z: 0.5 * (z - 0.5).square().sum(-1)
    central = pb.Surrogate(pb.SquaredNorm(), pb.Symmetric(pb.Projected(0.01)), decodes_from=pb.SquaredNorm())
    one_sided = pb.Surrogate(pb.SquaredNorm(), pb.Projected(0.01), decodes_from=pb.SquaredNorm())
    scores = 0.5 + 0.1 * scores  # no bit at 0 or 1
    expected = gradient_of(one_sided, pb.Binary(), scores, inward)
    assert_close(gradient_of(central, pb.Binary(), scores, inward), expected)
    assert (expected != 0).all()

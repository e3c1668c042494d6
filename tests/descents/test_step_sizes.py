"""What step sizes mean: rules, functions, and what the polytope can see of a gradient."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, STRUCTURES, UPSTAIRS

RULES = [pb.Relative(), pb.Relative(0.3, rescale=False), pb.Polyak()]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)
upstairs = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)


def _same(scores):
    return scores


def random_like(scores, seed=1):
    return torch.randn(scores.shape, generator=torch.Generator().manual_seed(seed), dtype=scores.dtype)


def symmetric_if(case, gradient):
    """As a derivative in parts has to be, where both halves of a matrix hold the same edges."""
    return (gradient + gradient.mT) / 2 if isinstance(case.structure, pb.SpanningTree) else gradient


@pytest.mark.parametrize("case", STRUCTURES, ids=repr)
def test_what_a_structure_does_not_see_of_a_gradient_moves_no_projection(case):
    scores = case.scores()
    gradient = symmetric_if(case, random_like(scores))
    allowed = case.structure.allowed(scores.shape)
    seen = case.structure.visible(gradient)
    point = random_like(scores, seed=2)
    point = symmetric_if(case, point)
    assert_close(
        case.structure.project(point + 3 * (gradient - seen)), case.structure.project(point), atol=1e-6, rtol=0
    )
    assert seen.norm() <= gradient.norm() + 1e-9
    if allowed is not None:
        assert (seen.masked_fill(allowed, 0) == 0).all()


SIMPLE = {
    "Categorical": (pb.Categorical(), (5,), 4),
    "Subset": (pb.Subset(2), (5,), 4),
    "at most": (pb.Subset.at_most(2), (5,), 5),
    "DependencyTree": (pb.DependencyTree(), (4, 4), 3 * 2),
    "Chain": (pb.Chain(), (3, 2, 2), 1 + 3 + 3),
    "Tagging": (pb.Tagging(torch.zeros(3, 3)), (4, 3), 4 * 2),
    "Matching": (pb.Matching(), (3, 3), 4),
    "wide Matching": (pb.Matching(), (2, 3), 2 * 2),
    "ConstituencyTree": (pb.ConstituencyTree(), (4, 4), 4),
    "SpanningTree": (pb.SpanningTree(), (4, 4), 5),
    "monotonic": (pb.Alignment(kind="monotonic"), (2, 4), 2),
    "Ranking": (pb.Ranking(), (4,), 3),
    "Independent": (pb.Independent(pb.Categorical()), (2, 3), 4),
    "product": (pb.product(pb.Categorical(), pb.Binary(), shapes=[(3,), (2,)]), (5,), 4),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_what_is_seen_has_as_many_dimensions_as_the_polytope(name):
    """Or, where a flow has to be conserved, a few more: those directions are not removed."""
    structure, event, dimensions = SIMPLE[name]
    basis = torch.eye(torch.Size(event).numel()).reshape(-1, *event)
    basis = (basis + basis.mT) / 2 if name == "SpanningTree" else basis
    seen = structure.visible(basis).flatten(1)
    flat = structure.enumerate(event).vertices.flatten(1)
    hull = torch.linalg.matrix_rank(flat[1:] - flat[0])
    assert torch.linalg.matrix_rank(seen) == dimensions
    assert hull <= dimensions


@upstairs
def test_a_relative_step_moves_the_part_it_moves_most_by_its_share(case):
    scores = case.structure.restrict(case.scores())
    gradient = symmetric_if(case, random_like(scores))
    usable = scores > -torch.inf
    sizes = pb.Relative(0.25).sizes(case.structure, torch.zeros(case.batch), gradient, usable)
    moved = (case.structure.widen(sizes) * case.structure.visible(gradient, usable)).abs()
    moved = moved.flatten(len(case.batch)).amax(-1)
    assert_close(moved, torch.where(sizes > 0, 0.25, 0.0).to(moved))
    assert sizes.isfinite().all()


@every_rule
@pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
def test_a_rule_does_not_ask_how_the_loss_is_scaled(rule, case):
    """The label is the same; the surrogate gradient is the same too, or in proportion where it is divided."""
    goal = random_like(case.scores())

    def labels_and_gradients(factor, estimator):
        def downstream(z):
            return factor * (z * goal + 0.3 * z.square()).flatten(-len(case.event)).sum(-1).square()

        scores = case.scores().requires_grad_()
        target = estimator.inspect(case.structure, scores.detach(), downstream).target
        (gradient,) = torch.autograd.grad(estimator.loss(case.structure, scores, downstream).sum(), scores)
        return target, gradient

    for make in (pb.spigot, pb.spigot_ce, pb.spigot_eg):
        target, gradient = labels_and_gradients(1.0, make(rule))
        for factor in (0.01, 100.0):
            again, scaled = labels_and_gradients(factor, make(rule))
            assert_close(again, target, atol=1e-6, rtol=0)
            assert_close(scaled, gradient * (factor if rule.rescale else 1), atol=1e-5 * max(1, factor), rtol=1e-4)


@every_rule
def test_a_rule_is_asked_for_each_example_alone(rule):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    prices = torch.rand(6, 5, generator=generator, dtype=torch.float64)

    def gradient_of(rows, weight):
        given = scores[rows].requires_grad_()
        losses = pb.spigot(rule).loss(pb.Subset(2), given, lambda z: (z * prices[rows]).sum(-1).square())
        return torch.autograd.grad((weight * losses).sum(), given)[0] / weight

    together = gradient_of(slice(None), 0.125)
    for i in range(6):
        assert_close(gradient_of(slice(i, i + 1), 3.0)[0], together[i])


def test_where_the_gradient_says_nothing_no_step_is_made():
    scores = torch.randn(2, 4, requires_grad=True)
    for rule in RULES:
        losses = pb.spigot(rule).loss(pb.Categorical(), scores, lambda z: (z * 2.0).sum(-1))
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        assert (gradient == 0).all()


def test_a_relative_step_that_is_divided_is_the_gradient_itself_while_it_stays_inside():
    """From the marginals, in the middle of the simplex: the projected step is the centered gradient, at any share."""
    scores = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    price = torch.randn(4, dtype=torch.float64)
    for share in (0.01, 0.1, 0.2):
        losses = pb.spigot_ce(pb.Relative(share)).loss(pb.Categorical(), scores, lambda z: z @ price)
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        assert_close(gradient, (price - price.mean()).expand(3, 4))


def test_polyaks_step_brings_a_linear_loss_to_its_lower_bound():
    structure, scores = pb.Categorical(), torch.zeros(1, 4, dtype=torch.float64)
    price = torch.tensor([0.1, 0.3, -0.1, -0.3], dtype=torch.float64)
    start = pb.Iterate(pb.Entropy().predict(structure, scores), pb.Entropy(), scores)

    class Linear:
        def loss_and_gradient_at(self, point):
            return point @ price + 1, price.expand_as(point)

    target = pb.Unconstrained(pb.Polyak(lower=0.9)).target(structure, start, Linear())
    assert_close(target @ price + 1, torch.tensor([0.9], dtype=torch.float64))


def test_steps_that_are_divided_begin_at_the_prediction():
    with pytest.raises(ValueError, match="divides the gradient by its steps, so the label has to be pulled back from"):
        pb.Surrogate(pb.Entropy(), pb.Projected(pb.Relative()), start=pb.Unregularized())
    pb.Surrogate(pb.Entropy(), pb.Projected(pb.Relative(rescale=False)), start=pb.Unregularized())


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("backtrack", [False, True])
def test_rules_work_with_several_steps_and_with_backtracking(steps, backtrack):
    scores = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    goal = torch.rand(6, dtype=torch.float64)

    def gradient_of(factor):
        losses = pb.spigot(pb.Relative(0.2), steps, backtrack=backtrack).loss(
            pb.Subset(3), scores, lambda z: factor * (z - goal).square().sum(-1)
        )
        return torch.autograd.grad(losses.sum(), scores)[0]

    assert gradient_of(1.0).abs().max() > 0
    assert_close(gradient_of(1000.0), 1000 * gradient_of(1.0))


# ---- numbers that change


def test_a_step_size_may_be_a_function_that_is_asked_at_every_call():
    epoch, scores = 0, torch.randn(3, 5, requires_grad=True)
    price = torch.randn(5)
    estimator = pb.ste(lambda: 0.5**epoch)

    def gradient():
        losses = estimator.loss(pb.Categorical(), scores, lambda z: z @ price)
        return torch.autograd.grad(losses.sum(), scores)[0]

    first = gradient()
    epoch = 2
    assert_close(gradient(), first / 4)
    scores, epoch = torch.zeros(3, 5, requires_grad=True), 0
    estimator = pb.structured_attention(lambda: 2.0**epoch)
    first = gradient()
    epoch = 1
    assert_close(gradient(), first / 2)


def test_a_step_size_may_be_a_tensor_that_changes_in_place():
    size, scores, price = torch.tensor(1.0), torch.randn(3, 5, requires_grad=True), torch.randn(5)
    estimator = pb.ste(size)

    def gradient():
        losses = estimator.loss(pb.Categorical(), scores, lambda z: z @ price)
        return torch.autograd.grad(losses.sum(), scores)[0]

    first = gradient()
    size.mul_(3)
    assert_close(gradient(), 3 * first)


@pytest.mark.parametrize("answer", [-1.0, float("nan"), "0.5", None])
def test_what_a_function_answers_is_checked(answer):
    scores = torch.randn(3, 5, requires_grad=True)
    losses = pb.ste(lambda: answer).loss(pb.Categorical(), scores, lambda z: z.square().sum(-1))
    with pytest.raises((TypeError, ValueError), match=r"Unconstrained: step_size\(\) is .*; expected a finite number"):
        losses.sum().backward()


def test_straight_through_does_not_round_small_gradients():
    scores = torch.randn(4, 6, requires_grad=True)
    price = torch.rand(6) * 1e-9
    losses = pb.ste().loss(pb.Categorical(), scores, lambda z: z @ price)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert_close(gradient, price.expand(4, 6), rtol=1e-6, atol=0)


# ---- what the decoder sees


def test_the_decoder_may_see_a_sample():
    seen = []
    estimator = pb.Surrogate(
        pb.Entropy(), pb.Projected(0.3), decodes_from=pb.Sample(generator=torch.Generator().manual_seed(0))
    )
    scores = torch.zeros(500, 3, requires_grad=True)

    def downstream(z):
        seen.append(z.detach().clone())
        return z.square().sum(-1)

    estimator.loss(pb.Categorical(), scores, downstream).sum().backward()
    assert pb.Categorical().contains(seen[0]).all()
    assert_close(seen[0].mean(0), torch.full((3,), 1 / 3), atol=0.07, rtol=0)
    with pytest.raises(pb.MissingCapability, match="Sample"):
        pb.Surrogate(pb.Unregularized(), pb.Projected(), decodes_from=pb.Sample()).loss(
            pb.Oracle(_same), scores, downstream
        )


def test_the_scale_multiplies_the_surrogate_gradient():
    scores, price = torch.randn(3, 5, requires_grad=True), torch.randn(5)

    def gradient(**options):
        estimator = pb.Surrogate(pb.Unregularized(), pb.Projected(0.7), **options)
        losses = estimator.loss(pb.Categorical(), scores, lambda z: z @ price)
        return torch.autograd.grad(losses.sum(), scores)[0]

    assert_close(gradient(scale=0.25), gradient() / 4)
    assert_close(gradient(scale=lambda: 2.0), gradient() * 2)


@pytest.mark.parametrize("make", [pb.ste, pb.spigot, pb.spigot_ce, pb.spigot_eg])
def test_polyaks_step_knows_the_loss_of_every_estimator(make):
    scores = torch.randn(4, 5, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    price = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def gradient(step_size):
        losses = make(step_size).loss(pb.Categorical(), scores, lambda z: (z * price).sum(-1) + 3)
        return torch.autograd.grad(losses.sum(), scores)[0]

    start = pb.Categorical().argmax(scores) if make in (pb.ste, pb.spigot) else pb.Categorical().marginals(scores)
    centered = price - price.mean(-1, keepdim=True)
    size = ((start.detach() * price).sum(-1) + 3) / centered.square().sum(-1)
    assert_close(gradient(pb.Polyak()), gradient(size))
    with pytest.raises(TypeError, match="evaluates the downstream loss itself"):
        make(pb.Polyak())(pb.Categorical(), scores)


def test_a_gradient_too_small_for_a_step_makes_none():
    scores = torch.randn(4, 5, requires_grad=True, generator=torch.Generator().manual_seed(0))
    weight, price = torch.tensor([1e-42, 1.0, 1.0, 0.0]), torch.randn(5, generator=torch.Generator().manual_seed(1))
    for make in (pb.ste, pb.spigot, pb.spigot_ce, pb.spigot_eg):
        losses = make(pb.Relative()).loss(pb.Categorical(), scores, lambda z: weight * (z @ price))
        (gradient,) = torch.autograd.grad(losses.sum(), scores)
        assert_close(gradient[[0, 3]], torch.zeros(2, 5), atol=1e-7, rtol=0)
        assert gradient.isfinite().all() and gradient[1].abs().max() > 1e-3

"""What every estimator promises: the equations of the method, independence of the batch, and its cost."""

import inspect

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, REGULARIZERS, STRUCTURES, UPSTAIRS

F64 = torch.float64
CATEGORICAL = pb.Categorical()
CASES = {case.name: case for case in STRUCTURES}
CHOICE, BITS, SUBSET = CASES["Categorical"], CASES["Binary"], CASES["Subset, exactly"]
TREE, SENTENCES = CASES["projective tree, any roots"], CASES["tree, lengths"]
OPTIONS = {"reinforce": {"samples": 3}, "spigot": {"step_size": 0.4}, "ste": {"step_size": 0.4}}
NAMES = [name for name, entry in pb.CATALOG.items() if not entry.given]
RANDOM = [name for name in NAMES if "generator" in inspect.signature(pb.CATALOG[name].make).parameters]
DETERMINISTIC = [name for name in NAMES if name not in RANDOM]
EXPECTATIONS = ["minimum_risk", "sparse_marginalization", "topk_expectation", "sum_and_sample"]
BLACK_BOX = ["reinforce", *EXPECTATIONS, "best_vertex"]
FOLLOWS_GRADIENT = [name for name in NAMES if name not in (*BLACK_BOX, "frozen")]
SURROGATES = ["ste", "spigot", "spigot_ce", "spigot_eg", "blackbox", "best_vertex"]


def make(name, case=None, **options):
    given = {"label": case.structure.argmax(case.scores(seed=7))} if name == "supervised" else {}
    return pb.get_estimator(name, **{**OPTIONS.get(name, {}), **given, **options})


def seeded(name, case=None, **options):
    """The same draws every time it is made."""
    return make(name, case, **({"generator": torch.Generator().manual_seed(0)} if name in RANDOM else {}), **options)


class _CountBackward(torch.autograd.Function):
    """The identity, which tells its owner when a backward pass goes through it."""

    @staticmethod
    def forward(ctx, point, owner):
        ctx.owner = owner
        return point.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.owner.backward_calls += 1
        return gradient, None


class Decoder(nn.Module):
    """A smooth nonlinear loss per example that depends on the example's index, with its calls counted."""

    def __init__(self, case, seed=0, dropout=0.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.case, self.calls, self.backward_calls = case, 0, 0
        size = torch.Size(case.event).numel()
        self.weight = nn.Parameter(torch.randn(size, 4, generator=generator, dtype=F64))
        self.goal = torch.randn(*case.batch, 4, generator=generator, dtype=F64)
        self.dropout = nn.Dropout(dropout)

    def forward(self, point):
        self.calls += 1
        point = _CountBackward.apply(point, self)
        hidden = torch.tanh(point.to(self.weight.dtype).flatten(-len(self.case.event)) @ self.weight)
        return (self.dropout(hidden) - self.goal.to(hidden)).square().sum(-1)


def latent_gradient(decoder, point):
    point = point.detach().clone().requires_grad_()
    return torch.autograd.grad(decoder(point).sum(), point)[0]


def gradient_of_parts(decoder, point):
    """What the loss asks of each part: an edge in both halves of a matrix is one."""
    return decoder.case.structure.gradient_of_parts(latent_gradient(decoder, point))


def score_gradient(estimator, case, decoder, reduce=torch.sum, scores=None):
    scores = (case.scores() if scores is None else scores).detach().requires_grad_()
    losses = estimator.loss(case.structure, scores, decoder)
    assert losses.shape == case.batch
    return torch.autograd.grad(reduce(losses), scores)[0]


def case_for(name):
    """A case that the estimator of this name can serve."""
    return next(case for case in (SUBSET, CHOICE) if pb.CATALOG[name].serves(case.structure))


every_case = pytest.mark.parametrize("case", UPSTAIRS, ids=repr)
every_log_linear = pytest.mark.parametrize("case", LOG_LINEAR_UPSTAIRS, ids=repr)
every_pair = pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, id=f"{name}, {case}")
        for name, entry in pb.CATALOG.items()
        for case in UPSTAIRS
        if entry.serves(case.structure)
    ],
)


# ---- the equations


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


# ---- independence of the batch and of the weights


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_means_sums_weights_and_scalers_scale_the_gradient_linearly(name):
    case = case_for(name)
    decoder, estimator = Decoder(case), make(name)
    whole = score_gradient(estimator, case, decoder)
    weights = torch.tensor([0.5, 0.0, -2.0], dtype=F64)
    assert_close(score_gradient(estimator, case, decoder, torch.mean) * 3, whole)
    assert_close(score_gradient(estimator, case, decoder, lambda x: (weights * x).sum()), weights[:, None] * whole)
    assert_close(score_gradient(estimator, case, decoder, lambda x: 65536 * x.mean()), whole * 65536 / 3)
    first = score_gradient(estimator, case, decoder, lambda x: x[0])
    assert_close(first, torch.cat([whole[:1], torch.zeros_like(whole[1:])]))


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_an_example_gets_the_same_gradient_alone_and_in_a_batch(name):
    case = case_for(name)
    decoder, estimator, scores = Decoder(case), make(name), case.scores()
    whole = score_gradient(estimator, case, decoder)
    for i in range(3):
        alone = scores[i : i + 1].clone().requires_grad_()
        goal = decoder.goal[i : i + 1]
        loss = lambda point, goal=goal: (torch.tanh(point @ decoder.weight) - goal).square().sum(-1)
        (gradient,) = torch.autograd.grad(estimator.loss(case.structure, alone, loss).mean(), alone)
        assert_close(gradient[0], whole[i])


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_second_backward_gives_the_same_gradient(name):
    case = case_for(name)
    scores = case.scores().requires_grad_()
    losses = make(name).loss(case.structure, scores, Decoder(case))
    (first,) = torch.autograd.grad(losses.sum(), scores, retain_graph=True)
    (second,) = torch.autograd.grad(losses.mean(), scores)
    assert_close(second * 3, first)


@pytest.mark.parametrize("name", [name for name in DETERMINISTIC if name != "best_vertex"])  # which asks no gradient
def test_nothing_asked_for_nothing_learned(name):
    case = case_for(name)
    flat = lambda point: (point * 0).sum(-1) + 1
    assert_close(score_gradient(make(name), case, flat), torch.zeros_like(case.scores()), atol=1e-9, rtol=0)


def test_a_gradient_that_overflows_reaches_the_scores_as_nan_for_that_example_alone():
    case = CHOICE
    loss = lambda point: (point * torch.tensor([1.0, torch.inf, 1.0], dtype=F64)[:, None]).square().sum(-1)
    for estimator in (pb.spigot(0.3), pb.spigot_ce(0.3), pb.spigot_eg(0.3)):
        gradient = score_gradient(estimator, case, loss)
        assert gradient[[0, 2]].isfinite().all()
        assert gradient[1].isnan().all()


# ---- forbidden parts, padding, precision


@every_pair
def test_forbidden_and_padded_parts_learn_nothing(name, case):
    scores = case.scores()
    best = case.structure.argmax(case.scores(seed=7))
    closed = torch.rand(scores.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    scores = scores.masked_fill((best == 0) & closed, -torch.inf)
    forbidden = case.structure.restrict(scores) == -torch.inf
    seen = []

    def downstream(point):
        seen.append(point.detach())
        return (point - 2).square().flatten(-len(case.event)).sum(-1)  # would like every part to be used

    torch.manual_seed(0)
    gradient = score_gradient(make(name, case), case, downstream, scores=scores)
    assert gradient.isfinite().all()
    assert (gradient[forbidden] == 0).all()
    assert all((point[forbidden] == 0).all() for point in seen)


@pytest.mark.parametrize("name", NAMES)
def test_under_autocast_every_evaluation_sees_the_same_precision(name):
    case, seen = case_for(name), []

    def downstream(point):
        seen.append((point.dtype, torch.is_autocast_enabled("cpu")))
        return (point - torch.linspace(0, 1, 5)).square().sum(-1)

    scores = case.scores(dtype=torch.bfloat16).requires_grad_()
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        losses = make(name).loss(case.structure, scores, downstream)
    losses.sum().backward()
    assert set(seen) == {(torch.float32, True)}
    torch.manual_seed(0)
    exact = score_gradient(make(name), case, downstream, scores=scores.detach().float())
    assert_close(scores.grad, exact.bfloat16())


@pytest.mark.parametrize("name", FOLLOWS_GRADIENT)
@pytest.mark.parametrize(
    "blind",
    [
        pytest.param(lambda point, weight: (point.detach() * weight).sum(-1), id="detached"),
        pytest.param(lambda point, weight: ((point > 0.5).double() * weight).sum(-1), id="rounded"),
        pytest.param(lambda point, weight: weight.sum().expand(point.shape[:-1]), id="ignored"),
        pytest.param(lambda point, weight: point.detach().sum(-1), id="without parameters"),
    ],
)
def test_a_decoder_that_does_not_follow_the_latent_is_refused_by_methods_that_follow_its_gradient(name, blind):
    case = case_for(name)
    weight = torch.ones(5, dtype=F64, requires_grad=True)
    with pytest.raises(ValueError, match=r"do not depend on the latent point.*accept a black box"):
        score_gradient(make(name), case, lambda point: blind(point, weight))


@pytest.mark.parametrize("name", BLACK_BOX)
def test_a_decoder_that_does_not_follow_the_latent_is_accepted_by_methods_for_black_boxes(name):
    weight = torch.linspace(1, 2, 5, dtype=F64).requires_grad_()
    rounded = lambda point: ((point > 0.5).double() * weight).sum(-1)
    smooth = lambda point: (point * weight).sum(-1)
    torch.manual_seed(0)
    found = score_gradient(make(name), case_for(name), rounded)
    torch.manual_seed(0)
    assert_close(found, score_gradient(make(name), case_for(name), smooth))


@pytest.mark.parametrize("name", FOLLOWS_GRADIENT)
def test_the_decoder_alone_may_be_differentiated_whatever_it_does_with_the_latent(name):
    weight = torch.ones(5, dtype=F64, requires_grad=True)
    scores = case_for(name).scores().requires_grad_()
    losses = make(name).loss(case_for(name).structure, scores, lambda point: (point.detach() * weight).sum(-1))
    (gradient,) = torch.autograd.grad(losses.sum(), weight)
    assert gradient.sum() == pytest.approx(3.0 if case_for(name) is CHOICE else 6.0)


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_a_decoder_may_write_into_its_argument(name):
    case = case_for(name)
    price = torch.linspace(0.5, 2, 5, dtype=F64)
    plain = score_gradient(make(name), case, lambda point: (point * price).square().sum(-1))
    assert_close(score_gradient(make(name), case, lambda point: point.mul_(price).square().sum(-1)), plain)


@pytest.mark.parametrize("name", [*BLACK_BOX, "frozen"])
def test_losses_may_be_counts_and_batches_may_be_empty(name):
    case = case_for(name)
    count = lambda point: (point[..., 0] > 0).long()
    torch.manual_seed(0)
    assert score_gradient(make(name), case, count).isfinite().all()
    nothing = make(name).loss(case.structure, torch.zeros(0, 5, requires_grad=True), count)
    assert nothing.shape == (0,)


def test_an_example_whose_losses_are_all_nan_is_marked():
    case = SUBSET
    broken = torch.tensor([1.0, torch.nan, 1.0], dtype=F64)
    for name in ("best_vertex", "minimum_risk", "spigot", "spigot_ce", "spigot_eg", "structured_attention"):
        gradient = score_gradient(make(name), case, lambda point: broken * (point - 0.3).square().sum(-1))
        assert gradient[1].isnan().any() and gradient[[0, 2]].isfinite().all(), name


@pytest.mark.parametrize("name", NAMES)
def test_an_example_of_weight_zero_contributes_nothing_even_if_its_loss_is_nan(name):
    case = case_for(name)
    weight = torch.tensor([1.0, 0.0, 2.0], dtype=F64)
    whole = torch.tensor([1.0, 1.0, 1.0], dtype=F64)
    loss = lambda scale: lambda point: scale * (point - 0.3).square().sum(-1)

    def gradient(scale, total):
        torch.manual_seed(0)
        return score_gradient(make(name), case, loss(scale), total)

    exact = gradient(whole, lambda losses: losses.sum()) * weight[:, None]
    for hole in (torch.nan, torch.inf):
        scale = whole.index_fill(0, torch.tensor([1]), hole)
        found = gradient(scale, lambda losses: losses[0] + 2 * losses[2])
        assert_close(found, exact)


@pytest.mark.parametrize("step", [1.0, torch.tensor(1.0), pb.Relative()], ids=["number", "tensor", "rule"])
@pytest.mark.parametrize("method", [pb.ste, pb.spigot, pb.spigot_ce, pb.spigot_eg])
def test_a_gradient_that_is_nan_in_padding_alone_breaks_no_example(method, step):
    choice = pb.Categorical(lengths=torch.tensor([2, 4, 3]))
    inside, scores = choice.allowed((3, 4)), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    prices = torch.linspace(-1, 1, 12).reshape(3, 4)

    def gradient(prices, factors, weights):
        given = scores.clone().requires_grad_()
        downstream = lambda z: torch.where(inside, z * prices, 0).sum(-1) * factors
        losses = method(step).loss(choice, given, downstream)
        return torch.autograd.grad((losses * weights).sum(), given)[0]

    one, weights = torch.ones(3), torch.tensor([1.0, 1.0, 0.0])
    exact = gradient(prices, one, weights)
    for factors in (one, torch.tensor([1.0, 1.0, torch.nan])):
        assert_close(gradient(prices.masked_fill(~inside, torch.nan), factors, weights), exact)


@pytest.mark.parametrize("name", SURROGATES)
def test_the_gradient_of_a_surrogate_cannot_be_differentiated(name):
    decoder, scores = Decoder(SUBSET), SUBSET.scores().requires_grad_()
    losses = make(name).loss(SUBSET.structure, scores, decoder)
    (gradient,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
    assert_close(gradient.detach(), score_gradient(make(name), SUBSET, decoder))
    with pytest.raises(RuntimeError, match=r"differentiated once more.*no derivative.*sparsemap"):
        gradient.square().sum().backward()


@pytest.mark.parametrize(
    ("name", "case"),
    [("sparsemap", SUBSET), ("minimum_risk", SUBSET), ("minimum_risk", TREE), ("structured_attention", CHOICE)],
    ids=str,
)
def test_the_methods_that_are_said_to_have_second_derivatives_have_them(name, case):
    decoder, direction = Decoder(case), case.scores(seed=3)
    slope = lambda scores: (score_gradient(make(name), case, decoder, scores=scores) * direction).sum()
    scores = (0.3 * case.scores()).requires_grad_()
    (gradient,) = torch.autograd.grad(make(name).loss(case.structure, scores, decoder).sum(), scores, create_graph=True)
    (second,) = torch.autograd.grad((gradient * direction).sum(), scores)
    step = 1e-5 * direction
    differences = (slope(scores + step) - slope(scores - step)) / 2e-5
    assert_close((second * direction).sum(), differences, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", SURROGATES)
def test_scores_that_change_between_loss_and_backward_are_noticed(name):
    leaf = SUBSET.scores().requires_grad_()
    scores = leaf * 1
    losses = make(name).loss(SUBSET.structure, scores, Decoder(SUBSET))
    with torch.no_grad():
        scores.mul_(-1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        losses.sum().backward()


def test_parts_of_a_surrogate_are_the_same_by_their_type_and_their_tensors():
    orders = torch.tensor([1.2, 1.5, 2.0], dtype=F64)
    decoder, scores = Decoder(CHOICE), CHOICE.scores()
    p = CHOICE.structure.entmax(scores, orders)
    target = CHOICE.structure.sparsemap(p - 0.3 * latent_gradient(decoder, p))
    parts = {
        "the same tensor": (pb.Tsallis(orders), pb.Tsallis(orders), 1),
        "another tensor": (pb.Tsallis(orders), pb.Tsallis(orders.clone()), 2),
        "the same number": (pb.Tsallis(1.5), pb.Tsallis(1.5), 1),
        "another number": (pb.Tsallis(1.5), pb.Tsallis(1.7), 2),
        "no fields": (pb.Entropy(), pb.Entropy(), 1),
        "another type": (pb.Entropy(), pb.SquaredNorm(), 2),
    }
    for name, (prediction, forward, evaluations) in parts.items():
        estimator = pb.Surrogate(prediction, pb.Projected(0.3), decodes_from=forward)
        assert estimator.evaluations == evaluations, name
        decoder.calls = 0
        gradient = score_gradient(estimator, CHOICE, decoder)
        assert decoder.calls == evaluations, name
        if prediction.__class__ is pb.Tsallis and isinstance(prediction.alpha, torch.Tensor):
            assert_close(gradient, p - target)


def test_a_temperature_may_differ_by_example_and_be_learned():
    case = CHOICE
    decoder, temperature = Decoder(case), torch.tensor([0.5, 1.0, 2.0], dtype=F64, requires_grad=True)
    whole = score_gradient(pb.structured_attention(temperature), case, decoder)
    for i, value in enumerate(temperature.tolist()):
        assert_close(whole[i], score_gradient(pb.structured_attention(value), case, decoder)[i])


@pytest.mark.parametrize(
    "name", ["structured_attention", "sparsemap", "ste_marginals", "ste_sparsemap", "sparse_marginalization"]
)
@pytest.mark.parametrize("case", [CASES["Categorical, lengths"], CASES["Categorical, mask"], SENTENCES], ids=repr)
def test_forbidden_and_padded_parts_send_nothing_to_a_learned_temperature(name, case):
    """Whatever the padding holds, the gradient is that of the finite differences."""
    price = torch.randn(case.event, generator=torch.Generator().manual_seed(4), dtype=F64)
    loss = lambda point: (point * price).flatten(-len(case.event)).sum(-1)
    batch = torch.linspace(0.6, 1.5, 3, dtype=F64)
    padded = case.structure.restrict(torch.zeros_like(case.scores())) == -torch.inf
    scores = case.scores().masked_fill(padded, torch.nan)
    relaxed = {"ste_marginals": "structured_attention", "ste_sparsemap": "sparsemap"}.get(name, name)

    def value(temperature):
        return make(relaxed, temperature=temperature).loss(case.structure, scores, loss)

    temperature = batch.clone().requires_grad_()
    total = make(name, temperature=temperature).loss(case.structure, scores, loss).sum()
    (gradient,) = torch.autograd.grad(total, temperature)
    assert_close(gradient, (value(batch + 1e-6) - value(batch - 1e-6)).detach() / 2e-6, atol=1e-6, rtol=1e-5)


# ---- cost, decoder, random state


@every_pair
def test_the_decoder_gets_its_own_gradient_and_nothing_else(name, case):
    decoder, seen = Decoder(case), []
    scores = case.scores().requires_grad_()

    def downstream(point):
        seen.append(point.detach().clone())
        return decoder(point)

    estimator = seeded(name, case)
    losses = estimator.loss(case.structure, scores, downstream)
    main = list(seen)  # those of the forward pass
    losses.sum().backward()
    got, decoder.weight.grad = decoder.weight.grad, None
    if name in EXPECTATIONS:
        seeded(name).loss(case.structure, case.scores(), decoder).sum().backward()
    else:
        assert len(main) == (3 if name == "reinforce" else 1)
        if name in DETERMINISTIC and name not in ("structured_attention", "sparsemap", "entmax"):
            assert_close(main[0], case.structure.argmax(case.scores()))
        sum(decoder(point).sum() for point in main).div(len(main)).backward()
    assert_close(got, decoder.weight.grad)


@pytest.mark.parametrize("case", [SUBSET, TREE, CHOICE], ids=repr)
@pytest.mark.parametrize("name", pb.CATALOG)
def test_evaluations_are_as_few_as_the_catalog_says(name, case):
    case = case if pb.CATALOG[name].serves(case.structure) else CHOICE
    decoder, cost = Decoder(case), pb.CATALOG[name].evaluations
    numbers = {
        "steps": 3,
        "samples": 3,
        "k": 3,
        "vertices": len(case.vertices()),
        "support": int(case.structure.support(case.scores()).size.max()),
    }
    options = {each: 3 for each in ("steps", "samples", "k") if each == cost.each}
    estimator = make(name, case, **options)
    estimator.loss(case.structure, case.scores().requires_grad_(), decoder).sum().backward()
    assert decoder.calls == cost.count(**numbers)
    assert estimator.evaluations == (None if cost.each in ("vertices", "support") else decoder.calls)


@pytest.mark.parametrize("estimator", [pb.ste(), pb.spigot(steps=4), pb.spigot_ce(steps=3), pb.spigot_eg()], ids=repr)
def test_every_evaluation_of_a_descent_is_differentiated_in_the_point_once(estimator):
    decoder = Decoder(SUBSET)
    estimator.loss(SUBSET.structure, SUBSET.scores().requires_grad_(), decoder).sum().backward()
    begins_forward = (
        estimator.prediction == estimator.decodes_from
    )  # otherwise the main pass is not part of the descent
    assert decoder.backward_calls == (decoder.calls if begins_forward else decoder.calls - 1)
    decoder.calls = 0
    with torch.no_grad():
        estimator.loss(SUBSET.structure, SUBSET.scores(), decoder)
    assert decoder.calls == 1


def test_the_argmax_costs_a_self_critical_baseline_one_evaluation():
    decoder, estimator = Decoder(SUBSET), pb.reinforce(4, "self_critical")
    estimator.loss(SUBSET.structure, SUBSET.scores().requires_grad_(), decoder).sum().backward()
    assert decoder.calls == estimator.evaluations == 5


@pytest.mark.parametrize(
    "estimator", [pb.spigot_ce(0.3, 2), pb.spigot(0.3, 3), pb.best_vertex()], ids=lambda e: str(e.descent)
)
def test_extra_evaluations_replay_the_random_numbers_of_the_main_pass_and_leave_no_trace(estimator):
    case = SUBSET
    decoder = Decoder(case, dropout=0.5)
    masks = []
    decoder.dropout.register_forward_hook(lambda module, inputs, output: masks.append(output == 0))
    torch.manual_seed(3)
    decoder(case.structure.argmax(case.scores()))
    expected = torch.rand(3)
    torch.manual_seed(3)
    masks.clear()
    scores = case.scores().requires_grad_()
    estimator.loss(case.structure, scores, decoder).sum().backward()
    assert torch.equal(torch.rand(3), expected)
    assert len(masks) > 1
    assert all(torch.equal(mask, masks[0]) for mask in masks)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler's own
@pytest.mark.parametrize("name", ["ste", "spigot_eg"])
def test_a_compiled_training_step_gives_the_eager_gradient(name):
    """The pull-back itself stays outside of the graph."""
    torch.compiler.reset()
    price = torch.linspace(-1, 1, 5, dtype=F64)

    def losses(scores):
        return make(name).loss(SUBSET.structure, scores, lambda point: (point * price).square().sum(-1))

    gradients = []
    for function in (losses, torch.compile(losses, backend="aot_eager")):
        scores = SUBSET.scores().requires_grad_()
        function(scores).sum().backward()
        gradients.append(scores.grad)
    assert_close(*gradients)


@pytest.mark.parametrize("name", ["structured_attention", "ste_sparsemap"])
def test_a_relaxation_compiles_whole_inside_a_model(name):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.estimator = make(name)

        def forward(self, scores):
            return self.estimator.loss(SUBSET.structure, scores, lambda point: (point - 0.3).square().sum(-1))

    torch.compiler.reset()
    model, gradients = Model(), []
    for function in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        scores = SUBSET.scores().requires_grad_()
        function(scores).sum().backward()
        gradients.append(scores.grad)
    assert_close(*gradients)


# ---- calling an estimator


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if entry.callable])
def test_a_called_estimator_hands_over_a_point_with_the_same_gradient(name):
    scores, decoder = CHOICE.scores().requires_grad_(), Decoder(CHOICE)
    (gradient,) = torch.autograd.grad(decoder(seeded(name)(CHOICE.structure, scores)).sum(), scores)
    assert_close(gradient, score_gradient(seeded(name), CHOICE, decoder))


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if not entry.callable])
def test_an_estimator_that_needs_the_loss_is_not_callable(name):
    with pytest.raises(TypeError, match=r"call `estimator\.loss"):
        make(name, CHOICE)(CHOICE.structure, CHOICE.scores())


def test_several_steps_cannot_be_taken_without_the_loss():
    with pytest.raises(TypeError, match="evaluates the downstream loss itself"):
        pb.spigot(steps=2)(CATEGORICAL, torch.zeros(2, 3))
    with pytest.raises(TypeError, match="has no target"):
        _ = pb.sparsemap().inspect(CATEGORICAL, torch.zeros(2, 3), lambda point: point.sum(-1)).target


def test_a_latent_point_differentiated_beside_the_losses_is_refused():
    kept = []

    def downstream(point):
        kept.append(point)
        return point.sum(-1)

    scores = torch.zeros(2, 3, requires_grad=True)
    pb.spigot().loss(CATEGORICAL, scores, downstream)
    with pytest.raises(RuntimeError, match="not through the losses"):
        kept[0].sum().backward()


# ---- random numbers


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_generator_gives_the_same_gradient_with_any_number_of_threads(name):
    case, threads = case_for(name), torch.get_num_threads()
    first = score_gradient(seeded(name), case, Decoder(case))
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(score_gradient(seeded(name), case, Decoder(case)), first)
    finally:
        torch.set_num_threads(threads)
    others = [make(name, generator=torch.Generator().manual_seed(seed)) for seed in range(1, 6)]
    assert not all(torch.equal(score_gradient(other, case, Decoder(case)), first) for other in others)
    torch.manual_seed(0)
    global_numbers = torch.rand(3)
    torch.manual_seed(0)
    score_gradient(seeded(name), case, Decoder(case))
    assert torch.equal(torch.rand(3), global_numbers)  # a generator of one's own leaves the global one alone


@pytest.mark.parametrize("name", FOLLOWS_GRADIENT)
def test_a_batch_may_be_empty(name):
    scores = torch.zeros(0, 5, dtype=F64, requires_grad=True)
    losses = make(name).loss(case_for(name).structure, scores, lambda point: point.square().sum(-1))
    assert losses.shape == (0,)
    losses.sum().backward()
    assert scores.grad.shape == (0, 5)


@pytest.mark.parametrize("name", BLACK_BOX)
def test_black_box_losses_are_allowed(name):
    case = case_for(name)
    price = torch.tensor([3.0, 1.0, 2.0, 0.0, 5.0], dtype=F64)
    black_box = lambda point: (point.detach() * price).sum(-1).round()
    estimator = make(name, **({"samples": 64, "baseline": pb.LeaveOneOut()} if name == "reinforce" else {}))
    torch.manual_seed(0)
    gradient = score_gradient(estimator, case, black_box, scores=torch.linspace(0, 0.2, 15).double().reshape(3, 5))
    assert gradient[:, 4].mean() > gradient[:, 3].mean()  # descent lowers the expensive item


# ---- words and misuse


def test_a_downstream_loss_must_be_one_per_example():
    scores = torch.zeros(4, 3, requires_grad=True)
    for name in NAMES:
        for wrong, shape in ((lambda z: z.sum(), r"\(\)"), (lambda z: z, r"\(4, 3\)"), (lambda z: z[:2, 0], r"\(2,\)")):
            with pytest.raises(ValueError, match=rf"shape {shape} for a batch of shape \(4,\)"):
                make(name).loss(CATEGORICAL, scores, wrong).sum().backward()
        with pytest.raises(TypeError, match="returned a float"):
            make(name).loss(CATEGORICAL, scores, lambda z: 1.0)


@pytest.mark.parametrize("name", [name for name, entry in pb.CATALOG.items() if entry.needs])
def test_missing_capabilities_are_named(name):
    oracle, scores = pb.Oracle(CATEGORICAL.argmax), torch.randn(4, 3, requires_grad=True)
    assert not pb.CATALOG[name].serves(oracle)
    words = {
        pb.LogLinear: "partition function",
        pb.Simplex: "Categorical",
        pb.Enumerable: "vertices",
        pb.KBest: "k best vertices",
    }
    with pytest.raises(pb.MissingCapability, match="|".join(words[needed] for needed in pb.CATALOG[name].needs)):
        make(name).loss(oracle, scores, lambda point: point.square().sum(-1)).sum().backward()


class OneOf(pb.Oracle):
    fixed_sums = (-1,)  # which a solver does not tell, and `identity` centers by


@pytest.mark.parametrize("name", [name for name in NAMES if not pb.CATALOG[name].needs])
def test_an_argmax_is_enough_where_the_catalog_says_so(name):
    scores = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=F64)
    gradients = []
    for structure in (OneOf(CATEGORICAL.argmax), CATEGORICAL):
        leaf = scores.clone().requires_grad_()
        seeded(name).loss(structure, leaf, lambda point: point.square().sum(-1)).sum().backward()
        gradients.append(leaf.grad)
    assert_close(*gradients)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lower_precision_scores_train_too(name, dtype):
    case = CHOICE
    scores = case.scores(dtype=dtype)
    gradient = score_gradient(seeded(name), case, Decoder(case).to(dtype), scores=scores)
    exact = score_gradient(seeded(name), case, Decoder(case), scores=scores.double())
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    assert gradient.dtype == dtype
    assert_close(gradient.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", pb.CATALOG)
def test_a_named_estimator_says_what_it_computes_costs_and_needs(name):
    said = pb.CATALOG[name].make.__doc__
    assert "gradient = " in said or "Σ p(z) L(z)" in said
    assert "Costs " in said and "Needs " in said


# No gradient where nothing is shared, or from vertices that are not in the list.
SPARSE = ("sparsemap", "entmax", "ste_sparsemap", "sparse_marginalization", "topk_expectation", "frozen")


ONE_OF_EACH = [CHOICE, CASES["Binary, mask"], CASES["Subset, at most"], SENTENCES, TREE]


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=repr)
def test_the_catalog_trains_every_kind_of_structure(case):
    """A decoder that wants one vertex: methods that see all vertices find it, and sparse ones never lose ground."""
    wanted = case.structure.argmax(case.scores(seed=9))
    loss = lambda point: (point - wanted).square().flatten(-len(case.event)).sum(-1)
    for name in (name for name, entry in pb.CATALOG.items() if entry.serves(case.structure)):
        torch.manual_seed(0)
        scores = (0.3 * case.scores()).requires_grad_()
        optimizer = torch.optim.Adam([scores], 0.1)
        options = {"reinforce": {"samples": 16, "baseline": pb.LeaveOneOut()}, "supervised": {"label": wanted}}
        estimator = make(name, case, **options.get(name, {}))
        history = []
        for _ in range(60):
            losses = estimator.loss(case.structure, scores, loss)
            history.append(float(losses.detach().mean()))
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
        if name in SPARSE:
            assert history[-1] <= history[0] + 1e-9, name
        else:
            assert loss(case.structure.argmax(scores.detach())).mean() == 0, name

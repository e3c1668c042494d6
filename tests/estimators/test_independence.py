"""What an example learns depends neither on the others of its batch, nor on parts that are forbidden or padding."""

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from decoders import (
    BLACK_BOX,
    CASES,
    CHOICE,
    DETERMINISTIC,
    F64,
    FOLLOWS_GRADIENT,
    NAMES,
    SENTENCES,
    SUBSET,
    SURROGATES,
    TREE,
    Decoder,
    case_for,
    every_pair,
    latent_gradient,
    make,
    score_gradient,
)

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

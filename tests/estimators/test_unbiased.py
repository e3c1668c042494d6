"""Estimates of an expected loss: on average the exact one, and with less noise the more they know.

Each estimator sees the same scores in every row of a large batch, and draws anew for each row.
"""

import itertools

import pytest
import torch
from torch.testing import assert_close

import pullback as pb
from families import LOG_LINEAR_UPSTAIRS, UPSTAIRS, Case
from pullback.estimators._without_replacement import unordered

F64 = torch.float64
ROWS = 3000
CASES = [
    Case("Categorical", pb.Categorical(), (ROWS,), (5,)),
    Case("Subset", pb.Subset(2), (ROWS,), (5,)),
    Case("Chain", pb.Chain(), (ROWS,), (3, 2, 2)),
    Case("DependencyTree", pb.DependencyTree(), (ROWS,), (4, 4)),
    Case("Independent", pb.Independent(pb.Categorical()), (ROWS,), (2, 3)),
    Case("Subset, at most", pb.Subset.at_most(2), (ROWS,), (3,)),  # also of nothing
]
WITH_BEST = [case for case in CASES if case.structure.offers(pb.KBest)]
SCALES = (0.4, 1.2)  # nearly flat, and peaked, but no part so rare that 3000 draws miss it


def seeded(number=0):
    return torch.Generator().manual_seed(number)


def one(case, scale):
    """Scores of one example, and a nonlinear black box far from 0, of which no estimator may see a gradient."""
    scores = scale * torch.randn(case.event, generator=seeded(1), dtype=F64)
    weight = torch.randn(scores.numel(), 4, generator=seeded(2), dtype=F64)
    goal = torch.tensor([0.5, -1.0, 0.0, 0.25], dtype=F64)
    return scores, lambda z: (torch.tanh(z.flatten(-len(case.event)) @ weight) - goal).square().sum(-1).detach() + 3


def exact(case, scores, loss, risk=None):
    scores = scores.clone().requires_grad_()
    value = (risk or pb.minimum_risk()).loss(case.structure, scores, loss)
    return value.detach(), torch.autograd.grad(value, scores)[0]


def estimates(estimator, case, scores, loss):
    rows = scores.expand(ROWS, *case.event).clone().requires_grad_()
    values = estimator.loss(case.structure, rows, loss)
    return values.detach(), torch.autograd.grad(values.sum(), rows)[0]


def assert_unbiased(found, exact):
    standard_error = found.std(0) / ROWS**0.5
    assert ((found.mean(0) - exact).abs() <= 4 * standard_error + 1e-9).all()


def noise(estimator, case, scores, loss):
    return float(estimates(estimator, case, scores, loss)[1].var(0).sum())


every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_case_with_best = pytest.mark.parametrize("case", WITH_BEST, ids=repr)
every_scale = pytest.mark.parametrize("scale", SCALES)

WAYS = {
    "no baseline": lambda: pb.reinforce(3, generator=seeded(2)),
    "leave one out": lambda: pb.reinforce(3, "leave_one_out", generator=seeded(2)),
    "self-critical": lambda: pb.reinforce(3, "self_critical", generator=seeded(2)),
    "running average": lambda: pb.reinforce(3, "running_average", generator=seeded(2)),
    "supplied": lambda: pb.reinforce(3, lambda s: s.flatten(1).sum(-1), generator=seeded(2)),
    "without replacement": lambda: pb.reinforce(3, replacement=False, generator=seeded(2)),
    "without replacement, leave one out": lambda: pb.reinforce(
        3, "leave_one_out", replacement=False, generator=seeded(2)
    ),
}


@every_case
@every_scale
@pytest.mark.parametrize("way", WAYS)
def test_reinforce_is_unbiased(case, scale, way):
    scores, loss = one(case, scale)
    for found, known in zip(estimates(WAYS[way](), case, scores, loss), exact(case, scores, loss)):
        assert_unbiased(found, known)


@every_case_with_best
@every_scale
@pytest.mark.parametrize("k", [1, 3])
def test_sum_and_sample_is_unbiased(case, scale, k):
    scores, loss = one(case, scale)
    found = estimates(pb.sum_and_sample(k, generator=seeded(2)), case, scores, loss)
    for estimate, known in zip(found, exact(case, scores, loss)):
        assert_unbiased(estimate, known)


@every_case
@every_scale
def test_each_refinement_lowers_the_variance(case, scale):
    scores, loss = one(case, scale)
    spread = {way: noise(make(), case, scores, loss) for way, make in WAYS.items()}
    assert spread["leave one out"] < 0.5 * spread["no baseline"]
    assert spread["without replacement"] < spread["no baseline"]
    assert spread["without replacement, leave one out"] < spread["leave one out"]
    if case in WITH_BEST:  # with as many evaluations, and with the single draw that it refines
        assert noise(pb.sum_and_sample(2, generator=seeded(2)), case, scores, loss) < spread["no baseline"]


@every_case_with_best
def test_what_the_best_leave_over_is_all_the_noise_of_sum_and_sample(case):
    scores, loss = one(case, 2.0)
    spread = [noise(pb.sum_and_sample(k, generator=seeded(2)), case, scores, loss) for k in (1, 3)]
    assert spread[1] < spread[0]
    every = len(case.structure.enumerate(case.shape).vertices)
    for found, known in zip(estimates(pb.sum_and_sample(every), case, scores, loss), exact(case, scores, loss)):
        assert_close(found, known.expand_as(found))


@pytest.mark.parametrize("estimator", [pb.reinforce(3, replacement=False), pb.sum_and_sample(2)], ids=["draws", "sum"])
def test_scores_that_leave_no_doubt_end_the_search_for_other_vertices(estimator):
    """Also where one vertex is all there is."""
    scores = torch.tensor([[40.0, 0.0, -30.0], [0.0, -torch.inf, -torch.inf]], dtype=F64, requires_grad=True)
    losses = estimator.loss(pb.Categorical(), scores, lambda z: z @ torch.tensor([1.0, 2.0, 5.0], dtype=F64))
    assert_close(losses, torch.ones(2, dtype=F64))
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert_close(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize(
    "estimator",
    [pb.sum_and_sample(3), pb.topk_expectation(3), pb.reinforce(3, "leave_one_out", replacement=False)],
    ids=["sum_and_sample", "topk_expectation", "without replacement"],
)
def test_probabilities_that_round_to_zero_are_no_hindrance(estimator):
    """The 41³⁹ trees over 40 words have 1e-63 each, and in single precision no probability at all."""
    torch.manual_seed(0)
    scores = (0.01 * torch.randn(2, 41, 41)).requires_grad_()
    losses = estimator.loss(pb.DependencyTree(), scores, lambda z: z[..., 0, :].sum(-1) + 5)
    (gradient,) = torch.autograd.grad(losses.sum(), scores)
    assert losses.isfinite().all() and gradient.isfinite().all() and gradient.abs().sum() > 0


def test_samples_without_replacement_are_different_and_weighted_by_the_chance_to_be_first():
    """Two of three vertices: the order (a, b) has probability p(a) p(b) / (1 − p(a))."""
    p = torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    price = torch.tensor([1.0, 10.0, 100.0], dtype=F64)
    seen = []

    def loss(z):
        seen.append(z.argmax(-1))
        return z @ price

    found = pb.reinforce(2, replacement=False, generator=seeded()).loss(pb.Categorical(), p.log().expand(500, 3), loss)
    pairs = torch.stack(seen)
    settled = pairs[0] == pairs[1]  # for one vertex, drawn again and again
    assert settled.double().mean() < 0.05
    rho = 1 - 1 / 64  # the chance to draw once more
    for (a, b), value in zip(pairs.T.tolist(), found.tolist()):
        if a == b:
            assert value == pytest.approx(float(price[a]))
        else:
            ways = [float(1 / (1 - rho * p[first])) for first in (a, b)]
            expected = (ways[0] * float(price[a]) + ways[1] * float(price[b])) / sum(ways)
            assert value == pytest.approx(expected)


@pytest.mark.parametrize("rho", [0.5, 0.97])
def test_over_all_orders_in_which_vertices_may_come_the_mean_is_exact(rho):
    """Up to three of four vertices; an order has known probability, and sets are all that the estimate may use."""
    p = torch.tensor([0.55, 0.25, 0.15, 0.05], dtype=F64)
    f = torch.tensor([1.0, -2.0, 30.0, 4.0], dtype=F64)
    orders = [order for count in (1, 2, 3) for order in itertools.permutations(range(4), count)]
    chances = []
    for order in orders:
        covered = torch.stack([p[list(order[:i])].sum() for i in range(1, len(order) + 1)])
        grows = rho * p[list(order[1:])] / (1 - rho * covered[:-1])
        stops = 1.0 if len(order) == 3 else (1 - rho) / (1 - rho * covered[-1])
        chances.append(p[order[0]] * grows.prod() * stops)
    chance, size = torch.stack(chances), torch.tensor([len(order) for order in orders])
    index = torch.tensor([[*order, 0, 0][:3] for order in orders]).T
    vertices = torch.eye(4, dtype=F64)[index].masked_fill((torch.arange(3)[:, None] >= size)[..., None], 0)
    gibbs = pb.Gibbs(pb.Categorical(), p.log().expand(len(orders), 4), validate_args=False)
    found = unordered(gibbs, vertices, size, rho)
    values = f[index]
    assert_close(chance.sum(), torch.ones((), dtype=F64))
    assert_close((chance * found.weights * values).sum(), (p * f).sum())
    total = found.others.sum(1)[found.weights > 0]
    assert_close(total, torch.ones_like(total))  # a constant in the loss changes nothing
    slopes = torch.eye(4, dtype=F64)[index] - p  # of log p(z) in the scores: (3, orders, 4)
    for advantage in (values, values - found.others_of(values)):
        gradient = ((chance * found.weights * advantage)[..., None] * slopes).sum((0, 1))
        assert_close(gradient, p * (f - (p * f).sum()))


@every_case
def test_reinforce_under_the_sparsemap_distribution_estimates_sparse_marginalization(case):
    scores, loss = one(case, 0.7)
    risk = pb.sparse_marginalization(0.8)
    assert case.structure.support(scores / 0.8).size > 1
    for baseline, replacement in (("none", True), ("leave_one_out", True), ("leave_one_out", False)):
        estimator = pb.reinforce(
            3,
            baseline,
            distribution="sparsemap",
            temperature=0.8,
            replacement=replacement,
            generator=seeded(2),
        )
        for found, known in zip(estimates(estimator, case, scores, loss), exact(case, scores, loss, risk)):
            assert_unbiased(found, known)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: pb.reinforce(3, "leave_one_out", temperature=t, generator=seeded(2)),
        lambda t: pb.reinforce(3, replacement=False, temperature=t, generator=seeded(2)),
        lambda t: pb.sum_and_sample(2, t, generator=seeded(2)),
    ],
    ids=["reinforce", "without replacement", "sum_and_sample"],
)
def test_temperatures_may_differ_by_example_and_be_learned(make):
    """On average their gradient is that of the expected loss."""
    case = CASES[0]
    scores, loss = one(case, 1.0)
    numbers = torch.tensor([0.5, 1.0, 2.0], dtype=F64).repeat_interleave(ROWS // 3).requires_grad_()
    rows = scores.expand(len(numbers), 5)
    (found,) = torch.autograd.grad(make(numbers).loss(case.structure, rows, loss).sum(), numbers)
    for given, column in zip((0.5, 1.0, 2.0), found.reshape(3, -1)):
        number = torch.tensor(given, dtype=F64, requires_grad=True)
        (known,) = torch.autograd.grad(pb.minimum_risk(number).loss(case.structure, scores, loss), number)
        assert (column.mean() - known).abs() <= 4 * column.std() / len(column) ** 0.5


def test_a_temperature_may_be_a_function_that_is_asked_at_every_call():
    now = {"temperature": 1.0}
    scores, loss = one(CASES[0], 1.0)
    scheduled = pb.topk_expectation(3, lambda: now["temperature"])
    for number in (1.0, 0.25):
        now["temperature"] = number
        found = exact(CASES[0], scores, loss, scheduled)
        for estimate, known in zip(found, exact(CASES[0], scores, loss, pb.topk_expectation(3, number))):
            assert_close(estimate, known)


@every_case
@pytest.mark.parametrize("distribution", ["gibbs", "sparsemap"])
def test_the_entropy_bonus_has_the_gradient_of_the_entropy(case, distribution):
    scores, loss = one(case, 0.7)
    make = lambda strength: pb.reinforce(
        2, distribution=distribution, temperature=0.8, entropy=strength, generator=seeded(2)
    )
    values, gradients = estimates(make(0.3), case, scores, loss)
    plain, without = estimates(make(0.0), case, scores, loss)
    leaf = scores.clone().requires_grad_()
    of = {"gibbs": pb.Gibbs, "sparsemap": pb.SparseMAPDistribution}[distribution]
    (known,) = torch.autograd.grad(of(case.structure, leaf / 0.8).entropy(), leaf)
    assert known.abs().max() > 1e-3
    assert_close(without - gradients, (0.3 * known).expand_as(gradients))
    assert_close(values, plain)  # they stay those of the decoder


@pytest.mark.parametrize(
    "make",
    [
        lambda generator: pb.reinforce(3, generator=generator),
        lambda generator: pb.reinforce(3, replacement=False, generator=generator),
        lambda generator: pb.reinforce(3, distribution="sparsemap", generator=generator),
        lambda generator: pb.sum_and_sample(2, generator=generator),
    ],
    ids=["reinforce", "without replacement", "sparsemap", "sum_and_sample"],
)
def test_the_same_generator_gives_the_same_result(make):
    case = CASES[3]
    scores, loss = one(case, 0.7)
    one_more = [estimates(make(seeded(seed)), case, scores, loss)[1] for seed in (5, 5, 6)]
    assert torch.equal(one_more[0], one_more[1]) and not torch.equal(one_more[0], one_more[2])


@every_case_with_best
def test_the_top_k_expectation_is_that_of_the_best_renormalized(case):
    scores, loss = one(case, 1.0)
    leaf = scores.clone().requires_grad_()
    best = case.structure.topk(leaf, 3)
    known = (torch.softmax(best.scores, -1) * torch.stack([loss(z) for z in best.vertices])).sum()
    found = pb.topk_expectation(3).loss(case.structure, scores.clone(), loss)
    assert_close(found, known.detach())
    assert_close(exact(case, scores, loss, pb.topk_expectation(3))[1], torch.autograd.grad(known, leaf)[0])
    every = len(case.structure.enumerate(case.shape).vertices)
    for found, known in zip(exact(case, scores, loss, pb.topk_expectation(every)), exact(case, scores, loss)):
        assert_close(found, known)


def test_the_top_k_expectation_needs_no_partition_function():
    scores = torch.randn(2, 3, 3, generator=seeded(), dtype=F64, requires_grad=True)
    losses = pb.topk_expectation(2).loss(pb.Matching(), scores, lambda z: z[..., 0, 0])
    assert torch.autograd.grad(losses.sum(), scores)[0].abs().sum() > 0


# ---- every structure, and batches of different examples

FURTHER = [
    pytest.param(pb.reinforce(3, "leave_one_out", replacement=False), case, id=f"without replacement, {case}")
    for case in LOG_LINEAR_UPSTAIRS
] + [
    pytest.param(pb.reinforce(3, replacement=replacement, distribution="sparsemap"), case, id=f"{how}, {case}")
    for how, replacement in (("sparsemap", True), ("sparsemap without replacement", False))
    for case in UPSTAIRS
]


@pytest.mark.parametrize(("estimator", "case"), FURTHER)
def test_forbidden_and_padded_parts_are_never_drawn_and_learn_nothing(estimator, case):
    best = case.structure.argmax(case.scores(seed=7))
    closed = torch.rand(case.shape, generator=seeded(3)) < 0.5
    scores = case.scores().masked_fill((best == 0) & closed & case.structure.is_zero_one, -torch.inf).requires_grad_()
    forbidden = case.structure.restrict(scores.detach()) == -torch.inf
    seen = []

    def loss(point):
        seen.append(point)
        return (point - 2).square().flatten(-len(case.event)).sum(-1)

    torch.manual_seed(0)
    (gradient,) = torch.autograd.grad(estimator.loss(case.structure, scores, loss).sum(), scores)
    assert gradient.isfinite().all() and (gradient[forbidden] == 0).all()
    assert len(seen) == 3
    assert all((point[forbidden] == 0).all() and case.structure.contains(point).all() for point in seen)


@pytest.mark.parametrize(
    "estimator",
    [
        pb.reinforce(3, "leave_one_out", generator=seeded(2)),
        pb.reinforce(3, "leave_one_out", replacement=False, generator=seeded(2)),
        pb.sum_and_sample(2, generator=seeded(2)),
    ],
    ids=["reinforce", "without replacement", "sum_and_sample"],
)
def test_an_example_is_estimated_alike_whatever_else_is_in_the_batch(estimator):
    """Sentences of two lengths take turns, one of them with hardly any doubt."""
    lengths = torch.tensor([3, 2]).repeat(ROWS)
    scores = torch.randn(2, 4, 4, generator=seeded(1), dtype=F64)
    scores[1, :, 1] += torch.tensor([6.0, 0.0, 0.0, 0.0])
    weight = torch.randn(4, 4, generator=seeded(4), dtype=F64)
    loss = lambda z: (z * weight).sum((-1, -2)).square()
    rows = scores.repeat(ROWS, 1, 1).requires_grad_()
    (found,) = torch.autograd.grad(estimator.loss(pb.DependencyTree(lengths), rows, loss).sum(), rows)
    for i in range(2):
        leaf = scores[i].clone().requires_grad_()
        (known,) = torch.autograd.grad(pb.minimum_risk().loss(pb.DependencyTree(lengths[i]), leaf, loss), leaf)
        assert_unbiased(found[i::2], known)


# ---- baselines of the user's own


def test_a_supplied_baseline_is_a_function_of_the_scores_or_a_tensor_that_may_change():
    case = CASES[0]
    scores, loss = one(case, 1.0)
    numbers = torch.full((ROWS,), 3.0, dtype=F64)
    asked = []

    def value(given):
        asked.append(given)
        return numbers

    make = lambda baseline: pb.reinforce(1, baseline, generator=seeded(2))
    by_function = estimates(make(value), case, scores, loss)[1]
    assert not asked[0].requires_grad and asked[0].shape == (ROWS, 5)
    assert_close(estimates(make(numbers), case, scores, loss)[1], by_function)
    tensor = make(torch.zeros((), dtype=F64))
    assert_close(estimates(tensor, case, scores, loss)[1], estimates(make("none"), case, scores, loss)[1])
    changing = make(torch.zeros((), dtype=F64))
    changing.baseline.value.fill_(3.0)
    assert_close(estimates(changing, case, scores, loss)[1], by_function)
    assert noise(make(value), case, scores, loss) < 0.5 * noise(make("none"), case, scores, loss)


def test_a_supplied_baseline_holds_for_every_draw_of_noise():
    scores = torch.zeros(2, 3, dtype=F64, requires_grad=True)
    estimator = pb.Perturbed(pb.reinforce(1, torch.tensor([1.0, 2.0], dtype=F64)), "none", samples=4)
    losses = estimator.loss(pb.Categorical(), scores, lambda z: torch.tensor([1.0, 2.0], dtype=F64))
    assert (torch.autograd.grad(losses.sum(), scores)[0] == 0).all()


@pytest.mark.parametrize(
    ("baseline", "words"),
    [(lambda s: s, r"shape \(2, 3\)"), (torch.zeros(3), r"shape \(3,\)"), (lambda s: 1.0, "type float")],
)
def test_a_supplied_baseline_is_one_number_for_each_example(baseline, words):
    with pytest.raises(ValueError, match=rf"the baseline has {words}; expected a tensor with one number for each"):
        pb.reinforce(1, baseline).loss(pb.Categorical(), torch.zeros(2, 3), lambda z: z.sum(-1))

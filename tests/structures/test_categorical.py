"""What is particular to one choice out of n, beyond the contract of every structure."""

import math

import entmax
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import pullback as pb

CHOICE = pb.Categorical()
ORDERS = [1.0, 1.2, 1.5, 1.8, 2.0, 2.5]


def random_scores(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_there_are_as_many_vertices_as_categories():
    assert torch.equal(CHOICE.enumerate((4,)).vertices, torch.eye(4))


def test_marginals_are_softmax_and_sparsemap_is_sparsemax():
    for shape in ((6,), (3, 7), (2, 3, 100), (4, 3000)):
        scores = random_scores(*shape)
        assert_close(CHOICE.marginals(scores), scores.softmax(-1))
        assert_close(CHOICE.log_partition(scores), scores.logsumexp(-1))
        assert_close(CHOICE.sparsemap(scores), entmax.sparsemax(scores))


@pytest.mark.parametrize("shape", [(5,), (3, 7), (0, 4), (2, 3, 100), (4, 3000)], ids=str)
def test_entmax_runs_from_softmax_through_entmax15_to_sparsemax(shape):
    scores = random_scores(*shape)
    for alpha in (1, 1.0, torch.tensor(1.0)):
        assert_close(CHOICE.entmax(scores, alpha), scores.softmax(-1))
    for alpha in (2, torch.tensor(2)):
        assert_close(CHOICE.entmax(scores, alpha), CHOICE.sparsemap(scores))
    for alpha in (1.5, torch.tensor(1.5)):
        assert_close(CHOICE.entmax(scores, alpha), entmax.entmax15(scores), atol=1e-9, rtol=0)
    for alpha in (1.1, 1.7, 3.0):
        assert_close(CHOICE.entmax(scores, alpha), entmax.entmax_bisect(scores, alpha), atol=1e-9, rtol=0)


@pytest.mark.parametrize("alpha", ORDERS)
def test_gradients_are_those_of_the_entmax_package(alpha):
    ours, theirs = (random_scores(4, 30).requires_grad_() for _ in range(2))
    weight = random_scores(4, 30, seed=1)
    peer = {1.0: lambda s: s.softmax(-1), 1.5: entmax.entmax15, 2.0: entmax.sparsemax}
    CHOICE.entmax(ours, alpha).backward(weight)
    peer.get(alpha, lambda s: entmax.entmax_bisect(s, alpha, n_iter=100))(theirs).backward(weight)
    assert_close(ours.grad, theirs.grad, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("alpha", ORDERS)
def test_entmax_has_first_and_second_derivatives(alpha):
    scores = random_scores(3, 5).masked_fill(torch.tensor([False, False, True, False, False]), -torch.inf)
    assert gradcheck(lambda s: CHOICE.entmax(s, alpha), (scores.requires_grad_(),))
    assert gradgradcheck(lambda s: CHOICE.entmax(s, alpha), (scores,))


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8, 2.5])
def test_entmax_is_differentiable_in_alpha_once_and_twice(alpha):
    scores = random_scores(3, 5).requires_grad_()
    orders = torch.tensor([alpha, alpha + 0.1, alpha + 0.2], dtype=torch.float64, requires_grad=True)
    assert gradcheck(CHOICE.entmax, (scores, orders))
    assert gradgradcheck(CHOICE.entmax, (scores, orders))


def test_the_derivative_in_alpha_is_continuous_down_to_softmax():
    scores, weight = random_scores(2, 6), random_scores(2, 6, seed=1)

    def slope(alpha):
        orders = torch.full((2,), alpha, dtype=torch.float64, requires_grad=True)
        (CHOICE.entmax(scores, orders) * weight).sum().backward()
        return orders.grad

    step = 1e-5
    rise = ((CHOICE.entmax(scores, 1 + step) - scores.softmax(-1)) * weight).sum(-1) / step
    assert_close(slope(1.0), rise, atol=1e-4, rtol=0)
    assert_close(slope(1 + 1e-12), slope(1.0), atol=1e-9, rtol=0)
    assert_close(slope(1 + 1e-4), slope(1.0), atol=1e-2, rtol=0)


def test_both_forms_of_the_gradient_agree():
    scores, orders = random_scores(5, 8).requires_grad_(), torch.linspace(1, 3, 5, requires_grad=True)
    weight = random_scores(5, 8, seed=1)
    kernel = torch.autograd.grad(CHOICE.entmax(scores, orders), (scores, orders), weight)
    smooth = torch.autograd.grad(CHOICE.entmax(scores, orders), (scores, orders), weight, create_graph=True)
    assert_close(smooth[0].detach(), kernel[0])
    assert_close(smooth[1].detach(), kernel[1])


def test_alpha_broadcasts_to_the_batch():
    scores = random_scores(2, 3, 4, 5)
    heads = torch.tensor([1.2, 1.5, 2.5]).unsqueeze(-1).requires_grad_()  # (heads, 1)
    together = CHOICE.entmax(scores, heads)
    for head in range(3):
        assert_close(together[:, head], CHOICE.entmax(scores[:, head], heads[head, 0].item()), atol=1e-7, rtol=0)
    together.square().sum().backward()
    assert heads.grad.shape == heads.shape and heads.grad.dtype == heads.dtype and (heads.grad != 0).all()


@pytest.mark.parametrize("alpha", [0.99, -1.0, float("nan"), float("inf"), torch.tensor([1.5, 0.5])])
def test_an_alpha_outside_its_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha.*expected numbers ≥ 1"):
        CHOICE.entmax(random_scores(2, 3), alpha)


def test_an_alpha_that_does_not_fit_the_batch_is_refused():
    with pytest.raises(ValueError, match=r"alpha has shape \(3,\).*\(2,\)"):
        CHOICE.entmax(random_scores(2, 3), torch.ones(3))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("n", [3, 100, 3000])
def test_scores_without_an_answer_name_the_example(n, bad):
    scores = random_scores(2, 3, n)
    scores[1, 2, slice(None) if bad == -torch.inf else n - 1] = bad
    operations = ["argmax", "sparsemap", "marginals", "log_partition", "entropy", "support", "sample"]
    calls = [getattr(CHOICE, name) for name in operations]
    calls += [lambda s, alpha=alpha: CHOICE.entmax(s, alpha) for alpha in (1, 1.3, 1.5, 2)]
    for call in calls:
        with pytest.raises(ValueError, match=r"example \[1, 2\]"):
            call(scores)


@pytest.mark.parametrize("alpha", [1, 1.3, 1.5, 2, 4])
def test_entmax_ignores_padding_and_masked_categories(alpha):
    scores = random_scores(2, 5)
    lengths, mask = torch.tensor([3, 4]), torch.tensor([[True, False, True, True, True]] * 2)
    allowed = mask & (torch.arange(5) < lengths[:, None])
    dirty = scores.masked_fill(~allowed, torch.nan).requires_grad_()
    found = pb.Categorical(lengths, mask).entmax(dirty, alpha)
    for row in range(2):
        assert_close(found[row, allowed[row]], CHOICE.entmax(scores[row, allowed[row]], alpha))
    assert (found[~allowed] == 0).all()
    found.square().sum().backward()
    assert (dirty.grad[~allowed] == 0).all() and dirty.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [1, 1.001, 1.3, 1.5, 2, 10])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entmax_survives_extreme_and_equal_scores(alpha, dtype):
    extreme = torch.tensor([[1e4, -1e4, 1e4 - 0.25], [7.0, 7.0, 7.0], [-1e4, -1e4, -torch.inf]], dtype=dtype)
    point = CHOICE.entmax(extreme.requires_grad_(), alpha)
    point.square().sum().backward()
    assert extreme.grad.isfinite().all()
    assert_close(point[1].detach(), torch.full((3,), 1 / 3, dtype=dtype))
    assert_close(point[2].detach(), torch.tensor([0.5, 0.5, 0.0], dtype=dtype))
    relative = CHOICE.entmax(torch.tensor([0.0, -2e4, -0.25], dtype=dtype), alpha)
    assert_close(point[0].detach(), relative, atol=1e-6, rtol=0)


def test_half_precision_is_computed_in_single():
    for dtype in (torch.bfloat16, torch.float16):
        scores = random_scores(4, 9).to(dtype)
        for alpha in (1.3, 1.5, 2.0):
            found = CHOICE.entmax(scores, alpha)
            assert found.dtype == dtype
            assert_close(found, CHOICE.entmax(scores.float(), alpha).to(dtype))


def test_entmax_compiles_and_maps():
    scores, alpha = random_scores(3, 4), torch.tensor([1.2, 1.7, 2.5], dtype=torch.float64)
    for order in (1.5, 1.3, alpha):
        torch.compiler.reset()
        leaf, other = scores.clone().requires_grad_(), scores.clone().requires_grad_()
        model = lambda s, order=order: CHOICE.entmax(2 * s, order).square().sum()
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        model(leaf).backward(), compiled(other).backward()
        assert_close(other.grad, leaf.grad)
    assert_close(torch.func.vmap(CHOICE.entmax)(scores, alpha), CHOICE.entmax(scores, alpha))


def test_categories_without_probability_are_never_drawn():
    scores = torch.tensor([0.0, -torch.inf, 3.0, -torch.inf])
    drawn = CHOICE.sample(scores, (5000,), generator=torch.Generator().manual_seed(0)).mean(0)
    assert drawn[1] == drawn[3] == 0
    assert_close(drawn, scores.softmax(-1), atol=0.02, rtol=0)


def test_samples_pass_a_chi_squared_test():
    scores, many = random_scores(6), 20_000
    counts = CHOICE.sample(scores, (many,), generator=torch.Generator().manual_seed(3)).sum(0)
    expected = many * scores.softmax(-1)
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # 0.1 % with five degrees of freedom


def test_the_entropy_of_probabilities_has_no_derivative_at_zero():
    p = torch.tensor([0.0, 0.25, 0.75], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(CHOICE.maximum_entropy(p), p)
    assert_close(gradient, torch.tensor([0.0, -math.log(0.25) - 1, -math.log(0.75) - 1], dtype=torch.float64))


def test_the_gradient_of_the_log_partition_of_large_scores_in_single_precision_is_the_marginals():
    scores = torch.tensor([[2e4, 2e4, 1e4], [3e4 + 1 / 512, 3e4, -torch.inf]], requires_grad=True)
    (gradient,) = torch.autograd.grad(pb.Categorical().log_partition(scores).sum(), scores)
    assert_close(gradient, pb.Categorical().marginals(scores).detach(), atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_differences_of_scores_that_overflow_leave_an_entropy_of_zero(dtype):
    scores = torch.tensor([0.0, torch.finfo(dtype).max / 2, torch.finfo(dtype).min], dtype=dtype, requires_grad=True)
    entropy = CHOICE.entropy(scores)
    assert entropy == 0
    assert torch.autograd.grad(entropy, scores)[0].eq(0).all()


def test_small_entropies_keep_their_digits_in_single_precision():
    scores = torch.tensor([0.0, 20.0])
    assert_close(CHOICE.entropy(scores), CHOICE.entropy(scores.double()).float(), rtol=1e-6, atol=0)


def test_what_is_certain_has_entropy_zero_and_not_minus_zero():
    certain = torch.tensor([1.0, 0.0])
    for entropy in (
        CHOICE.entropy(certain.log()),
        CHOICE.maximum_entropy(certain),
        pb.Binary().maximum_entropy(certain),
    ):
        assert entropy == 0 and not entropy.signbit()

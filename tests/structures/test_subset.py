"""What is particular to subsets of bounded size, beyond the contract of every structure."""

import math

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.testing import assert_close

import pullback as pb


def random_scores(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_subsets_are_as_many_as_binomial_coefficients_say(n):
    for k in range(n + 1):
        assert len(pb.Subset(k).enumerate((n,)).vertices) == math.comb(n, k)
        assert len(pb.Subset.at_most(k).enumerate((n,)).vertices) == sum(math.comb(n, j) for j in range(k + 1))
    every = pb.Subset.between(1, n + 3).enumerate((n,)).vertices
    assert len(every) == len(every.unique(dim=0)) == 2**n - 1


def test_only_the_sizes_of_some_example_are_listed():
    vertices, belongs = pb.Subset(torch.tensor([0, 3])).enumerate((2, 4))
    assert vertices.sum(-1).tolist() == [0, 3, 3, 3, 3]
    assert belongs.tolist() == [[True, False]] + [[False, True]] * 4


def test_the_three_constructors_agree_where_they_mean_the_same():
    scores = random_scores(4, 6)
    for operation in ("argmax", "sparsemap", "marginals", "log_partition", "entropy"):
        exactly, between = pb.Subset(2), pb.Subset.between(2, 2)
        at_most, up_to = pb.Subset.at_most(3), pb.Subset.between(0, 3)
        assert torch.equal(getattr(exactly, operation)(scores), getattr(between, operation)(scores))
        assert torch.equal(getattr(at_most, operation)(scores), getattr(up_to, operation)(scores))


def test_a_count_per_example_gives_what_each_example_alone_gives():
    scores, counts = random_scores(4, 6), torch.tensor([0, 1, 3, 6])
    together = pb.Subset(counts)
    for operation in ("argmax", "sparsemap", "marginals", "log_partition", "entropy"):
        alone = torch.stack([getattr(pb.Subset(int(k)), operation)(row) for row, k in zip(scores, counts)])
        assert_close(getattr(together, operation)(scores), alone)


def test_without_a_bound_the_items_are_independent():
    scores = random_scores(3, 7) * 3
    subset, binary = pb.Subset.between(0, 100), pb.Binary()
    for operation in ("argmax", "sparsemap", "marginals", "log_partition", "entropy"):
        assert_close(getattr(subset, operation)(scores), getattr(binary, operation)(scores))


def test_one_of_the_items_is_a_category():
    scores = random_scores(3, 7)
    assert_close(pb.Subset(1).marginals(scores), scores.softmax(-1))
    assert_close(pb.Subset(1).log_partition(scores), scores.logsumexp(-1))
    assert_close(pb.Subset(1).sparsemap(scores), pb.Categorical().sparsemap(scores))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("structure", [pb.Subset(50), pb.Subset.at_most(50), pb.Subset.between(600, 700)], ids=repr)
def test_the_support_of_many_items_is_small_and_exact(structure, dtype):
    scores = random_scores(3, 1000, dtype=dtype)
    vertices, probabilities, count = structure.support(scores)
    point = structure.sparsemap(scores)
    fractional = ((point > 0) & (point < 1)).sum(-1)
    assert (count <= fractional + 1).all()
    assert structure.contains(vertices.movedim(1, 0))[(probabilities > 0).T].all()
    mixed = (probabilities.double().unsqueeze(-1) * vertices).sum(1)
    assert_close(mixed, point.double(), atol=1e-6 if dtype == torch.float32 else 1e-12, rtol=0)


def test_the_support_survives_ties_and_integers():
    structure = pb.Subset(3)
    for scores in (torch.zeros(2, 9), torch.ones(2, 9).cumsum(-1), torch.eye(9)[:2] / 2, random_scores(2, 9).round()):
        vertices, probabilities, count = structure.support(scores)
        assert_close(probabilities.sum(-1), torch.ones_like(probabilities[:, 0]))
        assert_close((probabilities.unsqueeze(-1) * vertices).sum(1), structure.sparsemap(scores))
        assert structure.contains(vertices.movedim(1, 0))[(torch.arange(vertices.shape[1])[:, None] < count)].all()


@pytest.mark.parametrize("structure", [pb.Subset(3), pb.Subset.at_most(3), pb.Subset.between(1, 6)], ids=repr)
def test_sparsemap_has_a_second_derivative_of_zero(structure):
    scores = random_scores(2, 7, seed=4).requires_grad_()
    assert gradgradcheck(lambda s: structure.sparsemap(s).square(), (scores,))


def test_the_gradient_of_an_equality_sums_to_zero_in_half_precision():
    """Rounded to eight bits, the sum of the point no longer tells that the count is met."""
    scores = (random_scores(4, 200) / 2).to(torch.bfloat16).requires_grad_()
    point = pb.Subset.at_most(20).sparsemap(scores)
    (gradient,) = torch.autograd.grad(point.float().sum(), scores)
    assert ((point > 0) & (point < 1)).sum() > 50
    assert gradient.float().abs().max() < 0.01


def test_many_samples_share_one_table_and_follow_their_example():
    scores = torch.tensor([[9.0, 9.0, -9.0, -9.0], [-9.0, -9.0, 9.0, 9.0]])
    drawn = pb.Subset(2).sample(scores, (5, 40), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (5, 40, 2, 4)
    assert_close(drawn.mean((0, 1)), (scores > 0).float(), atol=0.02, rtol=0)


@pytest.mark.parametrize("scale", [0.0, 1.0, 100.0])
def test_where_every_item_has_to_be_taken_no_score_moves_the_nearest_point(scale):
    subset, scores = pb.Subset(2, lengths=torch.tensor([2, 4])), (scale * random_scores(2, 4)).requires_grad_()
    point = subset.sparsemap(scores)
    assert point[0].tolist() == [1, 1, 0, 0]
    (gradient,) = torch.autograd.grad((point * random_scores(2, 4, seed=1)).sum(), scores)
    assert not gradient[0].any()


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: pb.Subset(-1), ValueError, "-1"),
        (lambda: pb.Subset(2.0), TypeError, r"k is 2\.0; expected an integer"),
        (lambda: pb.Subset(torch.tensor([1.0])), TypeError, r"k has dtype torch\.float32"),
        (lambda: pb.Subset(True), TypeError, "k is True"),
        (lambda: pb.Subset(2, low=0.5), TypeError, r"low is 0\.5; expected an integer"),
        (lambda: pb.Subset(torch.tensor([1, 2]), low=torch.ones(3).int()), ValueError, r"low has shape \(3,\)"),
        (
            lambda: pb.Subset(2, low=torch.tensor([1, 1, 1])).argmax(torch.zeros(2, 4)),
            ValueError,
            r"low has shape \(3,\); expected the batch shape \(2,\)",
        ),
        (
            lambda: pb.Subset.between(3, 2),
            ValueError,
            r"^Subset\.between: low is 3 and high is 2; expected 0 ≤ low ≤ high",
        ),
        (lambda: pb.Subset.at_most(-1), ValueError, r"^Subset\.at_most: k is -1; expected 0 ≤ k"),
        (
            lambda: pb.Subset.between(torch.tensor([1, 3]), 2),
            ValueError,
            r"Subset\.between: .* example \[1\] are not in order; expected 0 ≤ low ≤ high",
        ),
        (lambda: pb.Subset.between(1, 2.5), TypeError, r"^Subset\.between: high is 2\.5"),
        (lambda: pb.Subset(torch.tensor([1, -2])), ValueError, r"example \[1\]"),
        (lambda: pb.Subset(5).argmax(torch.zeros(2, 4)), ValueError, "5; expected at most .* 4"),
        (lambda: pb.Subset(torch.tensor([1, 2, 3])).argmax(torch.zeros(2, 4)), ValueError, r"\(3,\).*\(2,\)"),
        (lambda: pb.Subset(torch.tensor([2, 5])).marginals(torch.zeros(2, 4)), ValueError, r"example \[1\] has 4 item"),
        (lambda: pb.Subset(2, lengths=torch.tensor([3, 1])).sparsemap(torch.zeros(2, 4)), ValueError, "1 item"),
        (lambda: pb.Subset(2).argmax(torch.full((1, 3), -torch.inf)), ValueError, "0 item"),
        (lambda: pb.Subset(2).log_partition(torch.tensor([[0.0, 1.0], [torch.nan, 0.0]])), ValueError, r"\[1\].*NaN"),
        (lambda: pb.Subset(2).argmax(torch.tensor([torch.inf, 0.0])), ValueError, "the instance contain NaN or"),
        (lambda: pb.Subset(2).argmax(torch.zeros(2, 0)), ValueError, "at least one part"),
        (lambda: pb.Subset(2).argmax(torch.zeros(4, dtype=torch.long)), TypeError, "int64"),
        (lambda: pb.Subset(20).enumerate((60,)), ValueError, "60 items have"),
    ],
)
def test_bad_input_is_named(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()

"""What is particular to independent bits, beyond the contract of every structure."""

import math

import pytest
import torch
from torch.testing import assert_close

import pullback as pb


def test_every_operation_goes_bit_by_bit():
    scores = torch.tensor([[-2.0, -0.5, 0.0, 0.25, 0.5, 3.0]], dtype=torch.float64)
    bits = pb.Binary()
    assert_close(bits.argmax(scores), torch.tensor([[0.0, 0, 0, 1, 1, 1]], dtype=torch.float64))
    assert_close(bits.sparsemap(scores), torch.tensor([[0.0, 0, 0, 0.25, 0.5, 1]], dtype=torch.float64))
    assert_close(bits.marginals(scores), scores.sigmoid())
    assert_close(bits.log_partition(scores), (1 + scores.exp()).log().sum(-1))
    p = scores.sigmoid()
    assert_close(bits.entropy(scores), torch.distributions.Bernoulli(p).entropy().sum(-1))


def test_the_log_partition_function_is_exact_where_the_exponential_is_small():
    scores = torch.tensor([[22.0], [-40.0], [1e4]], dtype=torch.float64)
    expected = (
        torch.tensor([22.0, 0.0, 1e4], dtype=torch.float64)
        + torch.tensor([22.0, 40.0, 1e4], dtype=torch.float64).neg().exp().log1p()
    )
    assert_close(pb.Binary().log_partition(scores), expected, rtol=1e-15, atol=0)


def test_there_are_two_to_the_n_vertices():
    every = pb.Binary().enumerate((6,)).vertices
    assert len(every) == len(every.unique(dim=0)) == 64


def test_the_maximum_entropy_is_that_of_the_general_method():
    bits, generic = pb.Binary(), pb.LogLinear.maximum_entropy
    point = torch.tensor([[0.2, 0.7, 0.5], [0.01, 0.99, 0.3]], dtype=torch.float64)
    assert_close(bits.maximum_entropy(point), generic(bits, point), atol=1e-8, rtol=0)
    assert_close(bits.maximum_entropy(torch.tensor([0.0, 1.0])), torch.tensor(0.0))


@pytest.mark.parametrize("outside", [[1.1, 0.0, 0.0], [-0.1, 0.0, 0.0], [torch.nan, 0.0, 0.0], [0.5, 0.5, 0.5]])
def test_a_target_outside_the_cube_is_refused(outside):
    bits = pb.Binary(lengths=torch.tensor([3, 2]))
    with pytest.raises(ValueError, match=r"example \[1\] lies outside"):
        bits.maximum_entropy(torch.tensor([[0.5, 0.5, 0.5], outside]))


def test_certain_bits_are_sampled_with_certainty():
    scores = torch.tensor([-torch.inf, -1e4, 1e4])
    drawn = pb.Binary().sample(scores, (1000,))
    assert_close(drawn, torch.tensor([0.0, 0.0, 1.0]).expand(1000, 3))


def test_an_empty_example_has_one_vertex():
    bits = pb.Binary(lengths=torch.tensor([2, 0]))
    scores = torch.zeros(2, 2)
    assert_close(bits.log_partition(scores)[1], torch.tensor(0.0))
    assert_close(bits.marginals(scores)[1], torch.zeros(2))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_score_that_is_no_number_is_refused(bad):
    scores = torch.zeros(3, 2)
    scores[2, 1] = bad
    for operation in ("argmax", "sparsemap", "marginals", "log_partition", "entropy", "sample"):
        with pytest.raises(ValueError, match=r"example \[2\] contain NaN or \+inf"):
            getattr(pb.Binary(), operation)(scores)


def test_the_largest_entropy_of_given_means_has_no_derivative_at_certain_bits():
    point = torch.tensor([0.0, 1.0, 0.25], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(pb.Binary().maximum_entropy(point), point)
    assert_close(gradient, torch.tensor([0.0, 0.0, math.log(3)], dtype=torch.float64))


def test_samples_in_half_precision_have_the_exact_probabilities():
    scores = torch.full((100_000,), 6.5, dtype=torch.bfloat16)  # whose sigmoid is rounded to 1
    zeros = int((pb.Binary().sample(scores, generator=torch.Generator().manual_seed(0)) == 0).sum())
    assert 100 < zeros < 200  # 150 are expected


@pytest.mark.parametrize("structure", [pb.Binary(), pb.Categorical()], ids=repr)
def test_half_precision_is_computed_in_single(structure):
    scores = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    for name in ("log_partition", "entropy"):
        operation = getattr(structure, name)
        assert_close(operation(scores), operation(scores.float()).bfloat16(), atol=0, rtol=0)

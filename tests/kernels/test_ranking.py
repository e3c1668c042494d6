"""The permutahedron: sorting, and two projections with their derivatives."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import pullback as pb
from reference import ranking as reference

REGULARIZERS = pytest.mark.parametrize("regularizer", ["squared_norm", "entropy"])
TWINS = {"squared_norm": reference.project, "entropy": reference.project_entropic}


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- sorting


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [1, 2, 47, 48, 49, 300, 3000])
@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e18], ids=lambda scale: f"scale {scale:g}")
def test_ranks_are_those_of_a_stable_sort(n, scale, dtype):
    rows = [random(n), random(n).round(), random(n).sort().values, -random(n).sort().values, 0 * random(n)]
    rows += [random(n) ** 25, 1 + 1e-13 * random(n), (random(n) > 1).double()]  # in few buckets
    scores = torch.stack(rows)
    scores = (scale * scores).to(dtype)
    scores[:5, ::3] *= -1  # so that there are zeros of both signs
    expected = scores.argsort(dim=-1, stable=True).argsort(-1) + 1
    assert_close(pb.Ranking().argmax(scores), expected.to(dtype))


def test_equal_scores_are_ranked_as_they_come():
    scores = torch.tensor([1.0, 0.0, 1.0, -0.0, 0.0])
    assert pb.Ranking().argmax(scores).tolist() == [4, 1, 5, 2, 3]
    assert pb.Ranking().argmax(torch.zeros(100)).tolist() == list(range(1, 101))


def test_values_are_dealt_out_in_the_order_of_the_scores():
    scores = torch.tensor([[0.3, -1.0, 2.0], [0.3, -1.0, 2.0]])
    values = torch.tensor([5.0, -2.0, 5.0])
    assert pb.Ranking(values=values).argmax(scores).tolist() == [[5, -2, 5]] * 2
    each = torch.tensor([[1.0, 2.0, 3.0], [30.0, 10.0, 20.0]])
    assert pb.Ranking(values=each).argmax(scores).tolist() == [[2, 1, 3], [20, 10, 30]]
    first_two = pb.Ranking(values=torch.tensor([7.0, 3.0, 100.0]), lengths=torch.tensor([2, 0]))
    assert first_two.argmax(scores).tolist() == [[7, 3, 0], [0, 0, 0]]


def test_no_items_have_one_order():
    vertices, belongs = pb.Ranking(lengths=torch.tensor([2, 0])).enumerate((2, 3))
    assert vertices.tolist() == [[0, 0, 0], [1, 2, 0], [2, 1, 0]]
    assert belongs.tolist() == [[False, True], [True, False], [True, False]]


# ---- projections


@REGULARIZERS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 30, 60])
@pytest.mark.parametrize("scale", [1e-3, 0.3, 3.0, 100.0, 1e4], ids=lambda scale: f"scale {scale:g}")
def test_soft_ranks_are_those_of_the_minimax_formula(n, scale, dtype, regularizer):
    scores = random(4, n, scale=scale).to(dtype)
    scores[1] = scores[1].round()
    scores[2] = scores[2].sort().values
    values = random(4, n, seed=1).abs().to(dtype) + 0.1
    values[0] = torch.arange(1, n + 1)
    found = pb.Ranking(values=values).soft_rank(scores, regularizer=regularizer)
    assert found.dtype == dtype
    twin = TWINS[regularizer]
    expected = np.stack([twin(s, w) for s, w in zip(scores.double().numpy(), values.double().numpy())])
    rounding = 1e-11 if dtype == torch.float64 else 1e-6
    assert_close(found.double(), torch.from_numpy(expected), atol=rounding * max(1.0, scale, n), rtol=rounding)


@REGULARIZERS
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_soft_ranks_maximize_over_all_permutations(n, regularizer):
    """No vertex does better along the gradient of the objective, and the point mixes vertices."""
    for seed, scale in enumerate([0.1, 1.0, 3.0]):
        scores = random(n, seed=seed, scale=scale)
        point = pb.Ranking().soft_rank(scores, regularizer=regularizer)
        rest = scores - (point if regularizer == "squared_norm" else point.log())
        vertices = torch.from_numpy(reference.permutations(np.arange(1.0, n + 1)))
        assert (vertices @ rest).max() - rest @ point <= 1e-10
        system = np.concatenate([vertices.T.numpy(), np.ones((1, len(vertices)))])
        assert nnls(system, np.append(point.numpy(), 1.0))[1] < 1e-9


@REGULARIZERS
def test_soft_ranks_become_ranks_as_the_temperature_falls_and_their_mean_as_it_rises(regularizer):
    ranking, scores = pb.Ranking(), random(3, 50)
    assert_close(ranking.soft_rank(scores, temperature=1e-6, regularizer=regularizer), ranking.argmax(scores))
    flat = ranking.soft_rank(scores, temperature=1e9, regularizer=regularizer)
    assert_close(flat, torch.full_like(flat, 25.5), atol=1e-6, rtol=0)
    assert_close(ranking.soft_rank(scores, temperature=0.3), ranking.sparsemap(scores / 0.3))


@REGULARIZERS
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_soft_ranks_keep_the_sum_and_the_order_and_ignore_what_all_scores_share(regularizer, shift):
    scores = (random(4, 1000) * 1024).round() / 1024  # so that adding is exact
    point = pb.Ranking().soft_rank(scores + shift, temperature=0.01, regularizer=regularizer)
    assert_close(point.sum(-1), torch.full((4,), 500500.0, dtype=torch.float64))
    assert (point.gather(-1, scores.argsort(-1)).diff(dim=-1) >= -1e-9).all()
    assert_close(point, pb.Ranking().soft_rank(scores, temperature=0.01, regularizer=regularizer), atol=1e-5, rtol=0)


@REGULARIZERS
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_soft_ranks_have_derivatives_in_scores_and_values(scale, regularizer):
    scores, lengths = random(3, 6, scale=scale).requires_grad_(), torch.tensor([6, 3, 0])
    values = (random(3, 6, seed=1).abs() + 0.5).requires_grad_()

    def soft_rank(scores, values):
        return pb.Ranking(values=values, lengths=lengths).soft_rank(scores, regularizer=regularizer)

    assert gradcheck(soft_rank, (scores, values))
    assert gradgradcheck(soft_rank, (scores, values))


@REGULARIZERS
def test_equal_scores_that_share_one_value_do_not_move_the_point(regularizer):
    values = torch.tensor([2.0, 0.5, 2.0, 7.0, 2.0], dtype=torch.float64)
    scores = torch.tensor([1.0, -5.0, 1.0, 9.0, 1.0], dtype=torch.float64).requires_grad_()

    def soft_rank(scores):
        return pb.Ranking(values=values).soft_rank(scores, regularizer=regularizer)

    assert_close(soft_rank(scores), torch.tensor([2.0, 0.5, 2.0, 7.0, 2.0], dtype=torch.float64))
    assert gradcheck(soft_rank, (scores,)) and gradgradcheck(soft_rank, (scores,))
    wanted = values.clone().requires_grad_()
    point = pb.Ranking(values=wanted).soft_rank(scores.detach(), regularizer=regularizer)
    (of_values,) = torch.autograd.grad((point * torch.arange(5.0)).sum(), wanted)
    assert_close(of_values, torch.tensor([2.0, 1.0, 2.0, 3.0, 2.0], dtype=torch.float64))


@REGULARIZERS
def test_the_gradient_is_the_same_whether_or_not_it_is_differentiated_again(regularizer):
    ranking, weight = pb.Ranking(lengths=torch.tensor([40, 17])), random(2, 40, seed=1)
    slopes = []
    for again in (False, True):
        scores = random(2, 40).requires_grad_()
        point = ranking.soft_rank(scores, temperature=0.1, regularizer=regularizer)
        slopes += torch.autograd.grad((point * weight).sum(), scores, create_graph=again)
    assert_close(*slopes)


def test_padding_is_never_read():
    ranking, clean = pb.Ranking(lengths=torch.tensor([2, 0, 3])), random(3, 4)
    inside = torch.arange(4) < torch.tensor([2, 0, 3])[:, None]
    for operation in (
        ranking.soft_sort,
        lambda scores: ranking.soft_sort(scores, regularizer="entropy"),
        ranking.soft_rank,
        lambda scores: ranking.soft_rank(scores, regularizer="entropy"),
    ):
        answers = []
        for rubbish in (0.0, torch.nan, torch.inf):
            scores = clean.masked_fill(~inside, rubbish).requires_grad_()
            point = operation(scores)
            (slope,) = torch.autograd.grad((point * clean).sum(), scores)
            assert (point[~inside] == 0).all() and (slope[~inside] == 0).all()
            answers.append((point.detach(), slope))
        for given in answers[1:]:
            assert_close(given, answers[0], rtol=0, atol=0)


@REGULARIZERS
def test_padding_sends_nothing_to_the_temperature(regularizer):
    ranking, clean = pb.Ranking(lengths=torch.tensor([2, 0, 3])), random(3, 4)
    inside = torch.arange(4) < torch.tensor([2, 0, 3])[:, None]
    slopes = []
    for rubbish in (0.0, torch.nan, torch.inf):
        for temperature in (torch.tensor(0.7), torch.tensor([0.7, 0.7, 0.7])):
            temperature.requires_grad_()
            scores = clean.masked_fill(~inside, rubbish)
            point = ranking.soft_rank(scores, temperature=temperature, regularizer=regularizer)
            slopes.append(torch.autograd.grad((point * clean).sum(), temperature)[0].sum())
    assert slopes[0] != 0
    assert_close(torch.stack(slopes), slopes[0].expand(6))


# ---- soft sorting


def test_soft_sort_is_sorting_at_low_temperatures_and_the_mean_at_high_ones():
    ranking, scores = pb.Ranking(), random(3, 60)
    assert_close(ranking.soft_sort(scores, temperature=1e-6), scores.sort(-1).values)
    flat = ranking.soft_sort(scores, temperature=1e9)
    assert_close(flat, scores.mean(-1, keepdim=True).expand(3, 60), atol=1e-6, rtol=0)
    positions = np.arange(1.0, 61) / 0.5
    expected = np.stack([reference.project(positions, row) for row in scores.numpy()])
    assert_close(ranking.soft_sort(scores, temperature=0.5), torch.from_numpy(expected))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("temperature", [1e-3, 0.3, 2.0, 100.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4], ids=lambda scale: f"scale {scale:g}")
def test_entropic_soft_sort_is_that_of_the_minimax_formula(scale, temperature, dtype):
    scores = random(3, 20, scale=scale).to(dtype)
    scores[1] = scores[1].round()
    found = pb.Ranking().soft_sort(scores, temperature=temperature, regularizer="entropy")
    assert found.dtype == dtype
    positions = np.arange(1.0, 21) / temperature
    expected = np.stack([reference.project_logarithms(positions, row) for row in scores.double().numpy()])
    rounding = (1e-12 if dtype == torch.float64 else 1e-6) * max(1.0, scale)
    assert_close(found.double(), torch.from_numpy(expected), atol=rounding + 1e-15 / temperature, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_entropic_soft_sort_maximizes_over_all_permutations(n):
    """No vertex does better along the gradient of the objective, and the point mixes vertices."""
    for seed, scale in enumerate([0.1, 1.0, 3.0]):
        scores = random(n, seed=seed, scale=scale)
        sort = pb.Ranking().soft_sort(scores, temperature=0.7, regularizer="entropy")
        rest, point = torch.arange(1.0, n + 1, dtype=torch.float64) / 0.7 - sort, sort.exp()
        vertices = torch.from_numpy(reference.permutations(scores.exp().numpy()))
        assert (vertices @ rest).max() - rest @ point <= 1e-10
        system = np.concatenate([vertices.T.numpy(), np.ones((1, len(vertices)))])
        assert nnls(system, np.append(point.numpy(), 1.0))[1] < 1e-9


@pytest.mark.parametrize("scale", [1.0, 1e4], ids=lambda scale: f"scale {scale:g}")
def test_entropic_soft_sort_is_sorting_at_low_temperatures_and_the_log_mean_exp_at_high_ones(scale):
    ranking, scores = pb.Ranking(), random(3, 60, scale=scale)
    low, high = (ranking.soft_sort(scores, temperature=t, regularizer="entropy") for t in (1e-8, 1e12))
    assert_close(low, scores.sort(-1).values, atol=1e-6, rtol=0)
    mean = scores.logsumexp(-1, keepdim=True) - math.log(60)
    assert_close(high, mean.expand(3, 60), atol=1e-6, rtol=0)


@REGULARIZERS
def test_soft_sort_has_derivatives(regularizer):
    ranking = pb.Ranking(lengths=torch.tensor([5, 2]))
    temperature = torch.tensor([0.7, 2.0], dtype=torch.float64).requires_grad_()

    def soft_sort(scores, temperature):
        return ranking.soft_sort(scores, temperature=temperature, regularizer=regularizer)

    for scale in (0.3, 3.0):
        inputs = (random(2, 5, scale=scale).requires_grad_(), temperature)
        assert gradcheck(soft_sort, inputs) and gradgradcheck(soft_sort, inputs)


@REGULARIZERS
def test_soft_sort_takes_vmap_and_compilation(regularizer):
    torch.compiler.reset()
    soft_sort = lambda scores: pb.Ranking().soft_sort(scores, temperature=0.7, regularizer=regularizer)
    scores = random(3, 5)
    assert_close(torch.func.vmap(soft_sort)(scores), soft_sort(scores))
    slopes = []
    for function in (soft_sort, torch.compile(soft_sort, fullgraph=True, backend="aot_eager")):
        given = scores.clone().requires_grad_()
        slopes += torch.autograd.grad(function(given).square().sum(), given)
    assert_close(*slopes)


# ---- what is refused


def test_a_score_that_is_not_finite_is_refused_in_words():
    for bad in (torch.nan, torch.inf, -torch.inf):
        scores = torch.zeros(2, 3)
        scores[1, 2] = bad
        ranking = pb.Ranking()
        for operation in (ranking.argmax, ranking.sparsemap, ranking.support, ranking.soft_rank):
            with pytest.raises(ValueError, match=r"scores of example \[1\] contain NaN or an infinity"):
                operation(scores)
        with pytest.raises(ValueError, match=r"values of example \[1\] contain NaN or an infinity"):
            pb.Ranking(values=scores).argmax(torch.zeros(2, 3))


def test_values_and_options_that_do_not_fit_are_refused_in_words():
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"values have shape \(4,\); expected \(\.\.\., 3\)"):
        pb.Ranking(values=torch.ones(4)).argmax(scores)
    with pytest.raises(ValueError, match=r"values have shape \(5, 3\); expected \(3,\) or .* \(2, 3\)"):
        pb.Ranking(values=torch.ones(5, 3)).argmax(scores)
    with pytest.raises(TypeError, match="values are a list"):
        pb.Ranking(values=[1, 2, 3])
    with pytest.raises(ValueError, match=r"Ranking: lengths\[1\] is 4; expected between 0 and 3"):
        pb.Ranking(lengths=torch.tensor([1, 4])).sparsemap(scores)
    for operation in (pb.Ranking().soft_rank, pb.Ranking().soft_sort):
        with pytest.raises(
            ValueError, match=r"regularizer is 'l2'; expected a name: \"squared_norm\" or \"entropy\"\."
        ):
            operation(scores, regularizer="l2")
    with pytest.raises(ValueError, match=r"values of example \[0\] are not all above 0"):
        pb.Ranking(values=torch.tensor([0.0, 1.0, 2.0])).soft_rank(scores, regularizer="entropy")
    with pytest.raises(ValueError, match="temperature is 0; expected a number above 0"):
        pb.Ranking().soft_rank(scores, temperature=0)
    for operation in (pb.Ranking().soft_rank, pb.Ranking().soft_sort):
        with pytest.raises(ValueError, match=r"temperature has shape \(3,\); expected .* the batch, \(1,\)"):
            operation(scores[:1], temperature=torch.ones(3))
        with pytest.raises(TypeError, match="scores are a list"):
            operation([1.0, 2.0])
    with pytest.raises(pb.MissingCapability, match="Entropy needs a partition function, and Ranking has none"):
        pb.Entropy().predict(pb.Ranking(), scores)


# ---- vertices that are not zeros and ones


def test_there_are_as_many_rankings_as_permutations():
    for n, count in enumerate([1, 2, 6, 24, 120, 720], start=1):
        assert len(pb.Ranking().enumerate((n,)).vertices) == count
    equal = pb.Ranking(values=torch.tensor([1.0, 1.0, 2.0, 2.0]))
    assert len(equal.enumerate((4,)).vertices) == 6
    with pytest.raises(ValueError, match=r"Ranking: there are \d+ vertices; expected at most"):
        pb.Ranking().enumerate((12,))


def test_only_permutations_are_vertices():
    ranking = pb.Ranking(lengths=torch.tensor(3))
    rows = [[2, 3, 1, 0], [2, 2, 1, 0], [2, 3, 1, 4], [2, 2, 2, 0], [0, 0, 0, 0], [torch.nan, 3, 1, 0]]
    assert ranking.contains(torch.tensor(rows, dtype=torch.float32)).tolist() == [True] + [False] * 5


def test_a_support_has_at_most_as_many_rankings_as_items_and_a_certificate():
    scores = random(3, 12, scale=4.0)
    found = pb.Ranking().solve(scores)
    assert found.converged.all() and (found.mixture.size <= 12).all()
    assert_close(found.mixture.mean(), pb.Ranking().sparsemap(scores), atol=1e-7, rtol=0)


def test_a_ranking_can_be_learned_from_soft_targets_and_ranks():
    loss, ranking, scores = pb.FenchelYoungLoss(pb.SquaredNorm()), pb.Ranking(), random(2, 4).requires_grad_()
    target = ranking.argmax(random(2, 4, seed=1))
    (slope,) = torch.autograd.grad(loss(ranking, scores, target), scores)
    assert_close(2 * slope, ranking.sparsemap(scores).detach() - target)
    assert loss(ranking, scores, torch.full((2, 4), 2.5).double()) >= 0
    with pytest.raises(ValueError, match=r"target of example \[0\] lies outside the polytope"):
        loss(ranking, scores, target + 1)
